"""What `help` says about an algorithm: its docstring and every setting, from the comments that the CLI shows too."""

from __future__ import annotations

import inspect

from xclearn import config

_MARK = "Settings:"


def with_settings(algorithm: type) -> str:
    """The docstring of a settings class, with its settings below; one that has them already stays as it is.

    pydoc reads the text that a class stores, so it has to be stored there, after `dataclass` made the class.
    """
    docstring = inspect.cleandoc(algorithm.__doc__ or "")
    if f"\n{_MARK}\n" in docstring:
        return docstring
    rows = (f"    {row.name}: {row.type} = {row.default}\n        {row.help}" for row in config.describe(algorithm))
    return "\n".join([docstring, "", _MARK, *rows])
