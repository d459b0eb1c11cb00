"""Rejects settings without effect, given the others, naming the change that would make them effective.

An algorithm yields them as (change that would make them effective, names). Knows nothing about algorithms.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from xclearn import config
from xclearn.errors import ConfigError

if TYPE_CHECKING:
    from xclearn.training.algorithm import Algorithm
    from xclearn.training.prepare import Size

    AnyAlgorithm = TypeVar("AnyAlgorithm", bound=Algorithm)


def refuse_unread(given: Algorithm, unread: Iterable[tuple[str, str]]) -> None:
    """Raise if a setting in `unread` differs from its default."""
    changed = config.changed(given)
    for condition, names in unread:
        for name in names.split():
            if name in changed:
                what = "the setting has no effect with the other settings"
                todo = f"Leave it out, or {condition}."
                raise ConfigError(what, where=f"{given.name}.{name}", got=changed[name], todo=todo)


def with_own_epochs(algorithm: AnyAlgorithm, size: Size, device: str) -> AnyAlgorithm:
    """A copy without the epochs of stages that it lacks, as a blend sets the epochs of all stages."""
    chosen = config.resolve(algorithm, algorithm._auto(size, device))
    idle = {name for _, names in chosen._unread(size, device) for name in names.split() if name.endswith("epochs")}
    fields: tuple[Any, ...] = dataclasses.fields(algorithm)
    usual = {field.name: field.default for field in fields if field.name in idle}
    return dataclasses.replace(algorithm, **usual)
