"""The text of `help` on an algorithm: its docstring and all settings, from the comments that the CLI shows."""

from __future__ import annotations

import inspect

from xclearn import config

_MARK = "Settings:"


def with_settings(algorithm: type) -> str:
    """The docstring of a settings class followed by its settings, unless it already has them.

    pydoc reads the stored docstring of a class, so it must be set after `dataclass` has created the class.
    """
    docstring = inspect.cleandoc(algorithm.__doc__ or "")
    if f"\n{_MARK}\n" in docstring:
        return docstring
    rows = (f"    {row.name}: {row.type} = {row.default}\n        {row.help}" for row in config.describe(algorithm))
    return "\n".join([docstring, "", _MARK, *rows])
