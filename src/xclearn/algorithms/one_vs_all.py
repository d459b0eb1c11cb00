"""One classifier per label over a bag-of-embeddings encoder, trained end to end: DeepXML-OVA.

From Dahiya et al., "DeepXML: A Deep Extreme Multi-Label Learning Framework Applied to Short Text Documents" (WSDM
2021), whose repository has it as the framework `DeepXML-OVA`: Astec's features under a full one-vs-all classifier.

Differences from the authors' code: label rows start at zero with the prior −ln L instead of uniformly (their start
collapses to label popularity beyond 100,000 labels) and are trained by SGD instead of Adam (better on a hold-out, no
state); no residual block after the bag unless `encoder.residual` (worse on a hold-out); one learning-rate cycle; on a
CPU beyond `exact_labels`, a step scores the batch's own labels and random others instead of all.

Good for: a strong simple baseline on a GPU, labels without descriptive texts.
Cost: one row per label; cheap on a GPU, sampled beyond 20,000 labels on a CPU.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, final

from xclearn.config import AUTO, Auto, Share, Span
from xclearn.parts.encoder_settings import FEW_LABELS, encoder_for, wider_dim
from xclearn.training.prepare import Size
from xclearn.training.row_algorithm import RowAlgorithm, usual_exact_labels


@final
@dataclass(kw_only=True)
class OneVsAll(RowAlgorithm):
    """Bag-of-embeddings encoder and one linear classifier per label."""

    name: ClassVar[str] = "one_vs_all"

    dropout: Annotated[Auto[Share], Span(0.0, 0.6)] = AUTO  # dropout of the encoder if that is auto

    def _auto(self, size: Size, device: str) -> dict[str, Any]:
        gpu = device == "cuda"
        few = not gpu and size.n_labels <= FEW_LABELS
        usual = 0.5 if few else 0.3
        dropout = usual if self.dropout is AUTO else self.dropout
        dim = wider_dim(size.n_labels, device) if few else min(302 if gpu else 126, 2 * math.isqrt(size.n_labels))
        return {
            "dropout": usual,
            "encoder": replace(encoder_for(self.vectoriser), dropout=dropout),
            "embedding_dim": max(32, dim),
            "epochs": _usual_epochs(size.n_documents, gpu),
            "batch_size": min(1024, max(16, size.n_documents // 50)),
            "exact_labels": usual_exact_labels(size, device),
        }

    def _unread(self, size: Size, device: str) -> Iterator[tuple[str, str]]:
        yield from super()._unread(size, device)
        if self.encoder.dropout != self.dropout:
            yield "leave encoder at auto", "dropout"


def _usual_epochs(n_documents: int, gpu: bool) -> int:
    """Passes over train: more than 25 overfit small sets, but very small ones need them to take enough steps."""
    most = max(25, min(100, 25_000 // n_documents))
    return min(most, max(20 if gpu else 15, 500_000 // n_documents))
