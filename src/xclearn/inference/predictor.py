"""Predicts with a model folder: text in, label names and scores out. Imports neither training code nor torch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import islice, repeat
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np

from xclearn.data.dataset import NO_PAIRS, Documents, LabelSet
from xclearn.data.shown import html_table
from xclearn.data.topk import TopK
from xclearn.errors import ConfigError
from xclearn.inference.blend import BlendServable
from xclearn.inference.evaluation import evaluate_and_note
from xclearn.inference.folder import Model, load_model, save_model
from xclearn.inference.native import strings_at
from xclearn.inference.operating_points import OperatingPoints
from xclearn.inference.runner import Runner, runner
from xclearn.inference.thresholds import Threshold, points_of
from xclearn.metrics import Report
from xclearn.text.documents import as_documents

_SHOWN = ("P@1", "P@5", "PSP@5", "R@10")  # metrics in a notebook


class Suggestion(NamedTuple):
    """One predicted label."""

    label: str
    score: float
    text: str | None  # text of the label, if the model has it


@final
class Predictor:
    """Predicts with a loaded model; immutable and thread-safe."""

    def __init__(self, model: Model, n_threads: int | None = None, device: str = "cpu") -> None:
        self.model = model
        self.n_threads = n_threads  # threads for several documents; None: one per core
        self.device = device  # cpu, cuda, or auto: a GPU if there is one that can run the model

    @classmethod
    def load(
        cls, folder: str | Path, *, verify: bool = True, n_threads: int | None = None, device: str = "cpu"
    ) -> Predictor:
        """Read a model folder; `verify=False` skips the hash of every byte and loads in milliseconds."""
        predictor = cls(load_model(folder, verify=verify), n_threads, device)
        _ = predictor.answers  # prepared now rather than for the first text
        return predictor

    def __repr__(self) -> str:
        return f"Predictor({self.about.get('algorithm', 'model')}: {self.model.summary})"

    def _repr_html_(self) -> str:
        metrics = self.about.get("metrics", {}).get("test", {})
        rows = [("what", self.model.summary), *((name, f"{metrics[name]:.2f}") for name in _SHOWN if name in metrics)]
        return html_table(str(self.about.get("algorithm", "model")), rows)

    @property
    def labels(self) -> LabelSet:
        return self.model.labels

    @property
    def about(self) -> dict[str, Any]:
        return self.model.about

    @cached_property
    def answers(self) -> Runner:
        """What computes predictions; on a CPU the native core if it supports every part of the model, else NumPy."""
        return runner(self.model, self.device, self.n_threads)

    @property
    def points(self) -> OperatingPoints:
        """Measurements of thresholds on held-out documents; raises if the model has none."""
        return points_of(self.model.servable)

    @property
    def tail(self) -> float | None:
        """The default tail exponent; None if the model has no propensities."""
        servable = self.model.servable
        if not isinstance(servable, BlendServable) or servable.inverse_propensity is None:
            return None
        return servable.tail

    def require_tail(self, tail: float) -> None:
        """Raise if an exponent is out of range or the model has no propensities."""
        if not isinstance(self.model.servable, BlendServable):
            todo = "Train it with blend, or with calibrate = true; or leave tail out."
            raise ConfigError("the model has no propensities", where="tail", got=tail, todo=todo)
        self.model.servable.checked_tail(tail)

    def predict(
        self,
        documents: Documents,
        k: int = 5,
        exclude: np.ndarray = NO_PAIRS,
        tail: float | np.ndarray | None = None,
    ) -> TopK:
        """The k best labels of each document: ids, scores (n, k), without the (row, label) pairs in `exclude`.

        `tail` from 0 to 1, a number or (n,), replaces the model's own exponent for favouring rare labels: labels are
        ordered by score / propensity^tail, but scores stay probabilities.
        """
        documents = as_documents(documents)
        if tail is None:
            return self.answers.predict(documents, k, exclude)
        if not isinstance(self.answers, BlendServable):
            self.require_tail(float(np.max(tail)))
        assert isinstance(self.answers, BlendServable)
        return self.answers.predict(documents, k, exclude, tail)

    def suggest(
        self,
        texts: Sequence[str],
        k: int = 5,
        exclude: np.ndarray = NO_PAIRS,
        min_score: float = 0.0,
        *,
        threshold: Threshold | None = None,
        tail: float | None = None,
    ) -> list[list[Suggestion]]:
        """The same with label names: one list per text, best first; a threshold may leave lists empty."""
        least = min_score if threshold is None else np.maximum(threshold.least(self.model.servable), min_score)
        return suggestions(self.labels, self.predict(texts, k, exclude, tail), least)

    def evaluate(self, data: Any, *, split: str = "test", device: str = "cpu") -> Report:
        """The metrics on a split of a data set, as by `xclearn.evaluate`; `save` writes them into the model card."""
        return evaluate_and_note(self, data, split=split, device=device)

    def save(self, folder: str | Path, *, replace: bool = False) -> None:
        """Write the model folder."""
        save_model(self.model, folder, replace=replace)


def suggestions(labels: LabelSet, found: TopK, least: float | np.ndarray = 0.0) -> list[list[Suggestion]]:
    """Labels by name: one list per document, best first, without scores below `least`, a number or (L,)."""
    there = (found.ids >= 0) & (found.scores >= (least if np.ndim(least) == 0 else np.asarray(least)[found.ids]))
    ids = found.ids[there]
    label_texts = strings_at(labels.texts, ids) if isinstance(labels.texts, Sequence) else repeat(None)
    named = map(Suggestion, strings_at(labels.names, ids), found.scores[there].tolist(), label_texts)
    return [list(islice(named, n)) for n in there.sum(axis=1).tolist()]
