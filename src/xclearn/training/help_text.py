"""What `help` says about an algorithm: its docstring and every setting, from the comments that the CLI shows too."""

from __future__ import annotations

import inspect
from typing import final

from xclearn import config


@final
class HelpText:
    """Stands in a class for its docstring; the settings are looked up when it is read, after the class is made."""

    def __init__(self, docstring: str | None) -> None:
        self._docstring = inspect.cleandoc(docstring or "")

    def __get__(self, instance: object, owner: type) -> str:
        """The docstring; of a finished settings class with its settings."""
        if "__dataclass_fields__" not in vars(owner):
            return self._docstring
        rows = (f"    {row.name}: {row.type} = {row.default}\n        {row.help}" for row in config.describe(owner))
        return "\n".join([self._docstring, "", "Settings:", *rows])
