"""One linear classifier per label, trained against all labels or a sample, with the update fused into the gradient.

The loss is the sum over labels of the binary cross-entropy, averaged over the documents of the batch. The matrix of
scores exists one block of labels at a time and is turned into the gradient σ(logit) − y in place; the loss itself is
computed only when asked for. Knows nothing about encoders, stages or devices.
"""

from __future__ import annotations

from typing import Any, final

import torch
from torch import nn

from xclearn.inference import components
from xclearn.parts.label_rows import LabelRows
from xclearn.parts.losses import aligned, block_gradient, blocks, filled_up
from xclearn.parts.row_update import RowUpdate
from xclearn.parts.rows import Gathered


def row_width(dim: int) -> int:
    """Columns of a label row: the vector, its bias, a constant one, and padding to an aligned width."""
    return aligned(dim + 2)


@final
class RowClassifier(nn.Module):
    """logit_l = w_l · x + b_l + prior, rows starting at zero.

    Under PyTorch's usual initialisation a sum over 100,000 labels collapses to label popularity; zero rows and a prior
    of about −ln(number of labels) start every label near its base rate. The bias is one more column of the row; the
    next column is 1 in every row and never trained, so that the prior enters with the product at no cost of its own.
    The table ends in idle rows that fill up its last block.
    """

    table: torch.Tensor
    shadow: torch.Tensor | None

    def __init__(self, rows: LabelRows, dim: int, prior: float, update: RowUpdate, compute: torch.dtype) -> None:
        super().__init__()
        self.rows, self.dim, self.prior, self.update, self.compute = rows, dim, prior, update, compute
        table = torch.zeros(filled_up(len(rows)), row_width(dim))
        table[:, dim + 1] = 1
        self.register_buffer("table", table)  # (rows and idle rows, width) float32
        # The products read a low-precision copy that is refreshed with each update.
        self.register_buffer("shadow", table.to(compute) if compute != torch.float32 else None, persistent=False)

    @property
    def weight(self) -> torch.Tensor:
        """The label rows (rows, width), without the idle ones."""
        return self.table[: len(self.rows)]

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
        inputs = self._augment(x)
        for begin, end in blocks(len(self.rows), len(x), x.device.type):
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
        inputs = self._augment(x)  # (n, width)
        if labels is not None:
            columns = torch.searchsorted(labels, positives.columns)
            loss, gradient = self._update(inputs, labels - self.rows.start, positives.owner, columns, measure)
        else:
            loss, gradient = torch.zeros((), device=x.device), torch.zeros_like(inputs, dtype=torch.float32)
            for begin, end in blocks(len(self.table), len(x), x.device.type):
                columns = positives.columns - (begin + self.rows.start)
                block = self._update(inputs, slice(begin, end), positives.owner, columns, measure)
                loss, gradient = loss + block[0], gradient.add_(block[1])
        return gradient[:, : self.dim].to(x.dtype) / len(x), loss / len(x)

    def _update(
        self,
        inputs: torch.Tensor,
        rows: slice | torch.Tensor,
        owner: torch.Tensor,
        columns: torch.Tensor,
        measure: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Train one block of rows; returns its summed loss and its part of the gradient of the inputs (n, width)."""
        weight = self._rows(rows)  # (C, width)
        n_labels = len(self.rows) - rows.start if isinstance(rows, slice) else len(weight)
        scores, loss = block_gradient(inputs, weight, owner, columns, measure, n_outputs=n_labels)  # (n, C)
        gradient = scores @ weight
        change = (scores.T @ inputs)[:n_labels]
        change[:, self.dim + 1] = 0  # the constant column
        if isinstance(rows, slice):
            rows = slice(rows.start, min(rows.stop, len(self.rows)))
        self.update.apply_(self.weight, rows, change)
        if self.shadow is not None:
            self.shadow[rows] = self.weight[rows]
        return loss, gradient

    def _rows(self, rows: slice | torch.Tensor) -> torch.Tensor:
        return self.table[rows] if self.shadow is None else self.shadow[rows]

    def _augment(self, x: torch.Tensor) -> torch.Tensor:
        constants = torch.zeros(self.table.shape[1] - self.dim, dtype=self.compute, device=x.device)
        constants[0], constants[1] = 1, self.prior
        return torch.cat([x.to(self.compute), constants.expand(len(x), -1)], dim=1)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        if self.shadow is not None:
            self.shadow.copy_(self.table)


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
