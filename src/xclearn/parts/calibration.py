"""A small decision tree that turns scores into chances of being right, learnt on documents that training did not see.

scikit-learn grows it; what is served is plain arrays. Knows nothing about models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from xclearn.config import Count, Share
from xclearn.inference.re_ranking import CalibrationTree, calibration_features


@final
@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A tree over the score, the score before re-ranking and the label's frequency."""

    depth: Count = 5  # of the tree
    weight: Share = 0.3  # of the tree's chance against the score


def calibration_tree(
    settings: Calibration,
    ids: np.ndarray,
    now: np.ndarray,
    before: np.ndarray,
    relevant: np.ndarray,
    label_counts: np.ndarray,
) -> CalibrationTree:
    """From labels (n, m), −1 where there are fewer, their scores now and before, and whether each is right."""
    from sklearn.tree import DecisionTreeClassifier

    counts, there = label_counts.astype(np.float32), ids >= 0
    values, right = calibration_features(ids, now, before, counts)[there], relevant[there]
    tree = DecisionTreeClassifier(max_depth=settings.depth, random_state=0).fit(values, right).tree_
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
        settings.weight,
    )
