"""The flags that say how a table is read, the same on every command that reads one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from xclearn.cli.progress import say

if TYPE_CHECKING:
    from xclearn.data import Dataset, Reading

TextColumn = Annotated[
    str | None, typer.Option("--text-column", metavar="NAME", help="Column, or JSON key, of the text; else found.")
]
LabelColumn = Annotated[
    str | None, typer.Option("--label-column", metavar="NAME", help="Column, or JSON key, of the labels; else found.")
]
LabelSeparator = Annotated[
    str | None,
    typer.Option("--label-separator", metavar="TEXT", help="Between labels in one field: else ;. `list`: ['a', 'b']."),
]
Delimiter = Annotated[
    str | None, typer.Option("--delimiter", metavar="CHARACTER", help="Between fields: , ; tab or |; else found.")
]


def read_data(source: str, reading: Reading) -> Dataset:
    """The data set, and on stderr how its tables are read where that is not the usual way."""
    from xclearn.data.load import describe_reading, load_dataset

    for line in describe_reading(source, reading):
        say(f"read: {line}")
    return load_dataset(source, reading=reading)
