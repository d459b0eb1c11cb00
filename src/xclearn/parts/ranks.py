"""Communication between the processes that share a training run; a single process communicates with nobody.

All processes take part in every exchange, at the same point of the run. Knows nothing about labels or stages, or how
the processes were started.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, final

import numpy as np

from xclearn.errors import ProcessError, XclearnError

if TYPE_CHECKING:
    import torch

T = TypeVar("T")


@final
@dataclass(frozen=True)
class Ranks:
    """Process `rank` of `count`, `n_here` of which are on this machine."""

    rank: int = 0
    count: int = 1
    n_here: int = 1

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def sum(self, *parts: torch.Tensor) -> list[torch.Tensor]:
        """The sum of each part over processes, in float32, in a single exchange."""
        if self.count == 1 or not parts:
            return list(parts)
        import torch
        from torch import distributed

        flat = torch.cat([part.detach().float().reshape(-1) for part in parts])
        with self._exchange():
            distributed.all_reduce(flat)
        return [
            one.reshape(part.shape)
            for one, part in zip(flat.split([part.numel() for part in parts]), parts, strict=True)
        ]

    def beside(self, part: torch.Tensor) -> torch.Tensor:
        """The parts (n, m) of all processes, of equal shape, concatenated by column: (n, count · m)."""
        if self.count == 1:
            return part
        import torch
        from torch import distributed

        parts = [torch.empty_like(part) for _ in range(self.count)]
        with self._exchange():
            distributed.all_gather(parts, part.contiguous())
        return torch.cat(parts, dim=1)

    def joined(self, *parts: torch.Tensor) -> list[torch.Tensor]:
        """Of each part (m, …) the rows of all processes, one after another; m may differ from process to process."""
        if self.count == 1:
            return list(parts)
        import torch
        from torch import distributed

        lengths = self.beside(torch.tensor([[len(parts[0])]], device=parts[0].device))[0].tolist()
        found = []
        with self._exchange():
            for part in parts:
                filled = part.new_zeros(max(lengths), *part.shape[1:])  # a gather wants shapes that are equal
                filled[: len(part)] = part.detach()
                rows = [torch.empty_like(filled) for _ in lengths]
                distributed.all_gather(rows, filled)
                found.append(torch.cat([own[:length] for own, length in zip(rows, lengths, strict=True)]))
        return found

    def below(self, part: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
        """The rows of all processes, concatenated in the first process; empty (0, …) in the others."""
        import torch
        from torch import distributed

        part = part.detach().cpu().contiguous()
        if self.count == 1:
            return part
        with self._exchange():
            if not self.is_first:
                distributed.send(part, dst=0)
                return part[:0]
            whole = torch.empty(sum(lengths), *part.shape[1:], dtype=part.dtype)
            pieces = whole.split(list(lengths))
            pieces[0].copy_(part)
            for rank in range(1, self.count):
                distributed.recv(pieces[rank], src=rank)
        return whole

    def deal(self, whole: np.ndarray | None, own: np.ndarray, lengths: Sequence[int]) -> None:
        """Scatter the rows of `whole`, held by the first process, into each process's `own`."""
        from torch import distributed

        with self._exchange():
            if whole is None:
                distributed.recv(_bytes(own), src=0)
                return
            ends = np.cumsum([0, *lengths])
            own[:] = whole[: ends[1]]
            for rank in range(1, self.count):
                distributed.send(_bytes(whole[ends[rank] : ends[rank + 1]]), dst=rank)

    def copy(self, array: np.ndarray) -> None:
        """Overwrite an array with the first process's values."""
        self.as_first([_bytes(array)])

    def as_first(self, values: Sequence[torch.Tensor]) -> None:
        """Overwrite these tensors with the first process's values."""
        if self.count == 1:
            return
        from torch import distributed

        with self._exchange():
            for value in values:
                distributed.broadcast(value, src=0)

    def by_first(self, decide: Callable[[], T]) -> T:
        """The first process's result. If it fails, all processes end and the error is reported once."""
        if self.count == 1:
            return decide()
        import torch
        from torch import distributed

        said: list[object] = [None, False]
        error: XclearnError | None = None
        if self.is_first:
            try:
                said = [decide(), False]
            except XclearnError as mistake:
                said, error = [None, True], mistake
        with self._exchange():
            distributed.broadcast_object_list(said, src=0, device=torch.device("cpu"))
        if error is not None:
            raise error
        if said[1]:
            sys.exit(2)
        return said[0]  # type: ignore[return-value]  # what `decide` gave in the first process

    @contextlib.contextmanager
    def _exchange(self) -> Iterator[None]:
        """Turn a broken connection to another process into a `ProcessError`."""
        try:
            yield
        except RuntimeError as error:
            raise ProcessError(
                "another process of the training job has ended or cannot be reached",
                where=f"process {self.rank} of {self.count}",
                todo="Read its output, then run the same command again with --resume.",
            ) from error


ALONE = Ranks()


def _bytes(array: np.ndarray) -> torch.Tensor:
    """A view of a contiguous array that every backend can send."""
    import torch

    return torch.from_numpy(array.reshape(-1).view(np.uint8))


def here() -> Ranks:
    """The processes of `torch.distributed` if it is initialised (`training/sharding.py`), else this one alone."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not (distributed.is_available() and distributed.is_initialized()):
        return ALONE
    import os

    count = distributed.get_world_size()
    return Ranks(distributed.get_rank(), count, int(os.environ.get("LOCAL_WORLD_SIZE", count)))
