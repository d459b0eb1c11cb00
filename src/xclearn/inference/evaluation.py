"""Measuring a model on a split of a data set: predictions, filter pairs, propensities and metrics put together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from xclearn.data.dataset import Dataset
from xclearn.data.matching import over_labels, unknown_labels
from xclearn.inference.folder import Model
from xclearn.inference.forms import measured
from xclearn.labels.propensity import inverse_propensity
from xclearn.metrics import FILTER_RULES, KS, RECALL_KS, Report, evaluate_predictions


class Fitted(Protocol):
    """Anything that carries a model: a Predictor or a fitted algorithm."""

    @property
    def model(self) -> Model: ...


def evaluate(
    model: Fitted, data: Dataset, *, split: str = "test", filter_rule: str = FILTER_RULES[0], device: str = "cpu"
) -> Report:
    """P, nDCG, PSP, PSnDCG @1/3/5, recall and coverage @10/20/100 of the model on a split, in percent.

    Labels are matched by name. Those that the model does not know are misses, and are named in the report. Where the
    data has no training documents there are no propensities: PSP and PSnDCG are left out.
    """
    servable, n_known = model.model.servable, len(model.model.labels)
    data = over_labels(data, model.model.labels.names)
    part = data.split(split)
    void = part.filter_pairs[part.filter_pairs[:, 1] < n_known]
    report = evaluate_predictions(
        measured(servable, device).predict(part.documents, max(*KS, *RECALL_KS), void),
        part.relevance,
        label_weights(data) if len(data.train) else np.ones(data.n_labels),
        filter_pairs=part.filter_pairs,
        filter_rule=filter_rule,
    )
    report = replace(report, unknown_labels=unknown_labels(data, split, n_known))
    return report if len(data.train) else _unweighted(report)


def _unweighted(report: Report) -> Report:
    def kept(figures: dict[str, Any]) -> dict[str, Any]:
        return {name: figure for name, figure in figures.items() if not name.startswith("PS")}

    return replace(report, values=kept(report.values), terms=kept(report.terms))


def label_counts(data: Dataset) -> np.ndarray:
    """Training documents of each label."""
    return np.asarray(data.train.relevance.sum(axis=0)).ravel()


def label_weights(data: Dataset) -> np.ndarray:
    """Inverse propensities from the whole train split."""
    return inverse_propensity(label_counts(data), len(data.train), *data.propensity)
