"""The held-out score against the metrics on a full ranking."""

import numpy as np
import pytest
import torch
from planted import planted

from xclearn.data.topk import TopK
from xclearn.labels.propensity import inverse_propensity
from xclearn.metrics import evaluate_predictions
from xclearn.text import Words
from xclearn.training.prepare import prepare
from xclearn.training.scoring import held_out_score
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
