"""The flags for reading tables, shared by every command that reads them."""

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
    str | None,
    typer.Option("--text-column", metavar="NAME", help="Column or JSON key of the text; by default detected."),
]
LabelColumn = Annotated[
    str | None,
    typer.Option("--label-column", metavar="NAME", help="Column or JSON key of the labels; by default detected."),
]
LabelSeparator = Annotated[
    str | None,
    typer.Option(
        "--label-separator", metavar="TEXT", help="Separator of labels in one field, by default ;. `list`: ['a', 'b']."
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option("--delimiter", metavar="CHARACTER", help="Separator of fields: , ; tab or |; by default detected."),
]
Vocabulary = Annotated[
    str | None,
    typer.Option(
        "--vocab", metavar="FILE", help="A vocabulary of labels and their texts: TSV, CSV or SKOS, as in Annif."
    ),
]
VocabularyLanguage = Annotated[
    str | None,
    typer.Option("--language", metavar="CODE", help="Language of the labels, for a vocabulary in several languages."),
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
    """Add a flag for each field of `Reading` to a command, which receives them as one argument `reading`."""

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
    """Load the data set, and report on stderr how its tables are read if that was detected."""
    from xclearn.data.checks import outside_vocabulary
    from xclearn.data.load import describe_reading, load_dataset

    for line in describe_reading(source, reading):
        say(f"read: {line}")
    data = load_dataset(source, reading=reading)
    warn(outside_vocabulary(data))
    return data


def warn(findings: Iterable[Finding]) -> None:
    """Print a warning for each finding with a count above zero."""
    for finding in findings:
        if finding.count:
            say(f"warning: {finding.count:,} {finding.what}, for example: {finding.examples[0]}")
