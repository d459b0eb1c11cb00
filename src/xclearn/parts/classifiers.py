"""One linear classifier per label, trained against all labels, a sample or shortlists; gradient and update are fused.

The loss is the sum over labels of the binary cross-entropy (or another chosen loss), averaged over the documents of the
batch. Scores are computed one block of labels at a time and turned into the gradient σ(logit) − y in place; the loss
itself is computed only on request. Knows nothing about encoders, stages or devices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, final

import torch
from torch import nn

from xclearn.inference import components
from xclearn.kernels import shortlist
from xclearn.kernels.shortlist import PairLoss, train_pairs
from xclearn.parts.label_rows import LabelRows
from xclearn.parts.losses import PAIRS_AT_ONCE, OutputLoss, aligned, block_gradient, blocks, filled_up, pair_gradient
from xclearn.parts.pair_products import pair_scores, products
from xclearn.parts.row_update import RowUpdate
from xclearn.parts.rows import Gathered


def row_width(dim: int) -> int:
    """Columns of a label row: the vector, its bias, a constant 1, and padding to an aligned width."""
    return aligned(dim + 2)


_Step = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]  # x (n, D) → its gradient, and the loss


class LabelPairs(NamedTuple):
    """Pairs of a document of the batch and a label that are trained together, sorted by label."""

    owner: torch.Tensor  # (m,) position in the batch
    labels: torch.Tensor  # (m,) ascending
    targets: torch.Tensor  # (m,) float32: 1 where the label is relevant

    @classmethod
    def of(cls, shortlist: torch.Tensor, positives: Gathered) -> LabelPairs:
        """Pairs of each document with its shortlist (n, m), padded with −1, and with its positives."""
        n = len(shortlist)
        owner = torch.arange(n, device=shortlist.device)[:, None]
        wanted = positives.columns * n + positives.owner
        keys = torch.cat([(shortlist * n + owner)[shortlist >= 0], wanted]).unique()
        targets = torch.zeros(len(keys), device=keys.device)
        targets[torch.searchsorted(keys, wanted)] = 1
        return cls(keys % n, keys // n, targets)


@final
class RowClassifier(nn.Module):
    """logit_l = w_l · x + b_l + prior, rows starting at zero.

    Under PyTorch's usual initialisation a sum over 100,000 labels collapses to label popularity; zero rows and a prior
    of about −ln(number of labels) start every label near its base rate. The bias is one more column of the row; the
    next column is 1 in every row and never trained, so that the prior enters with the product at no cost of its own.
    The table ends in idle rows that fill up its last block.
    """

    row_state = ("table", "update.first", "update.second", "update.steps")  # by SGD only the table
    table: torch.Tensor
    shadow: torch.Tensor | None
    constants: torch.Tensor

    def __init__(
        self,
        rows: LabelRows,
        dim: int,
        prior: float,
        update: RowUpdate,
        compute: torch.dtype,
        loss: OutputLoss = "bce_sum",
    ) -> None:
        super().__init__()
        self.rows = rows
        self.dim = dim
        self.prior = prior
        self.update = update
        self.compute = compute
        self.loss = loss
        table = torch.zeros(filled_up(len(rows)), row_width(dim))
        table[:, dim + 1] = 1
        self.register_buffer("table", table)  # (rows and idle rows, width) float32
        # Products read a low-precision copy that is refreshed with each update.
        self.register_buffer("shadow", table.to(compute) if compute != torch.float32 else None, persistent=False)
        constants = torch.zeros(table.shape[1] - dim, dtype=compute)
        constants[0], constants[1] = 1, prior
        self.register_buffer("constants", constants, persistent=False)  # factors of a row's last columns

    @property
    def weight(self) -> torch.Tensor:
        """The label rows (rows, width), without idle rows."""
        return self.table[: len(self.rows)]

    def exact_loss(self, x: torch.Tensor, positives: Gathered, *, measure: bool) -> torch.Tensor:
        """Train all rows on a batch `x` (n, D); the gradient is of the mean loss, the value NaN unless measured."""
        return self._trained(x, lambda x: self.step(x, positives, None, measure))

    def sampled_loss(self, x: torch.Tensor, positives: Gathered, labels: torch.Tensor) -> torch.Tensor:
        """Train the rows `labels` (S,), which are ascending and include every positive of the batch."""
        return self._trained(x, lambda x: self.step(x, positives, labels, True))

    def shortlist_loss(self, x: torch.Tensor, pairs: LabelPairs) -> torch.Tensor:
        """Train each document of a batch `x` (n, D) on its own labels only."""
        return self._trained(x, lambda x: self.pair_step(x, pairs))

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
        return self.rows.best(torch.cat(ids, dim=1).gather(1, order), merged, k)

    @torch.no_grad()
    def logits(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Logits (n, m) of each row of `x` (n, D) for its own labels (n, m)."""
        at_once = max(1, PAIRS_AT_ONCE // max(1, labels.shape[1]))
        parts = zip(self._augment(x).float().split(at_once), self.rows.places(labels).split(at_once), strict=True)
        scores = torch.cat([(self.table[own] @ inputs[:, :, None])[:, :, 0] for inputs, own in parts])
        return self.rows.scores(scores, labels)

    @torch.no_grad()
    def forward(self, x: torch.Tensor, owner: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Logits (m,) of pairs of a row of `x` (n, D) and a label (m,)."""
        pairs = self._augment(x), self._rows(slice(None)), owner, self.rows.places(labels)
        # on a GPU `pair_scores` would round the scores to the inputs' half precision
        scores = pair_scores(*pairs) if x.device.type == "cpu" else products(*pairs).scores()
        return self.rows.scores(scores, labels)

    def served(self, vector: str) -> components.Classifier:
        """The rows of all processes, gathered in the first."""
        weight, bias = self.rows.of_all(self.weight[:, : self.dim]), self.rows.of_all(self.weight[:, self.dim])
        return components.Classifier(vector, weight.numpy(), (bias + self.prior).numpy())

    def step(
        self, x: torch.Tensor, positives: Gathered, labels: torch.Tensor | None, measure: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Update rows; returns the gradient of the mean loss with respect to `x` (n, D), and the mean loss."""
        inputs = self._augment(x)  # (n, width)
        if labels is not None:
            loss, gradient = self._update_drawn(inputs, positives, labels, measure)
        else:
            loss, gradient = self._update_all(inputs, positives, measure)
        return gradient[:, : self.dim].to(x.dtype) / len(x), loss / len(x)

    def _trained(self, x: torch.Tensor, step: _Step) -> torch.Tensor:
        """The loss and the gradient of `x` from `step`, of which every process computes its own labels' share."""
        loss: torch.Tensor = _Fused.apply(x, lambda x: self.rows.ranks.sum(*step(x)))
        return loss

    def _update_drawn(
        self, inputs: torch.Tensor, positives: Gathered, labels: torch.Tensor, measure: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Like `_update_all`, for those of the rows `labels` (S,) that this process holds."""
        here = self.rows.among(labels)
        if here.start == here.stop:
            return inputs.new_zeros(()), torch.zeros_like(inputs)
        columns = torch.searchsorted(labels, positives.columns) - here.start
        return self._update(
            inputs, labels[here] - self.rows.start, positives.owner, columns, measure, n_scored=len(labels)
        )

    def _update_all(
        self, inputs: torch.Tensor, positives: Gathered, measure: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Train all rows in blocks; returns the summed loss and the gradient of the inputs (n, width)."""
        parts = []
        for begin, end in blocks(len(self.table), len(inputs), inputs.device.type):
            rows = slice(begin, end)
            columns = positives.columns - (begin + self.rows.start)
            parts.append(self._update(inputs, rows, positives.owner, columns, measure, n_scored=self.rows.n_labels))
        if len(parts) == 1:
            return parts[0]
        losses, gradients = (torch.stack(part) for part in zip(*parts, strict=True))
        return losses.sum(), gradients.sum(dim=0, dtype=torch.float32)

    def pair_step(self, x: torch.Tensor, pairs: LabelPairs) -> tuple[torch.Tensor, torch.Tensor]:
        """Like `step`, for pairs; by the native core on a CPU."""
        scale = len(x) / max(1, len(pairs.labels)) if self.loss == "bce_mean" else 1.0
        here = self.rows.among(pairs.labels)
        if here.start == here.stop:
            return torch.zeros_like(x), x.new_zeros(())
        pairs = LabelPairs(*(part[here] for part in pairs))
        if x.device.type == "cpu" and self.compute == torch.float32:
            return self._native_pair_step(x, pairs, scale)
        return self._torch_pair_step(x, pairs, scale)

    def _torch_pair_step(self, x: torch.Tensor, pairs: LabelPairs, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
        inputs = self._augment(x)  # (n, width)
        labels, place = pairs.labels.unique_consecutive(return_inverse=True)
        rows = self._rows(labels - self.rows.start)  # (S, width)
        of_pairs = products(inputs, rows, pairs.owner, place)
        error, loss = pair_gradient(of_pairs.scores(), pairs.targets, self.loss == "squared_hinge")
        gradient, change = of_pairs.gradients(error * scale)
        self._change(labels - self.rows.start, change)
        return gradient[:, : self.dim].to(x.dtype) / len(x), loss * scale / len(x)

    def _native_pair_step(self, x: torch.Tensor, pairs: LabelPairs, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
        loss, gradient = train_pairs(
            self._augment(x).detach().numpy(),
            self.table.numpy(),
            shortlist.RowPairs(pairs.owner.numpy(), (pairs.labels - self.rows.start).numpy()),
            pairs.targets.numpy(),
            self.update.rule(),
            PairLoss(self.loss == "squared_hinge", scale),
            fixed=self.dim + 1,
            n_threads=torch.get_num_threads(),
        )
        return torch.from_numpy(gradient)[:, : self.dim] / len(x), torch.tensor(loss / len(x))

    def _update(
        self,
        inputs: torch.Tensor,
        rows: slice | torch.Tensor,
        owner: torch.Tensor,
        columns: torch.Tensor,
        measure: bool,
        *,
        n_scored: int,  # labels scored in the step, over all processes
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Train one block of rows; returns its summed loss and its share of the gradient of the inputs (n, width)."""
        weight = self._rows(rows)  # (C, width)
        n_labels = len(self.rows) - rows.start if isinstance(rows, slice) else len(weight)
        scores, loss = block_gradient(
            inputs, weight, owner, columns, measure, n_outputs=n_labels, hinge=self.loss == "squared_hinge"
        )  # (n, C)
        if self.loss == "bce_mean":
            scores, loss = scores.div_(n_scored), loss / n_scored
        gradient = scores @ weight
        if isinstance(rows, slice):
            rows = slice(rows.start, min(rows.stop, len(self.rows)))
        self._change(rows, (scores.T @ inputs)[:n_labels])
        return loss, gradient

    def _change(self, rows: slice | torch.Tensor, gradient: torch.Tensor) -> None:
        constant = self.dim + 1
        if isinstance(rows, slice):
            self.update.descend(self.weight, self.shadow, rows, gradient, constant)
            return
        gradient[:, constant] = 0
        self.update.apply_(self.weight, rows, gradient)
        if self.shadow is not None:
            self.shadow[rows] = self.weight[rows].to(self.compute)

    def _rows(self, rows: slice | torch.Tensor) -> torch.Tensor:
        return self.table[rows] if self.shadow is None else self.shadow[rows]

    def _augment(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x.to(self.compute), self.constants.expand(len(x), -1)], dim=1)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        """Leave out idle rows, as their number depends on the number of processes."""
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[f"{prefix}table"] = self.weight

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *args: Any) -> None:
        state[f"{prefix}table"] = torch.cat([state[f"{prefix}table"][: len(self.rows)], self.table[len(self.rows) :]])
        super()._load_from_state_dict(state, prefix, *args)
        if self.shadow is not None:
            self.shadow.copy_(self.table)


class _Fused(torch.autograd.Function):
    """Rows are updated in the forward pass, where their scores are; backward only returns the gradient of x."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, step: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]) -> Any:
        gradient, loss = step(x)
        ctx.save_for_backward(gradient)
        return loss

    @staticmethod
    def backward(ctx: Any, *outer: Any) -> Any:
        (gradient,) = ctx.saved_tensors
        return outer[0] * gradient, None
