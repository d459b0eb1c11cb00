"""Evaluates several models on the same documents, over one common order of labels, for paired comparison.

Knows nothing about how a comparison is displayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import scipy.sparse as sp

from xclearn.data.dataset import Dataset
from xclearn.data.matching import over_labels
from xclearn.inference.evaluation import evaluate
from xclearn.inference.predictor import Predictor
from xclearn.metrics import Report


@final
@dataclass(frozen=True)
class Comparison:
    """The reports of several models, their common order of labels, and the data in that order."""

    data: Dataset
    reports: list[Report]


def compare(models: Sequence[Predictor], data: Dataset, *, split: str = "test", device: str = "cpu") -> Comparison:
    """Evaluate every model on the split; labels are matched by name, and unknown labels count as misses."""
    union = list(dict.fromkeys(name for model in models for name in model.labels.names))
    over_all = over_labels(data, union)
    reports = []
    for model in models:
        names = over_labels(over_all, model.labels.names).labels.names
        reports.append(_reordered(evaluate(model, over_all, split=split, device=device), names, over_all.labels.names))
    return Comparison(over_all, reports)


def _reordered(report: Report, names: Sequence[str], wanted: Sequence[str]) -> Report:
    """The report with its labels (`names`) in the order `wanted`."""
    if names is wanted or list(names) == list(wanted):
        return report
    place = {name: i for i, name in enumerate(wanted)}
    new_ids = np.array([place[name] for name in names], dtype=np.int64)  # (L,)
    old = report.relevance
    relevance = sp.csr_matrix((old.data, new_ids[old.indices], old.indptr), shape=old.shape)
    relevance.sort_indices()
    return replace(report, ids=np.where(report.ids >= 0, new_ids[report.ids], -1), relevance=relevance)
