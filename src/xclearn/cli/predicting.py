"""`xc predict`: texts in, labels out, a block at a time."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from xclearn.cli.answers import Output, writer
from xclearn.cli.progress import say
from xclearn.data.columns import Reading
from xclearn.data.inputs import Input, read_inputs
from xclearn.data.tables import parquet_schema
from xclearn.errors import ConfigError
from xclearn.inference.predictor import Predictor

_AT_ONCE = 1024


class Threshold(NamedTuple):
    """Which scores are too low to be given."""

    min_score: float = 0.0
    target_precision: float | None = None

    def of(self, predictor: Predictor) -> float:
        """The least score; the precision is what it came to on held-out documents."""
        if not 0 <= self.min_score <= 1:
            raise ConfigError("a score is out of range", where="--min-score", got=self.min_score, allowed="0 to 1")
        if self.target_precision is None:
            return self.min_score
        point = predictor.points.for_precision(self.target_precision)
        say(f"scores from {point.threshold:g}: precision {point.precision:.3f}, {point.coverage:.1%} of held-out texts")
        return max(self.min_score, point.threshold)


def predict_file(
    model: Path, file: str, k: int, output: Output, device: str, threshold: Threshold, reading: Reading
) -> None:
    """Read texts from a file or stdin and write the k best labels of each."""
    if k < 1:
        raise ConfigError("k must be at least 1", where="-k", got=k)
    output.chosen_format()  # what is wrong with it is said before the model is loaded
    predictor = Predictor.load(model, device=device)
    least = threshold.of(predictor)
    typed = file == "-" and sys.stdin.isatty()
    if typed:
        say("Type a text and press Enter; Ctrl-D ends.")
    inputs = read_inputs(sys.stdin.buffer if file == "-" else file, reading)
    with_texts = isinstance(predictor.labels.texts, Sequence)
    with writer(output, k, with_texts, _schema(file)) as write, _counter(output, typed) as count:
        for block in _blocks(inputs, 1 if typed else _AT_ONCE):
            found = predictor.suggest([given.text for given in block], k, min_score=least)
            write(list(zip(block, found, strict=True)))
            count(len(block))


def _schema(file: str) -> Any:
    """Of a Parquet file, whose columns keep their types."""
    if file == "-" or Path(file).suffix.lower() != ".parquet":
        return None
    return parquet_schema(Path(file))


@contextlib.contextmanager
def _counter(output: Output, typed: bool) -> Iterator[Callable[[int], None]]:
    """Counts texts on a terminal while answers go elsewhere; says at the end what was written."""
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
