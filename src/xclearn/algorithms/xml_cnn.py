"""XML-CNN: a convolution over token sequences and one classifier per label, trained end to end.

From Liu et al., "Deep Learning for Extreme Multi-label Text Classification" (SIGIR 2017): filters of several widths
over token vectors, dynamic max-pooling over parts of the text, a bottleneck layer, and binary cross-entropy summed over
labels. It is `one_vs_all` with this encoder and its own sizes.

Differences from the paper: token vectors are initialised at random instead of with GloVe; label rows start at zero with
the prior −ln L and are trained by SGD; there is one learning-rate cycle. On a CPU beyond `exact_labels`, a step scores
the batch's labels and random ones instead of all.

Good for: a baseline that uses word order.
Cost: convolutions are slower than a bag, and rarely better on short texts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, final

from xclearn.parts.encoder_settings import ConvolutionSettings
from xclearn.text import Sequences
from xclearn.training.prepare import Size
from xclearn.training.row_algorithm import RowAlgorithm, usual_exact_labels


@final
@dataclass(kw_only=True)
class XmlCnn(RowAlgorithm):
    """Convolution over token sequences and one linear classifier per label."""

    name: ClassVar[str] = "xml_cnn"

    vectoriser: Sequences = field(default_factory=Sequences)  # how texts become tokens
    encoder: ConvolutionSettings = field(default_factory=ConvolutionSettings)  # filters and pooling

    def _auto(self, size: Size, device: str) -> dict[str, Any]:
        gpu = device == "cuda"
        return {
            "embedding_dim": min(510 if gpu else 126, max(32, 2 * math.isqrt(size.n_labels))),  # of the bottleneck
            "epochs": min(50, max(10, 300_000 // size.n_documents)),
            "batch_size": min(1024 if gpu else 256, max(16, size.n_documents // 50)),
            "exact_labels": usual_exact_labels(size, device),
        }
