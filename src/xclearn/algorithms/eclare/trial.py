"""A hold-out of train on which an algorithm chooses its own settings; the trial does not train on it.

Groups of near-duplicates are held out together. Otherwise packages of one source, or editions of one book, would be on
both sides, and memorising them would look like learning. Knows nothing about what is trained on the rest.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch

from xclearn.data.dataset import Split
from xclearn.inference.graph import Game, Graph
from xclearn.labels.clustering import cluster_labels
from xclearn.metrics.report import Report, Terms
from xclearn.parts.game import DEPTH
from xclearn.parts.rows import feature_rows
from xclearn.parts.text_training import TextTask
from xclearn.training.prepare import Prepared, required
from xclearn.training.run import Run
from xclearn.training.scoring import held_out_report

HELD_OUT, MOST_HELD_OUT = 0.05, 5_000  # size of the hold-out: share of train, and maximum
ENOUGH, MOST_OF_SMALL = 1_000, 0.2  # for small sets: enough to detect a gain of one point, but at most this share
GROUP = 32  # minimum documents of a group held out together


def parted(data: Prepared, run: Run) -> Prepared:
    """Split groups of documents off train as a hold-out."""
    n_documents = data.relevance.shape[0]
    n_groups = 1 << max(0, (n_documents // GROUP).bit_length() - 1)
    group = run.keep("trial-groups", lambda: cluster_labels(data.features, n_groups, run.seed_of("trial")))
    order = torch.randperm(n_groups, generator=run.generator("trial")).numpy()
    rank = np.argsort(order)[group]  # (N,) the first groups are held out
    enough = min(ENOUGH, int(MOST_OF_SMALL * n_documents))
    wanted = min(MOST_HELD_OUT, max(1, enough, int(HELD_OUT * n_documents)))
    held = rank < max(1, np.searchsorted(np.cumsum(np.bincount(rank)), wanted))
    out, kept = np.flatnonzero(held), np.flatnonzero(~held)
    return dataclasses.replace(
        data,
        features=data.features[kept],
        relevance=data.relevance[kept],
        held_out=Split(data.features[out], data.relevance[out]),
        held_out_features=data.features[out],
    )


def report_with_game(task: TextTask, data: Prepared, graph: Graph, share: float, run: Run) -> Report:
    """The metrics on the hold-out when this share of scores is propagated over the graph."""
    documents = feature_rows(required(data.held_out_features), run.device)

    def best(rows: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        ids, logits = task.best(documents, rows.to(run.device), max(k, DEPTH))
        if share == 0:
            return ids[:, :k], logits[:, :k]
        game = Game(graph, share, DEPTH)
        found, scores = game(ids.cpu().numpy(), logits.float().sigmoid().cpu().numpy())
        return torch.from_numpy(found[:, :k]), torch.from_numpy(scores[:, :k])

    return held_out_report(data, best)


class Gain(NamedTuple):
    """The gain of a choice over the first on the same documents: means with paired standard errors."""

    mean: float  # over the metrics
    error: float
    by_metric: dict[str, tuple[float, float]]

    @classmethod
    def over(cls, first: Report, other: Report, metrics: Sequence[str]) -> Gain:
        """From the difference of each document's contributions to both."""
        each = [_differences(other.terms[metric], first.terms[metric]) for metric in metrics]  # (n,) each
        found = {metric: _mean(values) for metric, values in zip(metrics, each, strict=True)}
        return cls(*_mean(np.mean(each, axis=0)), found)

    @property
    def counts(self) -> bool:
        """Whether it wins by more than one standard error, and no metric loses by more than one."""
        return self.mean > self.error and all(mean >= -error for mean, error in self.by_metric.values())

    def __str__(self) -> str:
        return ", ".join(f"{metric} {mean:+.2f} ± {error:.2f}" for metric, (mean, error) in self.by_metric.items())


def best_choice(reports: Mapping[tuple[int, float], Report], metrics: Sequence[str], run: Run) -> tuple[int, float]:
    """The order of convolution and the share of GAME that gain most over the first choice (least use of the graph).

    The first choice if no other wins. Logs the choice and its reason.
    """
    first = next(iter(reports))
    gains = {choice: Gain.over(reports[first], report, metrics) for choice, report in reports.items()}
    order, game = run.keep("choice", lambda: np.array(_most(gains, first)))
    chosen = int(order), float(game)
    figures = {f"{o}, {g:g}": {name: each.values[name] for name in metrics} for (o, g), each in reports.items()}
    run.log("choice", order=chosen[0], game=chosen[1], scores=figures)
    run.note(label_graph=_sentence(gains, first, chosen, len(reports[first].ids)))
    return chosen


def _most(gains: Mapping[tuple[int, float], Gain], first: tuple[int, float]) -> tuple[int, float]:
    ahead = [choice for choice, gain in gains.items() if gain.counts]
    return max(ahead, key=lambda choice: gains[choice].mean) if ahead else first


def _sentence(
    gains: Mapping[tuple[int, float], Gain], first: tuple[int, float], chosen: tuple[int, float], n: int
) -> str:
    others = [choice for choice in gains if choice != first]
    best = max(others, key=lambda choice: gains[choice].mean) if chosen == first and others else chosen
    what = "left out" if chosen == (0, 0.0) else f"order {chosen[0]}, game {chosen[1]:g}"
    why = f"order {best[0]}, game {best[1]:g} gains {gains[best]}" if best != first else "nothing else was tried"
    return f"{what}; on {n:,} held-out texts {why}"


def _differences(one: Terms, other: Terms) -> np.ndarray:
    """The difference of each document's contributions (n,), in percentage points."""
    return 100 * (one.gained - other.gained) * len(one.gained) / one.attainable.sum()


def _mean(values: np.ndarray) -> tuple[float, float]:
    """The mean and its standard error."""
    return float(values.mean()), float(values.std() / math.sqrt(len(values)))
