"""Distributed training over the processes of torchrun: each holds a share of the label rows and their state.

Every process reads the data and encodes each whole batch; its labels' share of the loss, and of the gradients of what
all processes have, is summed over them. So all encoders stay equal, and the result is that of one process up to the
order of sums. Only the first process writes checkpoint, log and model. A checkpoint holds the rows of all labels in
order, so any number of processes can resume from it. Knows nothing about algorithms.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from xclearn.errors import ConfigError, ModelError, ProcessError
from xclearn.parts.label_rows import LabelRows
from xclearn.parts.ranks import ALONE, Ranks, here

if TYPE_CHECKING:
    import torch
    from torch import nn

Kept = tuple[dict[str, np.ndarray], dict[str, Any]]  # arrays, and facts


@contextlib.contextmanager
def job() -> Iterator[Ranks]:
    """Join the processes of torchrun; without it, this process is alone."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield ALONE
        return
    import torch
    from torch import distributed

    gpu = torch.cuda.is_available()
    if gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    distributed.init_process_group("cpu:gloo,cuda:nccl" if gpu else "gloo")
    before = signal.signal(signal.SIGTERM, _told_to_end)  # sent by torchrun if another process died
    try:
        yield here()
    finally:
        signal.signal(signal.SIGTERM, before)
        distributed.destroy_process_group()


def _told_to_end(*_: object) -> NoReturn:
    rank = f"process {os.environ['RANK']} of {os.environ['WORLD_SIZE']}"
    what = "terminated, because the job was or another of its processes died"
    raise ProcessError(what, where=rank, todo="Run the same command again with --resume.")


def require_alone_or(shares_rows: bool, algorithm: str) -> None:
    """Raise if there are several processes and the algorithm cannot share its label rows."""
    ranks = here()

    def refuse() -> None:
        if ranks.count > 1 and not shares_rows:
            what = "its label rows cannot be shared by processes"
            todo = "Run `xc train` without torchrun, or train one_vs_all."
            raise ConfigError(what, where=algorithm, got=f"{ranks.count} processes", todo=todo)

    ranks.by_first(refuse)


def kept_rows(module: nn.Module) -> dict[str, LabelRows]:
    """The names with one row per label in a checkpoint of the module and of its best epoch."""
    rows = _rows(module).items()
    return {f"{kept}.{name}": of_labels for kept in ("module", "best") for name, of_labels in rows}


def make_equal(ranks: Ranks, module: nn.Module, optimisers: Sequence[torch.optim.Optimizer]) -> None:
    """Copy the first process's encoder and optimiser to all, as GPU results drift apart."""
    if ranks.count == 1:
        return
    own = _rows(module)
    ranks.as_first([value for name, value in module.state_dict().items() if name not in own])
    ranks.as_first([value for each in optimisers for state in each.state.values() for value in state.values()])


def add_up(ranks: Ranks, parameters: Sequence[nn.Parameter]) -> None:
    """Make gradients of which each process has a part those of the whole loss, alike in all processes."""
    if ranks.count == 1:
        return
    import torch

    own = {each: each.grad for each in parameters if each.grad is not None}
    dense = [each for each, gradient in own.items() if not gradient.is_sparse]
    for each, total in zip(dense, ranks.sum(*(own[each] for each in dense)), strict=True):
        each.grad = total
    for each, gradient in own.items():
        if gradient.is_sparse:  # each row as often as there are processes whose batch touched it
            rows, values = ranks.joined(gradient._indices()[0], gradient._values())
            each.grad = torch.sparse_coo_tensor(rows[None], values, each.shape, check_invariants=False)


def _rows(module: nn.Module) -> dict[str, LabelRows]:
    """The names in a module's state with one row per label of this process."""
    return {
        f"{name}.{state}".lstrip("."): part.rows
        for name, part in module.named_modules()
        if isinstance(getattr(part, "rows", None), LabelRows)
        for state in part.row_state
    }


def handed_out(ranks: Ranks, read: Callable[[], Kept | None], rows: Mapping[str, LabelRows]) -> Kept | None:
    """Distribute what the first process reads; of arrays with one row per label, each process gets its own rows."""
    if ranks.count == 1:
        return read()
    found: Kept | None = None

    def outline() -> tuple[dict[str, Any], dict[str, Any]] | None:
        nonlocal found
        found = read()
        if found is None:
            return None
        arrays, facts = found
        for name, of_labels in rows.items():
            if name in arrays and len(arrays[name]) < of_labels.n_labels:
                raise ModelError("the checkpoint does not fit the stage", where=name, got=arrays[name].shape)
        return {name: (array.dtype.str, array.shape) for name, array in arrays.items()}, facts

    said = ranks.by_first(outline)
    if said is None:
        return None
    outlines, facts = said
    arrays = {}
    for name, (kind, shape) in outlines.items():
        if name in rows:
            arrays[name] = np.empty((len(rows[name]), *shape[1:]), kind)
            ranks.deal(None if found is None else found[0][name], arrays[name], rows[name].lengths)
        else:
            arrays[name] = np.empty(shape, kind) if found is None else found[0][name]
            ranks.copy(arrays[name])
    return arrays, facts
