"""Which label rows this process holds. Sharding labels over ranks changes this object and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class LabelRows:
    """Labels `start` … `stop − 1` of the one label order."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def chunks(self, size: int) -> list[tuple[int, int]]:
        """Local row ranges (begin, end) of at most `size` rows that cover all rows."""
        return [(begin, min(begin + size, len(self))) for begin in range(0, len(self), size)]
