"""How a label that no document was trained on becomes a row: from its text, and from examples where there are any.

Knows nothing about files, nor how the encoder was trained.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, final

import numpy as np
import scipy.sparse as sp

from xclearn.config import Rate
from xclearn.inference.components import Encoder, component
from xclearn.inference.declared import Part, shares


@final
@component("text_rows.v1")
@dataclass(frozen=True)
class TextRows(Part):
    """w = scale · (e + n / (n + hold) · (mean − e)): e is the text's vector, the mean that of n examples."""

    encoder: Annotated[Encoder, shares("features", "dim")]  # of label texts
    scale: Rate
    bias: float
    hold: Rate  # examples with which a row is as much theirs as its text's

    def rows(
        self, texts: sp.csr_matrix | np.ndarray, means: np.ndarray, counts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rows (m, D) and biases (m,) of labels: features of texts (m, V), and the means (m, D) of `counts` vectors."""
        vectors = self.encoder.encode(texts)  # (m, D)
        share = (counts / (counts + self.hold))[:, None]
        rows = self.scale * (vectors + share * (means - vectors))
        return rows.astype(np.float32), np.full(len(rows), self.bias, dtype=np.float32)
