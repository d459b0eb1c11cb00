"""A hold-out of train on which an algorithm chooses its own settings: nothing of it is seen in the trial.

Documents leave in groups that resemble each other. Held out one by one, the packages of one source or the editions of
one book would stand on both sides, and what only remembers siblings would look as if it had learnt. Knows nothing about
what is trained on the rest.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
import torch

from xclearn.data.dataset import Split
from xclearn.inference.graph import Game, Graph
from xclearn.labels.clustering import cluster_labels
from xclearn.parts.game import DEPTH
from xclearn.parts.rows import feature_rows
from xclearn.parts.text_training import TextTask
from xclearn.training.prepare import Prepared
from xclearn.training.run import Run
from xclearn.training.scoring import held_out_score

HELD_OUT, MOST_HELD_OUT = 0.05, 5_000  # documents of the hold-out: a share of train, and the most
GROUP = 32  # documents at least of a group that leaves together


def parted(data: Prepared, run: Run) -> Prepared:
    """Split some groups of documents off train as its hold-out."""
    n_documents = data.relevance.shape[0]
    n_groups = 1 << max(0, (n_documents // GROUP).bit_length() - 1)
    group = run.keep("trial-groups", lambda: cluster_labels(data.features, n_groups, run.seed_of("trial")))
    order = torch.randperm(n_groups, generator=run.generator("trial")).numpy()
    rank = np.argsort(order)[group]  # (N,) the groups that come first are held out
    wanted = min(MOST_HELD_OUT, max(1, int(HELD_OUT * n_documents)))
    held = rank < max(1, np.searchsorted(np.cumsum(np.bincount(rank)), wanted))
    out, kept = np.flatnonzero(held), np.flatnonzero(~held)
    return dataclasses.replace(
        data,
        features=data.features[kept],
        relevance=data.relevance[kept],
        held_out=Split(data.features[out], data.relevance[out]),
        held_out_features=data.features[out],
    )


def score_with_game(task: TextTask, data: Prepared, graph: Graph, share: float, metric: str, run: Run) -> float:
    """The metric on the hold-out when this share of the scores of the best labels is passed on over the graph."""
    assert data.held_out_features is not None
    documents = feature_rows(data.held_out_features, run.device)

    def best(rows: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        ids, logits = task.best(documents, rows.to(run.device), max(k, DEPTH))
        if share == 0:
            return ids[:, :k], logits[:, :k]
        game = Game(graph, share, DEPTH)
        found, scores = game(ids.cpu().numpy(), logits.float().sigmoid().cpu().numpy())
        return torch.from_numpy(found[:, :k]), torch.from_numpy(scores[:, :k])

    return held_out_score(data, metric, best)()


def best_choice(scores: Mapping[tuple[int, float], float], n: int, run: Run) -> tuple[int, float]:
    """The order of convolution and the share of GAME that score best on n documents.

    The first that was tried, which uses the graph least, unless another is ahead of it by more than chance may give:
    half the standard error of a mean over that many documents.
    """
    found = run.keep("choice", lambda: np.array(_ahead(scores, n)))
    order, game = int(found[0]), float(found[1])
    run.log("choice", order=order, game=game, scores={f"{o}, {g:g}": score for (o, g), score in scores.items()})
    return order, game


def _ahead(scores: Mapping[tuple[int, float], float], n: int) -> tuple[int, float]:
    first, best = next(iter(scores)), max(scores, key=lambda choice: scores[choice])
    score = scores[first]
    return best if scores[best] > score + 0.5 * math.sqrt(score * (100 - score) / n) else first
