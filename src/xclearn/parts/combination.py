"""How the parts of a classifier (label text, convolved text, refinement) become one vector: a weighted sum.

Each combination scales the parts. Their sum is the classifier, and their norms are their contributions. Knows nothing
about where parts come from.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal, final

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

Combine = Literal["attention", "attention_sigmoid", "sum", "gates"]


class Combination(nn.Module, ABC):
    """Parts, each (n, D) → the same, scaled."""

    @abstractmethod
    def forward(self, parts: list[torch.Tensor]) -> list[torch.Tensor]: ...


@final
class Gates(Combination):
    """σ(g) ⊙ part, with one gate per part shared by all outputs: DECAF's, where both gates start half open (0)."""

    def __init__(self, dim: int, starts: Sequence[float]) -> None:
        super().__init__()
        self.gates = nn.ParameterList([nn.Parameter(torch.full((dim,), start)) for start in starts])

    def forward(self, parts: list[torch.Tensor]) -> list[torch.Tensor]:
        return [gate.sigmoid() * part for gate, part in zip(self.gates, parts, strict=True)]


@final
class Mean(Combination):
    """The unweighted mean of the parts."""

    def forward(self, parts: list[torch.Tensor]) -> list[torch.Tensor]:
        return [part / len(parts) for part in parts]


@final
class Attention(Combination):
    """Each output weighs its own parts: softmax(A [t(part); …]), t(v) = T dropout(ReLU(v)), or σ of it (ECLARE)."""

    def __init__(self, dim: int, n_parts: int, dropout: float, *, squash: bool) -> None:
        super().__init__()
        self.transform = nn.Linear(dim, dim)
        self.attend = nn.Linear(n_parts * dim, n_parts, bias=False)
        nn.init.zeros_(self.transform.bias)
        for layer in (self.transform, self.attend):
            nn.init.xavier_uniform_(layer.weight)
            parametrizations.spectral_norm(layer)
        self.dropout, self.squash = dropout, squash

    def forward(self, parts: list[torch.Tensor]) -> list[torch.Tensor]:
        seen = [self.transform(F.dropout(F.relu(part), self.dropout, self.training)) for part in parts]
        joined = torch.cat(seen, dim=1)  # (n, parts · D)
        weights = self.attend(joined.sigmoid() if self.squash else joined).softmax(dim=1)  # (n, parts)
        return [weights[:, i : i + 1] * part for i, part in enumerate(parts)]


def make_combination(kind: Combine, dim: int, starts: Sequence[float], dropout: float) -> Combination:
    """A combination of `len(starts)` parts; only gates read the values of `starts`."""
    if kind == "gates":
        return Gates(dim, starts)
    if kind == "sum":
        return Mean()
    return Attention(dim, len(starts), dropout, squash=kind == "attention_sigmoid")
