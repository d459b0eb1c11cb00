"""`xc predict`: texts in, labels out, a block at a time."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from xclearn.cli.progress import say
from xclearn.errors import ConfigError
from xclearn.inference.predictor import Predictor, Suggestion

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
    model: Path,
    file: str,
    k: int,
    output: str,
    device: str,
    threshold: Threshold = Threshold(),  # noqa: B008
) -> None:
    """Read texts from a file or stdin and print the k best labels of each."""
    from xclearn.data import read_documents

    if output not in WRITERS:
        raise ConfigError("unknown format", where="--format", got=output, allowed=", ".join(WRITERS))
    if k < 1:
        raise ConfigError("k must be at least 1", where="-k", got=k)
    predictor = Predictor.load(model, device=device)
    least = threshold.of(predictor)
    typed = file == "-" and sys.stdin.isatty()
    if typed:
        say("Type a text and press Enter; Ctrl-D ends.")
    for texts in _blocks(read_documents(sys.stdin.buffer if file == "-" else file), 1 if typed else _AT_ONCE):
        for text, found in zip(texts, predictor.suggest(texts, k, min_score=least), strict=True):
            sys.stdout.write(WRITERS[output](text, found))
        sys.stdout.flush()


def _blocks(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    iterator = iter(texts)
    while block := list(islice(iterator, size)):
        yield block


def _jsonl(text: str, found: list[Suggestion]) -> str:
    predictions = [{"label": label, "score": score} for label, score, _ in found]
    return json.dumps({"text": text, "predictions": predictions}, ensure_ascii=False) + "\n"


def _tsv(text: str, found: list[Suggestion]) -> str:
    clean = _one_line(text)
    return "".join(f"{clean}\t{_one_line(label)}\t{score:.6f}\n" for label, score, _ in found)


def _table(text: str, found: list[Suggestion]) -> str:
    rows = "".join(f"  {suggestion.score:6.3f}  {label_text(suggestion)}\n" for suggestion in found)
    return f"{cut(_one_line(text), 200)}\n{rows}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def label_text(suggestion: Suggestion, width: int = 100) -> str:
    """A label as a person reads it: its name, and its text where that says more."""
    extra = "" if suggestion.text in (None, suggestion.label) else f"  {suggestion.text}"
    return cut(f"{suggestion.label}{extra}", width)


def cut(text: str, width: int) -> str:
    """At most `width` characters, with a sign where there were more."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


WRITERS: dict[str, Callable[[str, list[Suggestion]], str]] = {"table": _table, "jsonl": _jsonl, "tsv": _tsv}
