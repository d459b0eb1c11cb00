"""The held-out score against the metrics on a full ranking."""

import dataclasses

import numpy as np
import pytest
import torch
from planted import planted

from xclearn import config
from xclearn.algorithms.slice import Slice
from xclearn.data.topk import TopK
from xclearn.labels.propensity import inverse_propensity
from xclearn.metrics import evaluate_predictions
from xclearn.text import Words
from xclearn.training.prepare import prepare
from xclearn.training.scoring import best_fusion_weight, held_out_score, mixed_with, served_score
from xclearn.training.stage import Stopping


@pytest.mark.parametrize("metric", ["P@1", "P@5", "PSP@5", "nDCG@5", "R@10"])
def test_equals_the_metric_of_the_full_ranking(metric):
    prepared = prepare(planted(), Words(), Stopping(hold_out=0.2), seed=0)
    held_out = prepared.held_out
    scores = np.random.default_rng(0).random(held_out.relevance.shape) + 0.3 * held_out.relevance.toarray()

    def best(rows: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        found = torch.from_numpy(scores)[rows].topk(k, dim=1)
        return found.indices, found.values

    order = np.argsort(-scores, axis=1)
    whole = TopK(order, np.take_along_axis(scores, order, axis=1))
    weights = inverse_propensity(prepared.label_counts, prepared.n_train, *prepared.propensity)
    expected = evaluate_predictions(whole, held_out.relevance, weights).values[metric]
    assert held_out_score(prepared, metric, best)() == pytest.approx(expected)
    assert 0 < expected < 100


def test_the_best_fusion_weight_is_the_one_that_serves_best():
    """Against measuring the servable with each weight in turn."""
    data = planted("sparse", n_labels=12)
    stopping = Stopping(hold_out=0.2)
    fitted = config.build(Slice, {"fusion_weight": 0.5, "shortlist_size": 6}).fit(data, device="cpu")
    prepared, servable = prepare(data, fitted.vectoriser, stopping, 0), fitted.model.servable
    rng = np.random.default_rng(0)
    worse = dataclasses.replace(servable.scorers[0], bias=rng.normal(0, 3, 12).astype(np.float32))
    servable = dataclasses.replace(servable, scorers=[worse])
    weights = (1.0, 0.6, 0.3, 0.0)
    scores = {weight: served_score(prepared, stopping.metric, mixed_with(servable, weight)) for weight in weights}
    print(scores)
    assert len(set(scores.values())) > 1
    assert best_fusion_weight(prepared, stopping, servable, weights) == max(scores, key=lambda weight: scores[weight])
