"""Makes a label row without training, from the label's text and optional examples.

Knows nothing about files or how the encoder was trained.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, final

import numpy as np
import scipy.sparse as sp

from xclearn.config import Rate, Weight
from xclearn.errors import ModelError
from xclearn.inference.arrays import unit
from xclearn.inference.components import Encoder, component
from xclearn.inference.declared import Part, Scope, Tensor, shares
from xclearn.text.vectorisers import DENSE_ROWS


@final
@component("text_rows.v1")
@dataclass(frozen=True)
class TextRows(Part):
    """w = scale · (e + gain · u): e is the text's vector, u the direction of the examples from the mean document.

    Examples add to the text rather than replace it, as documents are closer to label texts than to each other.
    """

    encoder: Annotated[Encoder, shares("features", "dim")]  # of label texts
    centre: Annotated[np.ndarray, Tensor("dim")]  # the mean vector of documents
    scale: Rate
    bias: float
    gain: Weight  # weight of examples
    at_centre: bool = False  # `bias` is the logit of the mean document for every row

    def fits(self, scope: Scope) -> None:
        dim, form = self.encoder.dim, self.encoder.gives
        if form != DENSE_ROWS or dim != scope.size("dim"):
            got, allowed = f"{form} of {dim:,}", f"{DENSE_ROWS} of {scope.size('dim'):,}"
            what = "the encoder of label texts does not fit the model's vectors"
            raise ModelError(what, where="text_rows.v1.encoder", got=got, allowed=allowed)

    def rows(
        self, texts: sp.csr_matrix | np.ndarray, means: np.ndarray, counts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rows (m, D) and biases (m,) from text features (m, V) and the means (m, D) of `counts` examples."""
        vectors = self.encoder.encode(texts)  # (m, D)
        added = unit(means - self.centre) * (counts > 0)[:, None]
        rows = self.scale * (vectors + self.gain * added)
        biases = np.full(len(rows), self.bias) - (rows @ self.centre if self.at_centre else 0.0)
        return rows.astype(np.float32), biases.astype(np.float32)
