"""Which members, and how much is held out: by the data's shape, the device and the minutes there are.

Everything is arithmetic on counts and on the members' own plans, so that a run repeats; the clock is never read.
"""

from __future__ import annotations

from typing import Any

from xclearn import algorithms, config
from xclearn.data.splits import FEWEST
from xclearn.extras import is_installed
from xclearn.training.prepare import Size
from xclearn.training.unread import with_own_epochs

_SPEED = {"cpu": 45e9, "cuda": 5e12}  # operations a second: two cores as measured, a GPU by what was measured elsewhere
_MOST_HELD = 5_000  # documents that a stacker learns on at most
_ENOUGH = 3_000  # documents that it should have
_SMALL, _TENTH, _FIFTH = 10_000, 0.1, 0.2  # documents below which a fold holds out a fifth of train, else a tenth
_MOST_FOLDS = 5
_ALONE = "sparse_one_vs_all"  # where there are too few documents to hold some out
_FEWEST_EPOCHS = 4  # of a member's longest stage: with fewer the member is left out

# Members in the order in which time is spent on them, with the data that they need: label text, or none.
_LINEAR = ("label_tree", "sparse_one_vs_all")  # they need no torch
_WITH_TEXT = ("label_tree", "dual_encoder", "decaf", "sparse_one_vs_all")
_WITHOUT_TEXT = ("label_tree", "sparse_one_vs_all", "lightdxml")
_NOT_YET_MEASURED = {"cuda": ("dual_encoder",), "cpu": ()}  # left out by default until it has been measured there


def usual_members(size: Size, device: str, minutes: float, rounds: int) -> tuple[str, ...]:
    """The members that fit into the time, each trained `rounds` times; those with epochs may get fewer."""
    if size.n_documents < FEWEST:
        return (_ALONE,)
    left = 60 * minutes / rounds  # seconds
    chosen: list[str] = []
    for name in _WITH_TEXT if size.n_label_entries else _WITHOUT_TEXT:
        if name in _NOT_YET_MEASURED[device] or (name not in _LINEAR and not is_installed("torch")):
            continue
        wanted, seconds = _within(name, size, device, left)
        if wanted is not None or not chosen:  # the first is always there
            chosen.append(wanted or name)
            left -= seconds
    return tuple(chosen)


def _within(name: str, size: Size, device: str, left: float) -> tuple[str | None, float]:
    """A member that takes at most the seconds that are left, and what it takes; None where there is none."""
    resolved = _resolved(name, {}, size, device)
    seconds = _seconds(resolved, size, device)
    if seconds <= left:
        return name, seconds
    epochs = {key: getattr(resolved, key) for key in config_epochs(type(resolved)) if getattr(resolved, key)}
    fewer = {key: max(1, int(value * left / seconds)) for key, value in epochs.items()}
    if not fewer or max(fewer.values()) < _FEWEST_EPOCHS or name in _LINEAR:
        return None, 0.0
    seconds = _seconds(_resolved(name, fewer, size, device), size, device)
    return " ".join([name, *(f"{key}={value}" for key, value in fewer.items())]), seconds


def _resolved(name: str, settings: dict[str, Any], size: Size, device: str) -> Any:
    return with_own_epochs(config.build(algorithms.find(name), settings, name), size, device)._resolve(size, device)


def _seconds(algorithm: Any, size: Size, device: str) -> float:
    """By the plan; linear members are trained on the CPU, wherever the others are."""
    plan = algorithm._plan(size, device)
    operations = sum(stage.flops_per_epoch * stage.epochs for stage in plan.stages)
    return float(operations / _SPEED["cpu" if algorithm.name in _LINEAR else device])


def config_epochs(cls: type) -> list[str]:
    """The fields that say how many epochs a stage has."""
    return [
        setting.name for setting in config.describe(cls) if "." not in setting.name and setting.name.endswith("epochs")
    ]


def usual_cut(size: Size, folds: int | None = None) -> tuple[int, int]:
    """Folds (by the size where None is given), and documents held out in all; a dev split takes their place."""
    if size.n_dev:
        return 1, size.n_dev
    n = size.n_documents
    in_fold = min(_MOST_HELD, int(n * (_FIFTH if n < _SMALL else _TENTH)))
    if folds is None:
        folds = min(_MOST_FOLDS, -(-_ENOUGH // max(1, in_fold)))
    return folds, min(n, folds * max(1, in_fold))
