"""Which label rows this process holds, and which the other processes of the run. Alone, it holds all."""

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
    total: int | None = None  # labels of all processes; none: as many as here

    @classmethod
    def of(cls, n_labels: int, ranks: Ranks) -> LabelRows:
        """This process's share of the labels: each has as many as any other, or one more."""
        return cls(*_share(n_labels, ranks.rank, ranks.count), ranks, n_labels)

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def n_labels(self) -> int:
        """Of all processes."""
        return len(self) if self.total is None else self.total

    @property
    def lengths(self) -> list[int]:
        """Rows of each process."""
        shares = (_share(self.n_labels, rank, self.ranks.count) for rank in range(self.ranks.count))
        return [stop - start for start, stop in shares]

    def among(self, labels: torch.Tensor) -> slice:
        """Which of `labels` (m,), ascending, this process holds."""
        if self.ranks.count == 1:
            return slice(0, len(labels))
        import torch

        ends = torch.tensor([self.start, self.stop], device=labels.device)
        first, last = torch.searchsorted(labels, ends).tolist()
        return slice(first, last)

    def places(self, labels: torch.Tensor) -> torch.Tensor:
        """Where the rows of `labels` stand here; for a label of another process, some row."""
        places = labels - self.start
        return places if self.ranks.count == 1 else places.clamp(0, len(self) - 1)

    def scores(self, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Scores of `labels` of all processes, of those made here by `places`."""
        if self.ranks.count == 1:
            return scores
        return self.ranks.sum(scores.masked_fill((labels < self.start) | (labels >= self.stop), 0))[0]

    def of_all(self, part: torch.Tensor) -> torch.Tensor:
        """The rows (L, …) of all processes, in the first; elsewhere nothing."""
        return self.ranks.below(part, self.lengths)

    def best(self, ids: torch.Tensor, scores: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The k best of all processes' labels (n, k), of the best that each found among its own (n, ≤ k)."""
        if self.ranks.count == 1:
            return ids, scores
        import torch
        from torch.nn.functional import pad

        missing = (0, min(k, max(self.lengths)) - ids.shape[1])  # processes hold one label more or less
        ids = pad(ids, missing, value=-1)
        scores = pad(scores, missing, value=-torch.inf)
        ids, scores = self.ranks.beside(ids), self.ranks.beside(scores)
        found, order = scores.topk(min(k, self.n_labels), dim=1)
        return ids.gather(1, order), found


def _share(n_labels: int, rank: int, count: int) -> tuple[int, int]:
    return n_labels * rank // count, n_labels * (rank + 1) // count
