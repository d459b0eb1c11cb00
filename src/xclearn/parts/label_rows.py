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
