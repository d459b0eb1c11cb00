"""Measuring a model on a split of a data set: predictions, filter pairs, propensities and metrics put together."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from xclearn.data.dataset import Dataset
from xclearn.errors import DataError
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
    """P, nDCG, PSP, PSnDCG @1/3/5, recall and coverage @10/20/100 of the model on a split, in percent."""
    servable, part = model.model.servable, data.split(split)
    if list(model.model.labels.names) != list(data.labels.names):
        got = (len(model.model.labels), data.n_labels)
        raise DataError("the model and the data have different labels", where=data.name, got=got)
    predictions = measured(servable, device).predict(part.documents, max(*KS, *RECALL_KS), part.filter_pairs)
    return evaluate_predictions(
        predictions,
        part.relevance,
        label_weights(data),
        filter_pairs=part.filter_pairs,
        filter_rule=filter_rule,
    )


def label_counts(data: Dataset) -> np.ndarray:
    """Training documents of each label."""
    return np.asarray(data.train.relevance.sum(axis=0)).ravel()


def label_weights(data: Dataset) -> np.ndarray:
    """Inverse propensities from the whole train split."""
    return inverse_propensity(label_counts(data), len(data.train), *data.propensity)
