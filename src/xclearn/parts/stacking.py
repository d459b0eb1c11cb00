"""Learns a stacker that turns evidence into probabilities, and whether it pays; all on held-out documents.

Everything is cross-fitted: learnt on one half of the documents and evaluated on the other. Knows nothing about where
the evidence comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from xclearn.inference.blend import AnyStacker
from xclearn.inference.stackers import Isotonic, LinearStacker, MeanStacker, TreeStacker
from xclearn.parts.held_out import HeldOut
from xclearn.parts.probabilities import Judged, calibrated

StackerKind = Literal["linear", "trees", "both"]
KINDS: tuple[StackerKind, ...] = ("linear", "both")

_POINTS = 328  # points of the default curve
_FURTHEST = 17.0  # beyond any logit of a member
_LARGEST = float(np.finfo(np.float32).max)  # replaces infinite thresholds, which only separate missing values
_ERRORS = 2.0  # standard errors by which a stack must win


class Learnt(NamedTuple):
    """A stacker, its calibration, and its cross-fitted quality."""

    stacker: AnyStacker
    calibration: Isotonic
    unseen: Isotonic | None  # calibration of labels without training documents; None: there were none
    gains: np.ndarray  # (n,)
    judged: Judged


def learn(data: HeldOut, kind: StackerKind) -> Learnt:
    """Learn a stacker of this kind from all evidence."""
    return _learn(data, {"linear": _linear, "trees": _trees, "both": _both}[kind])


def single(data: HeldOut, column: int) -> Learnt:
    """A stacker that ranks by one column; labels without a value come last."""
    known = data.values[:, column][~np.isnan(data.values[:, column])].astype(np.float64)
    lowest = np.full(data.values.shape[1], 0.0)
    lowest[column] = known.min(initial=0.0) - 1.0
    weights = np.zeros(data.values.shape[1])
    weights[column] = 1.0
    return _learn(data, lambda *_: LinearStacker(weights, lowest, 0.0))


def unlearnt(n_values: int) -> tuple[LinearStacker, Isotonic]:
    """The first member's own scores, if there is nothing to learn from."""
    weights, lowest = np.zeros(n_values), np.zeros(n_values)
    weights[0], lowest[0] = 1.0, -_FURTHEST
    points = np.linspace(-_FURTHEST, _FURTHEST, _POINTS)
    return LinearStacker(weights, lowest, 0.0), Isotonic(points, 1 / (1 + np.exp(-points)))


def is_ahead(stack: Learnt, member: Learnt) -> bool:
    """Whether a stack beats a member by more than two paired standard errors."""
    ahead = stack.gains - member.gains
    return bool(ahead.mean() > _ERRORS * ahead.std() / np.sqrt(len(ahead)))


def dispensed(data: HeldOut, names: Sequence[str], best: str) -> tuple[HeldOut, Learnt, list[str]]:
    """Remove members (the first lists) one by one as long as a linear stack ranks as well without them.

    The best member stays: with few documents it may seem useless by chance.
    """
    kept, whole = list(names), learn(data, "linear")
    while len(kept) > 1:
        others = [data.without(place) for place in range(len(kept))]
        learnt = [learn(other, "linear") for other in others]
        place = max(
            (place for place, name in enumerate(kept) if name != best),
            key=lambda place: float(learnt[place].gains.mean()),
        )
        if learnt[place].gains.mean() < whole.gains.mean():
            break
        data, whole = others[place], learnt[place]
        del kept[place]
    return data, whole, kept


def only(data: HeldOut, names: Sequence[str], name: str) -> HeldOut:
    """A copy with only this member among the first lists."""
    for place in reversed(range(len(names))):
        if names[place] != name:
            data = data.without(place)
    return data


def _learn(data: HeldOut, fit: Callable[..., AnyStacker]) -> Learnt:
    logits = np.zeros(len(data.rows))
    probabilities = np.zeros(len(data.rows))
    own_half = data.half[data.rows]
    for half in (False, True):
        asked = own_half == half
        logits[asked] = fit(*_material(data, ~asked))(data.values[asked])
    for half in (False, True):
        for kind in (data.seen, ~data.seen):
            asked = kind & (own_half == half)
            others = kind & (own_half != half)
            probabilities[asked] = calibrated(logits[others], data.right[others])(logits[asked])
    whole = fit(*_material(data, np.ones(len(data.rows), dtype=bool)))
    calibration = calibrated(logits[data.seen], data.right[data.seen])
    unseen = None if data.seen.all() else calibrated(logits[~data.seen], data.right[~data.seen])
    return Learnt(whole, calibration, unseen, data.gains(logits), Judged(data, logits, probabilities))


def _material(data: HeldOut, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values, truth and weights of the chosen training pairs."""
    chosen = chosen & data.kept
    return data.values[chosen], data.right[chosen], data.weights[chosen]


def _linear(values: np.ndarray, right: np.ndarray, weights: np.ndarray) -> LinearStacker:
    """Logistic regression; missing values count as the lowest."""
    from sklearn.linear_model import LogisticRegression

    if right.all() or not right.any():
        return _constant(values.shape[1], bool(right.all()) and len(right) > 0)
    known = ~np.isnan(values).all(axis=0)
    lowest = np.where(known, np.nanmin(np.where(known, values, 0.0), axis=0), 0.0).astype(np.float64)
    filled = np.where(known, np.fmax(values, lowest), 0.0)
    mean, deviation = filled.mean(axis=0), filled.std(axis=0) + 1e-6
    model = LogisticRegression(max_iter=300).fit((filled - mean) / deviation, right, sample_weight=weights)
    slopes = np.where(known, model.coef_[0] / deviation, 0.0)
    return LinearStacker(slopes, lowest, float(model.intercept_[0] - slopes @ mean))


def _trees(values: np.ndarray, right: np.ndarray, weights: np.ndarray) -> AnyStacker:
    """Gradient boosting by scikit-learn, converted to arrays."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits

    if right.all() or not right.any():
        return _constant(values.shape[1], bool(right.all()) and len(right) > 0)
    model = HistGradientBoostingClassifier(
        max_iter=100,
        learning_rate=0.1,
        max_leaf_nodes=31,
        min_samples_leaf=40,
        l2_regularization=1.0,
        early_stopping=False,
        random_state=0,
    )
    silent = np.isnan(values).all(axis=0)  # a source without values; scikit-learn needs one in every column
    with threadpool_limits(1):  # sums over several threads differ in their last bits between runs
        model.fit(np.where(silent, np.float32(0), values), right, sample_weight=weights)
    return _as_arrays([stage[0].nodes for stage in model._predictors], float(model._baseline_prediction.ravel()[0]))


def _both(values: np.ndarray, right: np.ndarray, weights: np.ndarray) -> AnyStacker:
    """The mean of both stackers, which make different errors."""
    linear = _linear(values, right, weights)
    trees = _trees(values, right, weights)
    return MeanStacker(linear, trees) if isinstance(trees, TreeStacker) else linear


def _as_arrays(trees: list[np.ndarray], base: float) -> TreeStacker:
    sizes = np.array([len(nodes) for nodes in trees])
    roots = np.cumsum(sizes) - sizes
    nodes = np.concatenate(trees)
    offset, own = np.repeat(roots, sizes), np.arange(len(nodes))
    leaf = nodes["is_leaf"].astype(bool)

    def child(name: str) -> np.ndarray:
        return np.where(leaf, own, nodes[name].astype(np.int64) + offset).astype(np.int32)

    return TreeStacker(
        roots.astype(np.int32),
        np.where(leaf, 0, nodes["feature_idx"]).astype(np.int32),
        np.clip(np.where(leaf, 0.0, nodes["num_threshold"]), -_LARGEST, _LARGEST).astype(np.float64),
        child("left"),
        child("right"),
        nodes["missing_go_to_left"].astype(bool),
        nodes["value"].astype(np.float64),
        base,
    )


def _constant(n_values: int, right: bool) -> LinearStacker:
    zeros = np.zeros(n_values)
    return LinearStacker(zeros, zeros, 4.0 if right else -4.0)
