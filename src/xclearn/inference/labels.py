"""Labels by name: the id of a name, a search over names and texts, and the best of chosen labels only.

The index is built when it is first asked for and holds no dictionary: ten million labels cost 16 bytes each and a copy
of their texts. Knows nothing about what asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat
from typing import final

import numpy as np

from xclearn.data.dataset import LabelSet
from xclearn.data.topk import TopK
from xclearn.errors import ConfigError
from xclearn.inference.blend import Blend
from xclearn.inference.components import AllLabels, Candidates, Step
from xclearn.inference.graph import GameScorer
from xclearn.inference.predictor import Predictor
from xclearn.inference.servable import Ensemble, Servable


@final
class LabelIndex:
    """Finds labels by their exact name, or by a part of their name or text."""

    def __init__(self, labels: LabelSet) -> None:
        self._labels = labels

    def ids(self, names: Sequence[str], where: str) -> np.ndarray:
        """The ids (m,) of these names, in their order; a name that is no label is refused."""
        return np.array([self._id(name, where) for name in names], dtype=np.int64)

    def search(self, query: str, limit: int) -> list[int]:
        """At most `limit` labels: those named so, those whose name, text or a word begins so, those that hold it.

        Upper and lower case are the same; within a group the labels' own order stays.
        """
        wanted = _folded(query)
        parts = [f"\n{wanted}\t", f"\n{wanted}", *([f"\t{wanted}", f" {wanted}", wanted] if wanted else [])]
        found: dict[int, None] = {}
        for part in parts:
            for label in self._lines_with(_encoded(part)):
                if len(found) == limit:
                    break
                found[label] = None
        return list(found)

    def _id(self, name: str, where: str) -> int:
        hashes, labels = self._hashes
        first, last = (np.searchsorted(hashes, hash(name), side) for side in ("left", "right"))
        for label in labels[first:last].tolist():
            if self._labels.names[label] == name:
                return int(label)
        raise ConfigError("no such label", where=where, got=name, todo="Search the labels for its exact name.")

    @cached_property
    def _hashes(self) -> tuple[np.ndarray, np.ndarray]:
        """The hashes of all names, ascending, and whose each is."""
        hashes = np.fromiter(map(hash, self._labels.names), np.int64, len(self._labels))
        labels = np.argsort(hashes)
        return hashes[labels], labels

    @cached_property
    def _lines(self) -> tuple[bytes, np.ndarray]:
        """A line `\\nname\\ttext` for each label and a last line feed, and where the line feeds are."""
        texts = self._labels.texts if isinstance(self._labels.texts, Sequence) else repeat("")  # features say nothing
        lines = [f"\n{_folded(name)}\t{_folded(text)}" for name, text in zip(self._labels.names, texts, strict=False)]
        block = _encoded("".join([*lines, "\n"]))
        return block, np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))

    def _lines_with(self, part: bytes) -> Iterator[int]:
        block, line_feeds = self._lines
        end = len(block) - 1  # the last line feed begins no label
        place = block.find(part, 0, end)
        while place >= 0:
            label = int(np.searchsorted(line_feeds, place, "right")) - 1
            yield label
            place = block.find(part, int(line_feeds[label + 1]), end)


def predict_among(
    predictor: Predictor, texts: Sequence[str], labels: np.ndarray, k: int, tail: float | None = None
) -> TopK:
    """The k best of these labels (m,) for each text: ids, scores (n, k), −1 where fewer of them are candidates."""
    servable = predictor.model.servable
    if isinstance(servable, Blend):
        ids, scores = predictor.predict(texts, servable.widest, tail=tail)
        others = ~np.isin(ids, labels)
        order = np.argsort(others, axis=1, kind="stable")[:, :k]  # the chosen ones first, in their order
        ids, scores = np.where(others, -1, ids), np.where(others, -np.inf, scores).astype(np.float32)
        return TopK(np.take_along_axis(ids, order, 1), np.take_along_axis(scores, order, 1))
    if isinstance(servable, Ensemble):
        chosen: Servable | Ensemble = Ensemble([_restricted(member, labels) for member in servable.members])
    else:
        chosen = _restricted(servable, labels)
    found = [chosen.predict([text], k) for text in texts]  # one at a time: a scorer gathers a row for each label
    return TopK(np.concatenate([part.ids for part in found]), np.concatenate([part.scores for part in found]))


def _restricted(servable: Servable, labels: np.ndarray) -> Servable:
    """Where a label's score hangs on no other label, only these are scored; else the others are dropped at the end."""
    alone = not servable.steps and not any(isinstance(scorer, GameScorer) for scorer in servable.scorers)
    if alone and isinstance(servable.candidates, AllLabels):
        return replace(servable, candidates=_These(labels))
    return replace(servable, steps=[*servable.steps, _Only(labels)])


@final
@dataclass(frozen=True)
class _These(Candidates):
    """The same labels for every document, each of them certain to be a candidate."""

    labels: np.ndarray  # (m,)

    def find(self, vectors: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        ids = np.tile(self.labels, (next(iter(vectors.values())).shape[0], 1))
        return ids, np.full(ids.shape, np.inf, dtype=np.float32)


@final
@dataclass(frozen=True)
class _Only(Step):
    """Drops all labels but these."""

    labels: np.ndarray  # (m,)
    depth: int = 1 << 16  # candidates of a document that are looked through

    def __call__(
        self,
        vectors: Mapping[str, np.ndarray],  # noqa: ARG002
        ids: np.ndarray,
        scores: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        return ids, np.where(np.isin(ids, self.labels), scores, -np.inf)


def _folded(text: str) -> str:
    """What the search compares: one line, lower case."""
    return " ".join(text.split()).lower()


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
