"""A small decision tree that turns scores into probabilities, learnt on held-out documents.

scikit-learn trains it; it is served as plain arrays. Knows nothing about models.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import numpy as np

from xclearn.config import AUTO, Auto, Count, Share
from xclearn.errors import DataError
from xclearn.inference.re_ranking import CalibrationTree, calibration_features

_WEIGHTS, _USUAL_WEIGHT = (
    (0.0, 0.03, 0.1, 0.3, 0.6, 1.0),
    0.3,
)  # candidates, and the default if there are too few documents
_FEWEST = 20  # minimum held-out documents to choose a weight
_FIRST = 5  # best labels per document whose order is measured


@final
@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A decision tree over the score, the score before re-ranking and the label's frequency."""

    depth: Count = 5  # depth of the tree
    weight: Auto[Share] = AUTO  # weight of the tree's probability beside the score; auto: what ranks the hold-out best


def calibration_tree(
    settings: Calibration,
    ids: np.ndarray,
    now: np.ndarray,
    before: np.ndarray,
    relevant: np.ndarray,
    label_counts: np.ndarray,
) -> CalibrationTree:
    """Learnt from labels (n, m), padded with −1, their scores now and before re-ranking, and whether each is correct.

    `label_counts` (L,) are counts in the training documents. Labels without any are left out: they may be known only
    from the held-out documents themselves, for which they are always correct.
    """
    ids = np.where(label_counts[np.maximum(ids, 0)] > 0, ids, -1)
    if not (ids >= 0).any():
        got = "none with a training document"
        todo = "Leave calibration out, or train longer."
        raise DataError("no label predicted on the hold-out has a training document", got=got, todo=todo)
    relevant = relevant & (ids >= 0)
    now, before = (np.where(ids < 0, 0, scores) for scores in (now, before))
    answers = (ids, now, before, relevant)
    counts = label_counts.astype(np.float32)
    weight = _best_weight(settings.depth, answers, counts) if settings.weight is AUTO else settings.weight
    return replace(_tree(settings.depth, answers, counts), weight=weight)


def _best_weight(depth: int, answers: tuple[np.ndarray, ...], counts: np.ndarray) -> float:
    """The weight with which a tree learnt on one half of the documents ranks the other half best.

    Zero unless it is better by more than two standard errors: among five weights, one may win by chance.
    """
    if len(answers[0]) < _FEWEST:
        return _USUAL_WEIGHT
    gains = []
    for half in range(2):
        learnt, asked = (tuple(part[start::2] for part in answers) for start in (half, 1 - half))
        ids, now, before, relevant = asked
        tree = _tree(depth, learnt, counts)
        scores = (replace(tree, weight=weight)(ids, now, before) for weight in _WEIGHTS)
        gains.append([_gains(np.where(ids < 0, -np.inf, score), relevant) for score in scores])
    ahead = np.concatenate(gains, axis=1) - np.concatenate([part[0] for part in gains])  # (weights, n)
    best = int(ahead.mean(axis=1).argmax())
    error = ahead[best].std() / np.sqrt(ahead.shape[1])
    return _WEIGHTS[best] if ahead[best].mean() > 2 * error else 0.0


def _gains(scores: np.ndarray, relevant: np.ndarray) -> np.ndarray:
    """The discounted gain (n,) of each document's first labels when ranked by `scores` (n, m)."""
    first = np.argsort(-scores, axis=1, kind="stable")[:, :_FIRST]
    worth: np.ndarray = np.take_along_axis(relevant, first, axis=1) / np.log2(np.arange(2, first.shape[1] + 2))
    return worth.sum(axis=1)


def _tree(depth: int, answers: tuple[np.ndarray, ...], counts: np.ndarray) -> CalibrationTree:
    from sklearn.tree import DecisionTreeClassifier

    ids, now, before, relevant = answers
    there = ids >= 0
    values = calibration_features(ids, now, before, counts)[there]
    right = relevant[there]
    tree = DecisionTreeClassifier(max_depth=depth, random_state=0).fit(values, right).tree_
    leaf = tree.children_left < 0
    own = np.arange(tree.node_count)
    share = tree.value[:, 0, -1] if tree.value.shape[2] > 1 else np.full(len(own), float(right.any()))
    return CalibrationTree(
        np.where(leaf, 0, tree.feature).astype(np.int64),
        np.where(leaf, 0.0, tree.threshold),
        np.where(leaf, own, tree.children_left).astype(np.int64),
        np.where(leaf, own, tree.children_right).astype(np.int64),
        share.astype(np.float32),
        counts,
        int(tree.max_depth),
        1.0,
    )
