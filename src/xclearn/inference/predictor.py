"""A model folder as something to ask: text in, label names and scores out. Imports neither torch nor training code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np

from xclearn.data.dataset import NO_PAIRS, Documents, LabelSet
from xclearn.data.topk import TopK
from xclearn.inference.folder import Model, load_model


class Suggestion(NamedTuple):
    """One label of an answer."""

    label: str
    score: float
    text: str | None  # what the label says, where the model knows it


@final
class Predictor:
    """Answers from a loaded model; changes nothing."""

    def __init__(self, model: Model) -> None:
        self.model = model

    @classmethod
    def load(cls, folder: str | Path, *, verify: bool = True) -> Predictor:
        """Read a model folder; `verify=False` skips the hash of every byte and loads in milliseconds."""
        return cls(load_model(folder, verify=verify))

    @property
    def labels(self) -> LabelSet:
        return self.model.labels

    @property
    def about(self) -> dict[str, Any]:
        return self.model.about

    def predict(self, documents: Documents, k: int = 5, exclude: np.ndarray = NO_PAIRS) -> TopK:
        """The k best labels of each document: ids, scores (n, k); `exclude` holds (row, label) pairs to leave out."""
        return self.model.servable.predict(documents, k, exclude)

    def suggest(self, texts: Sequence[str], k: int = 5) -> list[list[Suggestion]]:
        """The same with label names: one list a text, best first."""
        ids, scores = self.predict(texts, k)
        return [
            [self._suggestion(label, score) for label, score in zip(row, values, strict=True) if label >= 0]
            for row, values in zip(ids.tolist(), scores.tolist(), strict=True)
        ]

    def _suggestion(self, label: int, score: float) -> Suggestion:
        texts = self.labels.texts
        return Suggestion(self.labels.names[label], score, None if texts is None else texts[label])
