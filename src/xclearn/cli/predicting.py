"""`xc predict`: predicts labels of texts, a block at a time."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from xclearn.cli.answers import Output, writer
from xclearn.cli.progress import say
from xclearn.data.columns import Reading
from xclearn.data.inputs import Input, read_inputs
from xclearn.data.tables import parquet_schema
from xclearn.data.topk import TopK
from xclearn.errors import ConfigError
from xclearn.inference.long_texts import Chunks
from xclearn.inference.predictor import Predictor, suggestions
from xclearn.inference.thresholds import Threshold

if TYPE_CHECKING:
    from xclearn.cli.batch import Many

_AT_ONCE = 1024


class Asked(NamedTuple):
    """Options for every text."""

    k: int
    threshold: Threshold
    tail: float | None = None
    chunks: Chunks | None = None

    def check(self) -> None:
        """Raise if an option is invalid for every model."""
        if self.k < 1:
            raise ConfigError("k must be at least 1", where="-k", got=self.k)
        least = self.threshold.min_score
        if not 0 <= least <= 1:
            raise ConfigError("a score is out of range", where="--min-score", got=least, allowed="0 to 1")
        if self.chunks is not None:
            self.chunks.check()

    def best(self, predictor: Predictor, texts: list[str]) -> TopK:
        """The labels of each text."""
        if self.chunks is None:
            return predictor.predict(texts, self.k, tail=self.tail)
        return self.chunks.predict(predictor, texts, self.k, tail=self.tail)


def predict_file(model: Path, file: str, asked: Asked, output: Output, device: str, reading: Reading) -> None:
    """Read texts from a file or stdin and write the best labels of each."""
    asked.check()
    output.chosen_format()  # raises before the model is loaded
    predictor = _told(Predictor.load(model, device=device), asked)
    typed = file == "-" and sys.stdin.isatty()
    if typed:
        say("Type a text and press Enter; Ctrl-D ends.")
    with _counter(output, typed) as count:
        for n_texts in answers(predictor, asked, file, output, reading, 1 if typed else _AT_ONCE):
            count(n_texts)


def predict_folder(
    model: Path, pattern: str, asked: Asked, output: Output, device: str, reading: Reading, many: Many
) -> None:
    """The same for the files of a folder or pattern, each with its own output file."""
    from xclearn.cli.batch import Work, files_of, predict_files

    asked.check()
    if output.path is None:
        raise ConfigError("the output of many files must be a folder", where="-o", todo="Give a folder with -o.")
    if output.format not in ("", "jsonl", "parquet"):
        raise ConfigError("unknown format", where="--format", got=output.format, allowed="jsonl, parquet")
    files = files_of(pattern)
    _told(Predictor.load(model, device=device), asked)  # verifies every byte, once
    work = Work(model.resolve(), output.path.resolve(), output.format, asked, reading, device, many.n_threads)
    predict_files(work, files, many, overwrite=output.overwrite)


def _told(predictor: Predictor, asked: Asked) -> Predictor:
    """The predictor, after checking the options against it; reports the chosen thresholds."""
    if asked.tail is not None:
        predictor.require_tail(asked.tail)
    for words in asked.threshold.told(predictor.model.servable):
        say(words)
    return predictor


def answers(
    predictor: Predictor, asked: Asked, file: str, output: Output, reading: Reading, at_once: int = _AT_ONCE
) -> Iterator[int]:
    """Write the predictions for the texts of a file or stdin; yields the number per block."""
    warn = lambda words: say(f"warning: {words}")  # noqa: E731
    inputs = read_inputs(sys.stdin.buffer if file == "-" else file, reading, warn)
    with_texts = isinstance(predictor.labels.texts, Sequence)
    least = asked.threshold.least(predictor.model.servable)
    with writer(output, asked.k, with_texts, _schema(file)) as write:
        for block in _blocks(inputs, at_once):
            found = suggestions(predictor.labels, asked.best(predictor, [given.text for given in block]), least)
            write(list(zip(block, found, strict=True)))
            yield len(block)


def _schema(file: str) -> Any:
    """The schema of a Parquet file, whose columns keep their types."""
    if file == "-" or Path(file).suffix.lower() != ".parquet":
        return None
    return parquet_schema(Path(file))


@contextlib.contextmanager
def _counter(output: Output, typed: bool) -> Iterator[Callable[[int], None]]:
    """Count texts on a terminal if predictions go elsewhere, and report at the end what was written."""
    live = not typed and sys.stderr.isatty() and (output.path is not None or not sys.stdout.isatty())
    done = 0

    def count(texts: int) -> None:
        nonlocal done
        done += texts
        if live:
            sys.stderr.write(f"\r{done:,} texts")
            sys.stderr.flush()

    yield count
    if live:
        sys.stderr.write("\r")
    if live or output.path is not None:
        say(f"{done:,} texts" + ("" if output.path is None else f": {output.path}"))


def _blocks(inputs: Iterable[Input], size: int) -> Iterator[list[Input]]:
    iterator = iter(inputs)
    while block := list(islice(iterator, size)):
        yield block
