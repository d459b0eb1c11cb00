"""The decoupled softmax: each relevant label of a document against all irrelevant labels.

From Gupta et al., "Dual-Encoders for Extreme Multi-Label Classification" (ICLR 2024). Relevant labels do not compete
with each other, as they do in a softmax over all labels. Knows nothing about encoders or where labels come from.
"""

from __future__ import annotations

from typing import Any, NamedTuple, final

import torch

from xclearn.parts.label_rows import LabelRows

_LOWEST = -1e4  # log of an empty sum
_SCORES_AT_ONCE = {"cpu": 1 << 25, "cuda": 1 << 29}  # beyond this, scores are recomputed instead of stored


@final
class Relevant(NamedTuple):
    """The labels (C,) of a step that are relevant to its documents (n,)."""

    drawn: torch.Tensor  # (n, P) columns of sampled relevant labels; each is a term of the loss
    owner: torch.Tensor  # (m,) document of every relevant pair among the columns
    columns: torch.Tensor  # (m,) column of every relevant pair, excluded from the negatives

    def here(self, rows: LabelRows) -> Relevant:
        """The same with columns counted from the first of this process's."""
        return Relevant(self.drawn - rows.start, self.owner, self.columns - rows.start)


def decoupled_softmax(
    documents: torch.Tensor,
    labels: torch.Tensor,
    relevant: Relevant,
    scale: float,
    *,
    compute: torch.dtype,
    rows: LabelRows | None = None,
) -> torch.Tensor:
    """Mean of log(1 + Σ exp(s⁻ − s⁺)), s = `scale` · x · w; differentiable in `documents` (n, D), `labels` (C, D).

    The sum is over labels irrelevant to the document, the mean over documents and sampled labels. Of several processes
    each passes its `rows` of the labels; all get the loss over all, and the gradient of `documents` from their own.
    """
    rows = LabelRows(0, len(labels)) if rows is None else rows
    loss: torch.Tensor = _DecoupledSoftmax.apply(documents, labels, relevant.here(rows), scale, compute, rows)
    return loss


class _DecoupledSoftmax(torch.autograd.Function):
    """Gradients are computed in the forward pass, where the scores are, in blocks of labels, so that C may be all."""

    @staticmethod
    def forward(
        ctx: Any,
        documents: torch.Tensor,
        labels: torch.Tensor,
        relevant: Relevant,
        scale: float,
        compute: torch.dtype,
        rows: LabelRows,
    ) -> torch.Tensor:
        x = documents.detach().to(compute) * scale
        w = labels.detach().to(compute)
        blocks = _blocks(len(x), len(w), x.device.type)
        kept = _scores(x, w, relevant, *blocks[0]) if len(blocks) == 1 else None
        parts = [_scores(x, w, relevant, *block).logsumexp(dim=1) for block in blocks] if kept is None else []
        total = _joined(parts, x) if kept is None else kept.logsumexp(dim=1)
        total, own = _of_all(total, _own_scores(x, w, relevant.drawn), rows)  # (n,), (n, P)
        total = total.clamp(min=_LOWEST)
        wrong = (total[:, None] - own).sigmoid()  # (n, P) derivative of each term with respect to `total`
        terms = torch.nn.functional.softplus(total[:, None] - own).mean(dim=1)
        pull = wrong / wrong.numel()
        share = pull.sum(dim=1, keepdim=True)  # (n, 1)
        to_x, to_w = torch.zeros_like(documents), torch.empty_like(labels)
        for begin, end in blocks:
            scores = _scores(x, w, relevant, begin, end) if kept is None else kept
            gradient = scores.sub_(total[:, None]).exp_().mul_(share)  # (n, C)
            inside = (relevant.drawn >= begin) & (relevant.drawn < end)
            gradient.scatter_add_(1, (relevant.drawn - begin).clamp(0, end - begin - 1), -pull * inside)
            gradient = gradient.to(compute)
            to_x += (gradient @ w[begin:end]).to(to_x.dtype) * scale
            to_w[begin:end] = gradient.T @ x
        ctx.save_for_backward(to_x, to_w)
        return terms.mean()

    @staticmethod
    def backward(ctx: Any, *outer: Any) -> Any:
        return *(outer[0] * gradient for gradient in ctx.saved_tensors), None, None, None, None


def _joined(parts: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """The logarithm of the sum (n,) of what some blocks come to; of none −∞."""
    return torch.stack(parts).logsumexp(dim=0) if parts else x.new_full((len(x),), -torch.inf, dtype=torch.float32)


def _own_scores(x: torch.Tensor, w: torch.Tensor, drawn: torch.Tensor) -> torch.Tensor:
    """Of the drawn labels (n, P), zero where one is with another process."""
    if not len(w):
        return drawn.new_zeros(drawn.shape, dtype=torch.float32)
    scores = (x[:, None, :] * w[drawn.clamp(0, len(w) - 1)]).sum(dim=2, dtype=torch.float32)
    return scores * ((drawn >= 0) & (drawn < len(w)))


def _of_all(total: torch.Tensor, own: torch.Tensor, rows: LabelRows) -> tuple[torch.Tensor, torch.Tensor]:
    """The sums (n,), as logarithms, and the scores of drawn labels (n, P) over all processes: one exchange."""
    if rows.ranks.count == 1:
        return total, own
    parts = rows.ranks.beside(torch.cat([total[:, None], own], dim=1)).unflatten(1, (rows.ranks.count, -1))
    return parts[:, :, 0].logsumexp(dim=1), parts[:, :, 1:].sum(dim=1)


def _blocks(n_documents: int, n_labels: int, device: str) -> list[tuple[int, int]]:
    size = max(1, _SCORES_AT_ONCE[device] // max(1, n_documents))
    return [(begin, min(begin + size, n_labels)) for begin in range(0, n_labels, size)]


def _scores(x: torch.Tensor, w: torch.Tensor, relevant: Relevant, begin: int, end: int) -> torch.Tensor:
    """Scores (n, C) float32 of the labels `begin` … `end` − 1, −∞ for relevant ones."""
    scores = (x @ w[begin:end].T).float()
    inside = (relevant.columns >= begin) & (relevant.columns < end)
    scores[relevant.owner[inside], relevant.columns[inside] - begin] = -torch.inf
    return scores
