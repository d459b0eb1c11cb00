"""Chooses members and the size of the hold-out by the data, the device and the time budget.

All of it is arithmetic on counts and the members' plans, so that runs are reproducible; no clock is read.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from xclearn import algorithms, config
from xclearn.data.splits import FEWEST
from xclearn.extras import is_installed
from xclearn.text.encoder_folders import has_weights
from xclearn.training.plan import REFERENCE, Plan
from xclearn.training.prepare import Size
from xclearn.training.unread import with_own_epochs

_MOST_HELD = 5_000  # maximum documents to train a stacker
_ENOUGH = 3_000  # documents that a stacker should have
_SMALL, _TENTH, _FIFTH = 10_000, 0.1, 0.2  # sets below this size hold out a fifth per fold, others a tenth
_MOST_FOLDS = 5
_ALONE = "sparse_one_vs_all"  # the only member if there are too few documents to hold some out
_FEWEST_EPOCHS = 4  # of a member's longest stage; a member with fewer is left out

# Members by priority for the time budget, with the data that they need: label text, or none.
_LINEAR = ("label_tree", "sparse_one_vs_all")  # need no torch
_TREE = "label_tree"  # also reads runs of characters if that takes a small share of the time
_PARTS = "vectoriser.kind=subwords vectoriser.shortest_part=4"
_PARTS_SHARE = 0.3
_PRETRAINED = "pretrained"  # a dual encoder over a pretrained transformer
_WITH_TEXT = {
    "cpu": (_TREE, "dual_encoder", "sparse_one_vs_all", "decaf"),
    "cuda": (_TREE, _PRETRAINED, "dual_encoder", "decaf", "elias", "lightdxml", "sparse_one_vs_all"),
}
_WITHOUT_TEXT = {
    "cpu": (_TREE, "sparse_one_vs_all", "lightdxml", "one_vs_all"),
    "cuda": (_TREE, "sparse_one_vs_all", "lightdxml", "elias", "one_vs_all"),
}
_WORDS_TO_TOKENS = 1.6  # transformer tokens per distinct word of a text
_SHORTEST, _LONGEST = 32, 256  # range of max_length for a transformer


def usual_members(size: Size, device: str, minutes: float, rounds: int, encoder: str | None = None) -> tuple[str, ...]:
    """The members that fit into the time budget when trained `rounds` times, perhaps with fewer epochs."""
    if size.n_documents < FEWEST:
        return (_ALONE,)
    left = 60 * minutes / rounds  # seconds
    chosen: list[str] = []
    for name in (_WITH_TEXT if size.n_label_entries else _WITHOUT_TEXT)[device]:
        if name not in _LINEAR and not is_installed("torch"):
            continue
        if name == "decaf" and size.n_documents < _SMALL and any(each.startswith("dual_encoder") for each in chosen):
            continue  # on small sets it takes most of the time and adds nothing to these
        member: str | None = name
        if name == _PRETRAINED:
            member = _pretrained(size, encoder)
        elif name == _TREE:
            member = _tree(size, device, left)
        if member is None:
            continue
        wanted, seconds = _within(member, size, device, left)
        if wanted is not None or not chosen:  # the first member is always used
            chosen.append(wanted or member)
            left -= seconds
    return tuple(chosen)


def _tree(size: Size, device: str, left: float) -> str:
    """Over words and runs of their characters, which finds inflected and unseen words, unless that takes too long."""
    with_parts = f"{_TREE} {_PARTS}"
    if size.of_texts and _within(with_parts, size, device, _PARTS_SHARE * left)[0] is not None:
        return with_parts
    return _TREE


def _pretrained(size: Size, encoder: str | None) -> str | None:
    """A dual encoder over this pretrained encoder; None without texts or without weights on this machine."""
    if encoder is None or not size.of_texts or not is_installed("transformers") or not has_weights(encoder):
        return None
    words = size.n_feature_entries / size.n_documents
    tokens = _SHORTEST
    while tokens < _LONGEST and tokens < _WORDS_TO_TOKENS * words:
        tokens *= 2
    folder = shlex.quote(f"vectoriser.folder={encoder}")
    return f"dual_encoder vectoriser.kind=pretrained {folder} vectoriser.max_length={tokens}"


def _within(member: str, size: Size, device: str, left: float) -> tuple[str | None, float]:
    """The member with as many epochs as fit into the seconds left, and its time; None if too few fit."""
    name, *assignments = shlex.split(member)
    resolved = _resolved(name, assignments, size, device)
    seconds = _seconds(resolved, size, device)
    if seconds <= left:
        return member, seconds
    epochs = {key: getattr(resolved, key) for key in config_epochs(type(resolved)) if getattr(resolved, key)}
    fewer = {key: max(1, int(value * left / seconds)) for key, value in epochs.items()}
    if not fewer or max(fewer.values()) < _FEWEST_EPOCHS or name in _LINEAR:
        return None, 0.0
    shorter = [f"{key}={value}" for key, value in fewer.items()]
    seconds = _seconds(_resolved(name, [*assignments, *shorter], size, device), size, device)
    return " ".join([member, *shorter]), seconds


def _resolved(name: str, assignments: Sequence[str], size: Size, device: str) -> Any:
    algorithm = config.build(algorithms.find(name), config.merge({}, assignments), name)
    return with_own_epochs(algorithm, size, device)._resolve(size, device)


def _seconds(algorithm: Any, size: Size, device: str) -> float:
    """Training time by the plan; linear members always train on the CPU."""
    plan: Plan = algorithm._plan(size.read_by(algorithm.vectoriser), device)
    return plan.seconds(REFERENCE["cpu" if algorithm.name in _LINEAR else device])


def config_epochs(cls: type) -> list[str]:
    """The fields with the epochs of stages."""
    return [
        setting.name for setting in config.describe(cls) if "." not in setting.name and setting.name.endswith("epochs")
    ]


def usual_cut(size: Size, folds: int | None = None) -> tuple[int, int]:
    """The number of folds (by size if None), and of held-out documents in total; a dev split replaces both."""
    if size.n_dev:
        return 1, size.n_dev
    n = size.n_documents
    in_fold = min(_MOST_HELD, int(n * (_FIFTH if n < _SMALL else _TENTH)))
    if folds is None:
        folds = min(_MOST_FOLDS, -(-_ENOUGH // max(1, in_fold)))
    return folds, min(n, folds * max(1, in_fold))
