"""The flags that say how a table is read, the same on every command that reads one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from xclearn.cli.progress import say

if TYPE_CHECKING:
    from xclearn.data import Dataset, Finding, Reading

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
Vocabulary = Annotated[
    str | None,
    typer.Option("--vocab", metavar="FILE", help="The labels and their texts: TSV, CSV or SKOS as Annif has them."),
]
VocabularyLanguage = Annotated[
    str | None, typer.Option("--language", metavar="CODE", help="Of the labels of a vocabulary in several languages.")
]

_FLAGS: dict[str, Any] = {  # fields of `Reading`
    "text_column": TextColumn,
    "label_column": LabelColumn,
    "label_separator": LabelSeparator,
    "delimiter": Delimiter,
    "vocab": Vocabulary,
    "language": VocabularyLanguage,
}


def with_reading(command: Callable[..., None]) -> Callable[..., None]:
    """The command with a flag for each field of `Reading`, which it gets as the one argument `reading`."""

    @functools.wraps(command)
    def wrapper(**given: Any) -> None:
        from xclearn.data import Reading

        reading = Reading(**{name: given.pop(name) for name in _FLAGS})
        command(**given, reading=reading)

    shown = inspect.signature(command)
    own = [parameter for parameter in shown.parameters.values() if parameter.name != "reading"]
    keyword = inspect.Parameter.KEYWORD_ONLY
    flags = [inspect.Parameter(name, keyword, default=None, annotation=flag) for name, flag in _FLAGS.items()]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *flags)}
    hints = get_type_hints(wrapper, include_extras=True)
    parameters = [parameter.replace(kind=keyword, annotation=hints[parameter.name]) for parameter in (*own, *flags)]
    wrapper.__signature__ = shown.replace(parameters=parameters, return_annotation=None)  # type: ignore[attr-defined]
    return wrapper


def read_data(source: str, reading: Reading) -> Dataset:
    """The data set, and on stderr how its tables are read where that is not the usual way."""
    from xclearn.data.checks import outside_vocabulary
    from xclearn.data.load import describe_reading, load_dataset

    for line in describe_reading(source, reading):
        say(f"read: {line}")
    data = load_dataset(source, reading=reading)
    warn(outside_vocabulary(data))
    return data


def warn(findings: Iterable[Finding]) -> None:
    """A line on stderr for each finding that counts something."""
    for finding in findings:
        if finding.count:
            say(f"warning: {finding.count:,} {finding.what}, for example: {finding.examples[0]}")
