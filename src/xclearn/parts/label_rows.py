"""Which label rows this process holds, and which the other processes of a run. A single process holds all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from xclearn.parts.ranks import ALONE, Ranks

if TYPE_CHECKING:
    import torch


@final
@dataclass(frozen=True)
class LabelRows:
    """Labels `start` … `stop − 1` of the one label order; other processes hold the rest of the `total`."""

    start: int
    stop: int
    ranks: Ranks = ALONE
    total: int | None = None  # labels of all processes; None: this process has all

    @classmethod
    def of(cls, n_labels: int, ranks: Ranks) -> LabelRows:
        """This process's share of the labels; shares differ by at most one label."""
        return cls(*_share(n_labels, ranks.rank, ranks.count), ranks, n_labels)

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def n_labels(self) -> int:
        """The number of labels of all processes."""
        return len(self) if self.total is None else self.total

    @property
    def lengths(self) -> list[int]:
        """The number of rows of each process."""
        shares = (_share(self.n_labels, rank, self.ranks.count) for rank in range(self.ranks.count))
        return [stop - start for start, stop in shares]

    @property
    def others(self) -> tuple[int, int]:
        """How many labels before and after these are with other processes."""
        return self.start, self.n_labels - self.stop

    def part(self, labels: torch.Tensor) -> LabelRows:
        """Which places of `labels` (m,), ascending, this process holds, as if these were all labels."""
        here = self.among(labels)
        return LabelRows(here.start, here.stop, self.ranks, len(labels))

    def among(self, labels: torch.Tensor) -> slice:
        """The slice of `labels` (m,), ascending, that this process holds."""
        if self.ranks.count == 1:
            return slice(0, len(labels))
        import torch

        ends = torch.tensor([self.start, self.stop], device=labels.device)
        first, last = torch.searchsorted(labels, ends).tolist()
        return slice(first, last)

    def places(self, labels: torch.Tensor) -> torch.Tensor:
        """The local row of each of `labels`; an arbitrary row for labels of other processes."""
        places = labels - self.start
        return places if self.ranks.count == 1 else places.clamp(0, len(self) - 1)

    def loss(self, part: torch.Tensor) -> torch.Tensor:
        """The sum over processes of their parts of a loss; the gradient is that of this part."""
        return part if self.ranks.count == 1 else part + (self.ranks.sum(part)[0] - part.detach())

    def scores(self, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Combine the scores of `labels` that each process computed for its `places`."""
        if self.ranks.count == 1:
            return scores
        return self.ranks.sum(scores.masked_fill((labels < self.start) | (labels >= self.stop), 0))[0]

    def spread(self, part: torch.Tensor) -> torch.Tensor:
        """The standard deviation of all values in the rows (rows, m) of all processes."""
        if self.ranks.count == 1:
            return part.std()
        n_values = self.n_labels * part.shape[1]
        mean = self.ranks.sum(part.sum())[0] / n_values
        return (self.ranks.sum((part - mean).square().sum())[0] / (n_values - 1)).sqrt()

    def of_all(self, part: torch.Tensor) -> torch.Tensor:
        """The rows (L, …) of all processes, gathered in the first; empty in the others."""
        return self.ranks.below(part, self.lengths)

    def best(self, ids: torch.Tensor, scores: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Merge the best labels of each process (n, ≤ k) into the k best of all (n, k)."""
        if self.ranks.count == 1:
            return ids, scores
        import torch
        from torch.nn.functional import pad

        missing = (0, min(k, max(self.lengths)) - ids.shape[1])  # processes may differ by one label
        ids = pad(ids, missing, value=-1)
        scores = pad(scores, missing, value=-torch.inf)
        ids, scores = self.ranks.beside(ids), self.ranks.beside(scores)
        found, order = scores.topk(min(k, self.n_labels), dim=1)
        return ids.gather(1, order), found


def _share(n_labels: int, rank: int, count: int) -> tuple[int, int]:
    return n_labels * rank // count, n_labels * (rank + 1) // count
