"""Evaluates a model on a split of a data set: predictions, filter pairs, propensities and metrics."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from xclearn.data.dataset import Dataset
from xclearn.data.in_memory import dataset_of
from xclearn.data.load import is_one_split, load_dataset
from xclearn.data.matching import over_labels, unknown_labels
from xclearn.data.splits import as_test
from xclearn.data.topk import TopK
from xclearn.inference.folder import Model, load_model
from xclearn.inference.runner import runner
from xclearn.labels.propensity import inverse_propensity
from xclearn.metrics import FILTER_RULES, KS, RECALL_KS, Report, evaluate_predictions, volume_bins

if TYPE_CHECKING:
    from xclearn.inference.long_texts import Chunks


class Fitted(Protocol):
    """Anything with a model: a Predictor or a fitted algorithm."""

    @property
    def model(self) -> Model: ...


def evaluate(
    model: Fitted | str | os.PathLike[str],
    data: Any,
    *,
    split: str = "test",
    filter_rule: str = FILTER_RULES[0],
    device: str = "cpu",
    chunks: Chunks | None = None,
) -> Report:
    """P, nDCG, PSP, PSnDCG @1/3/5, recall and coverage @10/20/100 of the model on a split, in percent.

    The model may be a folder; the data may be a `Dataset`, a data frame, or anything that `load_dataset` reads. A data
    frame or single file without splits is used as test data.

    Labels are matched by name. Labels unknown to the model count as misses and are listed in the report. Without
    training documents there are no propensities, so PSP and PSnDCG are left out. `chunks` splits long texts.
    """
    loaded = load_model(Path(model)) if isinstance(model, str | os.PathLike) else model.model
    n_known = len(loaded.labels)
    data = over_labels(_dataset(data, split), loaded.labels.names)
    part = data.split(split)
    void = part.filter_pairs[part.filter_pairs[:, 1] < n_known]
    predict: Callable[..., TopK] = runner(loaded, device).predict
    if chunks is not None:
        predict = partial(chunks.ask, predict, n_known)
    report = evaluate_predictions(
        predict(part.documents, max(*KS, *RECALL_KS), void),
        part.relevance,
        label_weights(data) if len(data.train) else np.ones(data.n_labels),
        filter_pairs=part.filter_pairs,
        filter_rule=filter_rule,
    )
    report = replace(report, unknown_labels=unknown_labels(data, split, n_known))
    return report if len(data.train) else _unweighted(report)


def _dataset(data: Any, split: str) -> Dataset:
    if isinstance(data, Dataset):
        return data
    if not isinstance(data, str | os.PathLike):
        return as_test(dataset_of(data))
    read = load_dataset(data)
    return as_test(read) if split == "test" and is_one_split(data) else read


def _unweighted(report: Report) -> Report:
    def kept(figures: dict[str, Any]) -> dict[str, Any]:
        return {name: figure for name, figure in figures.items() if not name.startswith("PS")}

    return replace(report, values=kept(report.values), terms=kept(report.terms))


def evaluate_and_note(model: Fitted, data: Any, *, split: str = "test", device: str = "cpu") -> Report:
    """`evaluate`, and record the metrics in the model, so that `save` writes them into the model card.

    Metrics are recorded only for data with training documents and exactly the model's labels.
    """
    report = evaluate(model, data, split=split, device=device)
    known = model.model
    if not isinstance(data, Dataset) or not len(data.train) or list(data.labels.names) != list(known.labels.names):
        return report
    trained_on = known.about.get("data", {}).get("name", data.name)
    name = split if data.name == trained_on else f"{data.name} {split}"
    bins = [part._asdict() for part in volume_bins(report, label_counts(data))]
    known.about["metrics"] = {**known.about.get("metrics", {}), name: report.values}
    known.about["bins"] = {**known.about.get("bins", {}), name: bins}
    return report


def label_counts(data: Dataset) -> np.ndarray:
    """The number of training documents of each label."""
    return np.asarray(data.train.relevance.sum(axis=0)).ravel()


def label_weights(data: Dataset) -> np.ndarray:
    """Inverse propensities from the whole train split."""
    return inverse_propensity(label_counts(data), len(data.train), *data.propensity)
