"""Labels by name: lookup, search over names and texts, and prediction restricted to chosen labels.

The index is built on first use and needs no dictionary: ten million labels take 16 bytes each plus a copy of their
texts. Knows nothing about its callers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, repeat
from typing import NamedTuple, final

import numpy as np

from xclearn.data.dataset import LabelSet
from xclearn.data.topk import TopK
from xclearn.errors import ConfigError
from xclearn.inference.blend import BlendServable
from xclearn.inference.components import AllLabels, Candidates, Step
from xclearn.inference.graph import GameScorer
from xclearn.inference.predictor import Predictor
from xclearn.inference.servable import Ensemble, Servable

MOST_PLACES = 100_000  # matches examined per query, which bounds a search for "a" among millions of labels

_WHOLE, _WORDS, _BEGINNING, _PART = range(4)  # kinds of match, best first
_IN_WORDS = frozenset(b"0123456789_abcdefghijklmnopqrstuvwxyz") | frozenset(
    range(128, 256)
)  # word bytes of folded text


class Matches(NamedTuple):
    """Labels found by a search, best first, and the total number among the matches examined."""

    labels: list[int]
    total: int


@final
class LabelIndex:
    """Finds labels by their exact name, or by a part of their name or text."""

    def __init__(self, labels: LabelSet, counts: np.ndarray | None = None) -> None:
        self._labels = labels
        self._counts = counts  # (L,) training documents of each label, if known

    def ids(self, names: Sequence[str], where: str) -> np.ndarray:
        """The ids (m,) of these names, in order; unknown names are errors."""
        return np.array([self._id(name, where) for name in names], dtype=np.int64)

    def search(self, query: str, limit: int) -> Matches:
        """At most `limit` labels that contain the query, ignoring case.

        Exact matches of the name or text come first, then whole words, then beginnings of words; ties are ordered by
        frequency, then by label id.
        """
        wanted = _encoded(_folded(query))
        if not wanted:
            labels = np.arange(len(self._labels))
            return Matches(self._best(labels, np.zeros_like(labels), limit), len(labels))
        places, kinds = self._places(wanted)
        labels = np.searchsorted(self._lines[1], places, "right") - 1
        order = np.lexsort((kinds, labels))
        labels, first = np.unique(labels[order], return_index=True)
        return Matches(self._best(labels, kinds[order][first], limit), len(labels))

    def _best(self, labels: np.ndarray, kinds: np.ndarray, limit: int) -> list[int]:
        """The best of these labels (m,), ascending ids, by kind of match and then by frequency."""
        counts = np.zeros_like(labels) if self._counts is None else self._counts[labels]
        return labels[np.lexsort((-counts, kinds))[:limit]].tolist()

    def _places(self, wanted: bytes) -> tuple[np.ndarray, np.ndarray]:
        """Positions of matches (m,), at most MOST_PLACES besides exact ones, and the kind of each."""
        block = self._lines[0]
        places: list[int] = []
        kinds: list[int] = []
        for whole in (b"\n" + wanted + b"\t", b"\t" + wanted + b"\n"):
            found = list(islice(_all_places(block, whole), MOST_PLACES))
            places += [place + 1 for place in found]
            kinds += len(found) * [_WHOLE]
        for place in islice(_all_places(block, wanted), MOST_PLACES):
            places.append(place)
            begins = block[place - 1] not in _IN_WORDS
            ends = block[place + len(wanted)] not in _IN_WORDS
            kinds.append((_WORDS if ends else _BEGINNING) if begins else _PART)
        return np.array(places, dtype=np.int64), np.array(kinds, dtype=np.int64)

    def _id(self, name: str, where: str) -> int:
        hashes, labels = self._hashes
        first, last = (np.searchsorted(hashes, hash(name), side) for side in ("left", "right"))
        for label in labels[first:last].tolist():
            if self._labels.names[label] == name:
                return int(label)
        raise ConfigError("no such label", where=where, got=name, todo="Search the labels for its exact name.")

    @cached_property
    def _hashes(self) -> tuple[np.ndarray, np.ndarray]:
        """The sorted hashes of all names, and the label of each."""
        hashes = np.fromiter(map(hash, self._labels.names), np.int64, len(self._labels))
        labels = np.argsort(hashes)
        return hashes[labels], labels

    @cached_property
    def _lines(self) -> tuple[bytes, np.ndarray]:
        """A line `\\nname\\ttext` for each label and a final line feed, and the positions of line feeds."""
        texts = (
            self._labels.texts if isinstance(self._labels.texts, Sequence) else repeat("")
        )  # features have no text to search
        lines = [f"\n{_folded(name)}\t{_folded(text)}" for name, text in zip(self._labels.names, texts, strict=False)]
        block = _encoded("".join([*lines, "\n"]))
        return block, np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))


def _all_places(block: bytes, part: bytes) -> Iterator[int]:
    place = block.find(part)
    while place >= 0:
        yield place
        place = block.find(part, place + 1)


def predict_among(
    predictor: Predictor, texts: Sequence[str], labels: np.ndarray, k: int, tail: float | None = None
) -> TopK:
    """The k best of these labels (m,) for each text: ids, scores (n, k), padded with −1."""
    servable = predictor.model.servable
    if isinstance(servable, BlendServable):
        ids, scores = predictor.predict(texts, servable.widest, tail=tail)
        others = ~np.isin(ids, labels)
        order = np.argsort(others, axis=1, kind="stable")[:, :k]  # chosen labels first, in their order
        ids = np.where(others, -1, ids)
        scores = np.where(others, -np.inf, scores).astype(np.float32)
        return TopK(np.take_along_axis(ids, order, 1), np.take_along_axis(scores, order, 1))
    if isinstance(servable, Ensemble):
        chosen: Servable | Ensemble = Ensemble([_restricted(member, labels) for member in servable.members])
    else:
        chosen = _restricted(servable, labels)
    found = [chosen.predict([text], k) for text in texts]  # one at a time, as a scorer gathers a row for each label
    return TopK(np.concatenate([part.ids for part in found]), np.concatenate([part.scores for part in found]))


def _restricted(servable: Servable, labels: np.ndarray) -> Servable:
    """Score only these labels if scores are independent of other labels, else drop the others at the end."""
    alone = not servable.steps and not any(isinstance(scorer, GameScorer) for scorer in servable.scorers)
    if alone and isinstance(servable.candidates, AllLabels):
        return replace(servable, candidates=_These(labels))
    return replace(servable, steps=[*servable.steps, _Only(labels)])


@final
@dataclass(frozen=True)
class _These(Candidates):
    """The same labels for every document, with certainty."""

    labels: np.ndarray  # (m,)

    def find(self, vectors: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        ids = np.tile(self.labels, (next(iter(vectors.values())).shape[0], 1))
        return ids, np.full(ids.shape, np.inf, dtype=np.float32)


@final
@dataclass(frozen=True)
class _Only(Step):
    """Keeps only these labels."""

    labels: np.ndarray  # (m,)
    depth: int = 1 << 16  # candidates of a document to filter

    def __call__(
        self,
        vectors: Mapping[str, np.ndarray],  # noqa: ARG002
        ids: np.ndarray,
        scores: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        return ids, np.where(np.isin(ids, self.labels), scores, -np.inf)


def _folded(text: str) -> str:
    """The text as it is searched: one line, lower case."""
    return " ".join(text.split()).lower()


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
