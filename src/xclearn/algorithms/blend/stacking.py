"""Learning what turns evidence into a probability, and whether it is worth it; all of it on held-out documents.

Everything is cross-fitted: learnt on one half of the documents, measured on the other. Knows nothing about where the
evidence comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple, final

import numpy as np
import scipy.sparse as sp

from xclearn.data.dataset import Split
from xclearn.data.splits import resembling
from xclearn.inference.blend import COLUMNS, ROWS_AT_ONCE, AnyStacker, Evidence, Sources, blocks_of
from xclearn.inference.operating_points import OperatingPoints
from xclearn.inference.sparse import unit_rows
from xclearn.inference.stackers import Isotonic, LinearStacker, MeanStacker, TreeStacker

Kind = Literal["linear", "trees", "both"]
KINDS: tuple[Kind, ...] = ("linear", "both")

_MOST_PAIRS = 400_000  # that a stacker is learnt on; beyond, wrong pairs are drawn and weigh more
_FEW_RIGHT = 200  # right pairs below which a logistic curve calibrates instead of an isotonic line
_DEPTHS = (1, 5, 10)  # what a ranking is judged by: precision at 1, nDCG at 5, recall at 10
_POINTS = 41  # of a logistic curve
_FURTHEST = 17.0  # logits beyond any that a member gives
_LARGEST = float(np.finfo(np.float32).max)  # a threshold that only tells missing values apart is infinite
_NAMED = -3  # the column that counts the lists which name a label
_ERRORS = 2.0  # standard errors that a stack must be ahead
_EMPTY = Evidence(np.empty(0, np.int64), np.empty(0, np.int64), np.empty((0, 0), np.float32))


@final
@dataclass(frozen=True)
class HeldOut:
    """Evidence about held-out documents, and what was right."""

    rows: np.ndarray  # (m,) int64 document of each pair, ascending
    labels: np.ndarray  # (m,) int64
    values: np.ndarray  # (m, F) float32
    right: np.ndarray  # (m,) bool
    n_right: np.ndarray  # (n,) right labels of each document, found or not
    groups: np.ndarray  # (n,) documents that resemble each other
    seed: int

    @cached_property
    def half(self) -> np.ndarray:
        """Which half a document belongs to, with all that resemble it, (n,) bool."""
        chosen = np.random.default_rng(self.seed).permutation(self.groups.max(initial=0) + 1) % 2 == 0
        return chosen[self.groups]

    @cached_property
    def kept(self) -> np.ndarray:
        """The pairs to learn on, (m,) bool: every right one, and of the others what there is room for."""
        wrong = np.flatnonzero(~self.right)
        room = max(_MOST_PAIRS - int(self.right.sum()), 1)
        kept = self.right.copy()
        kept[wrong if len(wrong) <= room else np.random.default_rng(self.seed).choice(wrong, room, replace=False)] = (
            True
        )
        return kept

    @cached_property
    def weights(self) -> np.ndarray:
        """What makes up for wrong pairs that were not drawn, (m,)."""
        drawn = int((self.kept & ~self.right).sum())
        return np.where(self.right, 1.0, (~self.right).sum() / max(drawn, 1))

    def without(self, place: int) -> HeldOut:
        """The same where the list at this place had never been: its columns go, and what it alone named."""
        own = slice(COLUMNS * place, COLUMNS * (place + 1))
        values = self.values.copy()
        values[:, _NAMED] -= values[:, own.stop - 1] > 0
        kept = values[:, _NAMED] > 0
        values = np.delete(values[kept], own, axis=1)
        return replace(self, rows=self.rows[kept], labels=self.labels[kept], values=values, right=self.right[kept])

    def gains(self, logits: np.ndarray) -> np.ndarray:
        """What a ranking is worth for each document, 0 to 1: the mean of P@1, nDCG@5 and R@10.  # (n,)"""
        order = np.lexsort((self.labels, -logits, self.rows))
        starts = np.searchsorted(self.rows, np.arange(len(self.n_right)))
        place = np.arange(len(order)) - starts[self.rows[order]]
        right, document = self.right[order], self.rows[order]

        def total(worth: np.ndarray) -> np.ndarray:
            return np.bincount(document, weights=worth * right, minlength=len(self.n_right))

        first, second, third = _DEPTHS
        ideal = np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(2, second + 2)))])
        attainable = np.maximum(self.n_right, 1)
        precision = total(place < first)
        gain = total((place < second) / np.log2(place + 2)) / ideal[np.minimum(attainable, second)]
        recall = total(place < third) / np.minimum(attainable, third)
        result: np.ndarray = (precision + gain + recall) / 3
        return result

    def expected_error(self, logits: np.ndarray, probabilities: np.ndarray, depth: int = 5, bins: int = 15) -> float:
        """ECE@5: the mean distance of probability and truth over bins, of each document's first labels."""
        order = np.lexsort((self.labels, -logits, self.rows))
        starts = np.searchsorted(self.rows, np.arange(len(self.n_right)))
        first = order[np.arange(len(order)) - starts[self.rows[order]] < depth]
        own, right = probabilities[first], self.right[first].astype(np.float64)
        place = np.minimum((own * bins).astype(np.int64), bins - 1)
        off = np.bincount(place, weights=own - right, minlength=bins)
        return float(np.abs(off).sum() / max(len(first), 1))


def judged(sources: Sources, held: Split) -> HeldOut:
    """The evidence about held-out documents; labels that no document of train has teach nothing."""
    seen = sources.counts > 0
    relevance = sp.csr_matrix(held.relevance @ sp.diags(seen.astype(np.float32)))
    relevance.eliminate_zeros()
    held = replace(held, relevance=relevance).take(np.flatnonzero(relevance.getnnz(axis=1)))
    parts = [_EMPTY]
    for start, (documents, exclude) in enumerate(blocks_of(held.documents, held.filter_pairs)):
        evidence = sources.evidence(documents, exclude)
        own = seen[evidence.labels]
        parts.append(Evidence(evidence.rows[own] + ROWS_AT_ONCE * start, evidence.labels[own], evidence.values[own]))
    rows, labels = (np.concatenate([part[i] for part in parts]) for i in range(2))
    values = np.concatenate(
        [part.values for part in parts[1:]] or [np.empty((0, len(sources.value_names)), np.float32)]
    )
    relevant, column = held.relevance.nonzero()
    truth = relevant.astype(np.int64) * sources.n_labels + column
    right = np.isin(rows * sources.n_labels + labels, truth)
    return HeldOut(rows, labels, values, right, held.relevance.getnnz(axis=1), _groups(sources, held), 0)


def _groups(sources: Sources, held: Split) -> np.ndarray:
    """Which of the documents resemble each other, (n,)."""
    features = sources.vectoriser.transform(held.documents)
    return resembling(unit_rows(features)) if sp.issparse(features) else np.arange(len(held))


def together(folds: Sequence[HeldOut], seed: int) -> HeldOut:
    """The documents of all folds, one after the other."""
    starts = np.cumsum([0, *(len(fold.n_right) for fold in folds)])
    rows = np.concatenate([fold.rows + start for fold, start in zip(folds, starts, strict=False)])
    names = ("labels", "values", "right", "n_right")
    labels, values, right, n_right = (np.concatenate([getattr(fold, name) for fold in folds]) for name in names)
    sizes = np.cumsum([0, *(fold.groups.max(initial=-1) + 1 for fold in folds)])
    groups = np.concatenate([fold.groups + start for fold, start in zip(folds, sizes, strict=False)])
    return HeldOut(rows, labels, values, right, n_right, groups, seed)


class Learnt(NamedTuple):
    """A stacker, its calibration, and what it is worth by cross-fit."""

    stacker: AnyStacker
    calibration: Isotonic
    gains: np.ndarray  # (n,)
    expected_error: float
    points: OperatingPoints | None


def learn(data: HeldOut, kind: Kind) -> Learnt:
    """A stacker of a kind over all evidence."""
    return _learn(data, {"linear": _linear, "trees": _trees, "both": _both}[kind])


def single(data: HeldOut, column: int) -> Learnt:
    """What ranks as one column does; where it says nothing, a label comes last."""
    known = data.values[:, column][~np.isnan(data.values[:, column])].astype(np.float64)
    lowest = np.full(data.values.shape[1], 0.0)
    lowest[column] = known.min(initial=0.0) - 1.0
    weights = np.zeros(data.values.shape[1])
    weights[column] = 1.0
    return _learn(data, lambda *_: LinearStacker(weights, lowest, 0.0))


def unlearnt(n_values: int) -> tuple[LinearStacker, Isotonic]:
    """The first member's own scores, where there was nothing to learn from."""
    weights, lowest = np.zeros(n_values), np.zeros(n_values)
    weights[0], lowest[0] = 1.0, -_FURTHEST
    points = np.linspace(-_FURTHEST, _FURTHEST, 8 * _POINTS)
    return LinearStacker(weights, lowest, 0.0), Isotonic(points, 1 / (1 + np.exp(-points)))


def is_ahead(stack: Learnt, member: Learnt) -> bool:
    """Whether a stack ranks better than a member by more than two paired standard errors."""
    ahead = stack.gains - member.gains
    return bool(ahead.mean() > _ERRORS * ahead.std() / np.sqrt(len(ahead)))


def dispensed(data: HeldOut, names: Sequence[str], best: str) -> tuple[HeldOut, Learnt, list[str]]:
    """What is left when members (the first lists) go one by one, as long as a linear stack ranks as well without.

    The best member stays: on few documents chance alone may say that it adds nothing.
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
    """The same with this member (of those the first lists are of) and no other."""
    for place in reversed(range(len(names))):
        if names[place] != name:
            data = data.without(place)
    return data


def _learn(data: HeldOut, fit: Callable[..., AnyStacker]) -> Learnt:
    logits, probabilities = np.zeros(len(data.rows)), np.zeros(len(data.rows))
    own_half = data.half[data.rows]
    for half in (False, True):
        asked = own_half == half
        logits[asked] = fit(*_material(data, ~asked))(data.values[asked])
    for half in (False, True):
        asked = own_half == half
        probabilities[asked] = _calibration(logits[~asked], data.right[~asked])(logits[asked])
    whole = fit(*_material(data, np.ones(len(data.rows), dtype=bool)))
    calibration = _calibration(logits, data.right)
    points = OperatingPoints.of(data.rows, probabilities, data.right, data.n_right)
    return Learnt(whole, calibration, data.gains(logits), data.expected_error(logits, probabilities), points)


def _material(data: HeldOut, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values, truth and weights of the chosen pairs that are learnt on."""
    chosen = chosen & data.kept
    return data.values[chosen], data.right[chosen], data.weights[chosen]


def _linear(values: np.ndarray, right: np.ndarray, weights: np.ndarray) -> LinearStacker:
    """Logistic regression; a missing value counts as the lowest."""
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
    """Gradient boosting by scikit-learn, as arrays."""
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
    silent = np.isnan(values).all(axis=0)  # a source that said nothing; scikit-learn wants a value in every column
    with threadpool_limits(1):  # sums over threads differ in their last bits from run to run
        model.fit(np.where(silent, np.float32(0), values), right, sample_weight=weights)
    return _as_arrays([stage[0].nodes for stage in model._predictors], float(model._baseline_prediction.ravel()[0]))


def _both(values: np.ndarray, right: np.ndarray, weights: np.ndarray) -> AnyStacker:
    """Their mean: what one of them overlooks, the other sees."""
    linear, trees = _linear(values, right, weights), _trees(values, right, weights)
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


def _calibration(logits: np.ndarray, right: np.ndarray) -> Isotonic:
    """From logits to probabilities: isotonic, of few right pairs a logistic curve."""
    from sklearn.isotonic import IsotonicRegression
    from sklearn.linear_model import LogisticRegression

    if not right.any() or right.all():
        return Isotonic(np.zeros(1), np.full(1, float(right.any())))
    if right.sum() >= _FEW_RIGHT:
        line = IsotonicRegression(y_min=0.0, y_max=1.0).fit(logits, right)
        return Isotonic(line.X_thresholds_.astype(np.float64), line.y_thresholds_.astype(np.float64))
    curve = LogisticRegression(C=1e3).fit(logits[:, None], right)
    slope = max(float(curve.coef_[0, 0]), 0.0)
    points = np.linspace(logits.min(), logits.max(), _POINTS)
    return Isotonic(points, 1 / (1 + np.exp(-(slope * points + float(curve.intercept_[0])))))
