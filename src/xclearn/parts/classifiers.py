"""One linear classifier per label, trained against all labels or a sample, with the update fused into the gradient.

The loss is the sum over labels of the binary cross-entropy, averaged over the documents of the batch. The matrix of
scores exists one block of labels at a time and is turned into the gradient σ(logit) − y in place; the loss itself is
computed only when asked for. Knows nothing about encoders, stages or devices.
"""

from __future__ import annotations

import math
from typing import Any, final

import torch
from torch import nn
from torch.nn import functional as F

from xclearn.inference import components
from xclearn.parts.label_rows import LabelRows
from xclearn.parts.row_update import RowUpdate
from xclearn.parts.rows import Gathered

_ALIGNMENT = 8  # bf16 products want rows that start at multiples of 16 bytes: an odd width runs at half the speed
SCORES_AT_ONCE = {"cpu": 1 << 22, "cuda": 1 << 27}  # entries of the score block: in the CPU's cache; few GPU launches


def row_width(dim: int) -> int:
    """Columns of a label row: the vector, its bias, a constant one, and padding to an aligned width."""
    return _aligned(dim + 2)


def _aligned(width: int) -> int:
    return math.ceil(width / _ALIGNMENT) * _ALIGNMENT


@final
class RowClassifier(nn.Module):
    """logit_l = w_l · x + b_l + prior, rows starting at zero.

    Under PyTorch's usual initialisation a sum over 100,000 labels collapses to label popularity; zero rows and a prior
    of about −ln(number of labels) start every label near its base rate. The bias is one more column of the row; the
    next column is 1 in every row and never trained, so that the prior enters with the product at no cost of its own.
    """

    weight: torch.Tensor
    shadow: torch.Tensor | None

    def __init__(self, rows: LabelRows, dim: int, prior: float, update: RowUpdate, compute: torch.dtype) -> None:
        super().__init__()
        self.rows, self.dim, self.prior, self.update, self.compute = rows, dim, prior, update, compute
        weight = torch.zeros(len(rows), row_width(dim))
        weight[:, dim + 1] = 1
        self.register_buffer("weight", weight)  # (rows, width) float32
        # The products read a low-precision copy that is refreshed with each update.
        self.register_buffer("shadow", weight.to(compute) if compute != torch.float32 else None, persistent=False)

    def exact_loss(self, x: torch.Tensor, positives: Gathered, *, measure: bool) -> torch.Tensor:
        """Train all rows on a batch `x` (n, D); the gradient is of the mean loss, the value NaN unless measured."""
        return _FusedStep.apply(x, self, positives, None, measure)

    def sampled_loss(self, x: torch.Tensor, positives: Gathered, labels: torch.Tensor) -> torch.Tensor:
        """Train the rows `labels` (S,), ascending and holding every positive of the batch."""
        return _FusedStep.apply(x, self, positives, labels, True)

    @torch.no_grad()
    def best(self, x: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The k best labels of each row of `x`: ids, logits (n, k)."""
        ids, scores = [], []
        inputs = self._augment(x, self.prior)
        for begin, end in self._chunks(len(x)):
            logits = (inputs @ self._rows(slice(begin, end)).T).float()  # (n, C)
            found = logits.topk(min(k, end - begin), dim=1)
            ids.append(found.indices + begin + self.rows.start)
            scores.append(found.values)
        merged, order = torch.cat(scores, dim=1).topk(min(k, len(self.rows)), dim=1)
        return torch.cat(ids, dim=1).gather(1, order), merged

    def served(self, vector: str) -> components.Classifier:
        weight = self.weight.detach().cpu()
        return components.Classifier(
            vector, weight[:, : self.dim].contiguous().numpy(), (weight[:, self.dim] + self.prior).numpy()
        )

    def step(
        self, x: torch.Tensor, positives: Gathered, labels: torch.Tensor | None, measure: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Update rows; returns the gradient of the mean loss with respect to `x` (n, D), and the mean loss."""
        inputs = self._augment(x, self.prior), self._augment(x, 0)  # each (n, width)
        if labels is not None:
            columns = torch.searchsorted(labels, positives.columns)
            loss, gradient = self._block(inputs, labels - self.rows.start, positives.owner, columns, None, measure)
        else:
            loss, gradient = torch.zeros((), device=x.device), torch.zeros_like(inputs[0], dtype=torch.float32)
            for begin, end in self._chunks(len(x)):
                columns = positives.columns - (begin + self.rows.start)
                inside = (columns >= 0) & (columns < end - begin)
                columns = columns.clamp(0, end - begin - 1)
                block = self._block(inputs, slice(begin, end), positives.owner, columns, inside, measure)
                loss, gradient = loss + block[0], gradient.add_(block[1])
        return gradient[:, : self.dim].to(x.dtype) / len(x), loss / len(x)

    def _block(
        self,
        inputs: tuple[torch.Tensor, torch.Tensor],
        rows: slice | torch.Tensor,
        owner: torch.Tensor,
        columns: torch.Tensor,
        inside: torch.Tensor | None,
        measure: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """One block of labels: scores → gradient in place → gradients of x and rows → rows updated.

        Positives outside the block are added with weight 0 rather than selected: selecting would wait for the device.
        """
        weight = self._rows(rows)  # (C, width)
        flat = weight.new_empty(len(inputs[0]) * _aligned(len(weight)))
        scores = flat.view(len(inputs[0]), -1)[:, : len(weight)]  # (n, C), each row aligned
        torch.mm(inputs[0], weight.T, out=scores)
        position = owner * scores.stride(0) + columns  # (m,) in the flat block
        hit = torch.ones_like(columns) if inside is None else inside
        loss = torch.full((), math.nan, device=scores.device)
        if measure:
            loss = F.softplus(scores.float()).sum() - (flat[position].float() * hit).sum()
        scores.sigmoid_()
        flat.index_add_(0, position, hit.to(scores.dtype), alpha=-1)
        gradient = scores @ weight  # (n, width)
        self.update.apply_(self.weight, rows, scores.T @ inputs[1])
        if self.shadow is not None:
            self.shadow[rows] = self.weight[rows].to(self.compute)
        return loss, gradient

    def _rows(self, rows: slice | torch.Tensor) -> torch.Tensor:
        return self.weight[rows] if self.shadow is None else self.shadow[rows]

    def _augment(self, x: torch.Tensor, prior: float) -> torch.Tensor:
        padded = F.pad(x.to(self.compute), (0, self.weight.shape[1] - self.dim))
        padded[:, self.dim], padded[:, self.dim + 1] = 1, prior
        return padded

    def _chunks(self, n_documents: int) -> list[tuple[int, int]]:
        return self.rows.chunks(max(1, SCORES_AT_ONCE[self.weight.device.type] // max(1, n_documents)))

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        if self.shadow is not None:
            self.shadow.copy_(self.weight)


class _FusedStep(torch.autograd.Function):
    """Rows are updated in the forward pass, where their scores are; backward only hands on the gradient of x."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, rows: RowClassifier, positives: Gathered, labels: Any, measure: bool) -> Any:
        gradient, loss = rows.step(x, positives, labels, measure)
        ctx.save_for_backward(gradient)
        return loss

    @staticmethod
    def backward(ctx: Any, *outer: Any) -> Any:
        (gradient,) = ctx.saved_tensors
        return outer[0] * gradient, None, None, None, None
