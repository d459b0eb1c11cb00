"""The held-out metric of a stage: top-k on the training device, evaluated as everywhere else.

Knows nothing about stages or algorithms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from xclearn.data.topk import TopK
from xclearn.inference.one_form import one_form
from xclearn.inference.servable import Servable
from xclearn.inference.shortlists import Mix, TwoLevelMix
from xclearn.labels.propensity import inverse_propensity
from xclearn.metrics import evaluate_predictions, extra_for_filter
from xclearn.metrics.report import Report
from xclearn.training.prepare import Prepared, required
from xclearn.training.stage import Stopping

if TYPE_CHECKING:
    import torch

    from xclearn.parts.rows import FeatureRows, SparseRows

TEXT_WEIGHTS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5)  # candidate weights of the cosine with a label's text

_AT_ONCE = 1024  # documents per batch
_MOST_FILTERED = 100  # a few documents have hundreds of filtered labels; the top 10 needs no more


class Ranking(Protocol):
    """A task over labels that can rank them for documents."""

    @property
    def positives(self) -> SparseRows:
        """Relevance (N, L)."""
        ...

    def best(self, documents: FeatureRows, rows: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The k best labels of the documents `rows` (n,): ids, logits (n, k)."""
        ...


def task_score(task: Ranking, data: Prepared, stopping: Stopping | None) -> Callable[[], float] | None:
    """The held-out metric of a task over labels, if there is early stopping."""
    if stopping is None:
        return None
    from xclearn.parts.rows import feature_rows

    device = task.positives.indptr.device
    held_out = feature_rows(required(data.held_out_features), device)
    return held_out_score(data, stopping.metric, lambda rows, k: task.best(held_out, rows.to(device), k))


def held_out_score(
    data: Prepared, metric: str, best: Callable[[torch.Tensor, int], tuple[torch.Tensor, torch.Tensor]]
) -> Callable[[], float]:
    """A function that returns the metric in percent; `best(rows, k)` ranks labels for held-out documents."""
    return lambda: held_out_report(data, best).values[metric]


def held_out_report(data: Prepared, best: Callable[[torch.Tensor, int], tuple[torch.Tensor, torch.Tensor]]) -> Report:
    """The metrics on the held-out documents; `best(rows, k)` ranks labels for some of them."""
    import torch

    n, k = len(required(data.held_out)), _depth(data)
    found = [best(rows, k) for rows in torch.arange(n).split(_AT_ONCE)]
    ids, scores = (np.concatenate([part[i].cpu().numpy() for part in found]) for i in (0, 1))
    return _report(data, TopK(ids, scores))


def _depth(data: Prepared) -> int:
    """The number of labels per held-out document that the metric needs."""
    filtered = extra_for_filter(required(data.held_out).filter_pairs)
    return min(10 + min(filtered, _MOST_FILTERED), data.relevance.shape[1])


def _report(data: Prepared, found: TopK) -> Report:
    """The metrics of predictions for the held-out documents."""
    split = required(data.held_out)
    weights = inverse_propensity(data.label_counts, data.n_train, *data.propensity)
    return evaluate_predictions(found, split.relevance, weights, filter_pairs=split.filter_pairs, recall_ks=(10,))


def best_text_weight(data: Prepared, stopping: Stopping | None, served: Callable[[float], Servable]) -> float:
    """The first of `TEXT_WEIGHTS` with the best held-out metric."""
    metric = required(stopping).metric
    return max(TEXT_WEIGHTS, key=lambda weight: served_score(data, metric, served(weight)))


def mixed_with(servable: Servable, weight: float) -> Servable:
    """The servable with another weight of scorers against candidates."""
    assert isinstance(servable.fusion, Mix | TwoLevelMix)
    return replace(servable, fusion=replace(servable.fusion, weight=weight))


def best_fusion_weight(
    data: Prepared, stopping: Stopping | None, servable: Servable, weights: Sequence[float]
) -> float:
    """The first weight with the best held-out metric; candidates and logits are computed once."""
    import torch
    from torch.nn.functional import pad

    metric = required(stopping).metric
    starts = range(0, len(required(data.held_out)), _AT_ONCE)
    found = {start: _candidates(data, servable, slice(start, start + _AT_ONCE)) for start in starts}

    def score(weight: float) -> float:
        fusion = mixed_with(servable, weight).fusion

        def best(rows: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
            ids, similarity, logits = found[int(rows[0])]
            scores = torch.from_numpy(fusion(similarity, logits))
            first = scores.topk(min(k, scores.shape[1]), dim=1)
            missing = (0, k - first.values.shape[1])
            ids_of_best = torch.from_numpy(ids).gather(1, first.indices)
            return pad(ids_of_best, missing, value=-1), pad(first.values, missing, value=-torch.inf)

        return held_out_score(data, metric, best)()

    return max(weights, key=score)


def _candidates(data: Prepared, servable: Servable, rows: slice) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Ids, similarities and the logits of each scorer (n, m) of some held-out documents."""
    features = required(data.held_out_features)[rows]
    vectors = {name: encoder.encode(features) for name, encoder in servable.encoders.items()}
    found = servable.candidates.find(vectors)
    assert found is not None
    ids, similarity = found
    return ids, similarity, [scorer.score(vectors[scorer.vector], ids) for scorer in servable.scorers]


def served_score(data: Prepared, metric: str, servable: Servable) -> float:
    """The held-out metric of a servable, in percent."""
    return _report(data, one_form(servable).rank(required(data.held_out_features), _depth(data))).values[metric]
