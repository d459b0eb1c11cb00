"""Settings that nothing reads as the others stand: refused by name, with what would make something read them.

An algorithm yields them as (what would make something read them, names). Knows nothing about which algorithm it is.
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
    """Raise if a setting that is not at its default is among `unread`."""
    changed = config.changed(given)
    for condition, names in unread:
        for name in names.split():
            if name in changed:
                what = "nothing reads this setting as the others stand"
                todo = f"Leave it out, or {condition}."
                raise ConfigError(what, where=f"{given.name}.{name}", got=changed[name], todo=todo)


def with_own_epochs(algorithm: AnyAlgorithm, size: Size, device: str) -> AnyAlgorithm:
    """A copy without the epochs of stages that it does not have: a blend gives all stages of all members theirs."""
    chosen = config.resolve(algorithm, algorithm._auto(size, device))
    idle = {name for _, names in chosen._unread(size, device) for name in names.split() if name.endswith("epochs")}
    fields: tuple[Any, ...] = dataclasses.fields(algorithm)
    usual = {field.name: field.default for field in fields if field.name in idle}
    return dataclasses.replace(algorithm, **usual)
