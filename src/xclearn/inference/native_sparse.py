"""The native form of label trees, sparse classifiers and label texts; `native.py` makes a predictor of it.

Their arrays are transposed to feature order when a model is loaded, so that a document reads one contiguous run per
word from each level, classifier or label text.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from xclearn.inference.components import AllLabels, Scorer
from xclearn.inference.servable import Servable
from xclearn.inference.sparse import LabelTrees, SparseClassifier, SparseFeatures, TextMix, TreeLevel
from xclearn.kernels import _native
from xclearn.text import Vectoriser
from xclearn.text.subwords import SubwordVectoriser
from xclearn.text.vectorisers import SparseVectoriser, TfidfVectoriser, WordPieceVectoriser
from xclearn.text.weighting import DAMPED

_FEATURES_TURNED = 1 << 25  # over all levels; more only if the weights justify it


def is_known_sparse(servable: Servable) -> bool:
    """Whether the native core supports every part: label trees or sparse classifiers, with or without label texts."""
    first, *texts = servable.scorers
    fusion = servable.fusion
    return (
        not servable.steps
        and isinstance(fusion, TextMix)
        and isinstance(first, SparseClassifier | LabelTrees)
        and (isinstance(first, SparseClassifier) or fusion.loss == "log")
        and (not texts or fusion.text_weight >= 0)
        and isinstance(servable.candidates, AllLabels)
        and isinstance(servable.vectoriser, TfidfVectoriser | SubwordVectoriser | SparseVectoriser)
        and all(isinstance(scorer, SparseClassifier) for scorer in texts)
        and all(isinstance(encoder, SparseFeatures) for encoder in servable.encoders.values())
        and not _wastes_memory(servable)
    )


def _wastes_memory(servable: Servable) -> bool:
    """Whether transposing the trees, at 8 bytes per feature and level, would take far more memory than their weights.

    A malicious folder can declare any number of features; its size bounds only the weights.
    """
    trees = [tree for scorer in servable.scorers if isinstance(scorer, LabelTrees) for tree in scorer.trees]
    levels = [level for tree in trees for level in tree.levels]
    turned = len(levels) * servable.vectoriser.n_features
    return turned > max(_FEATURES_TURNED, 8 * sum(len(level.weights) for level in levels))


def set_text(core: Any, vectoriser: Vectoriser) -> None:
    """Tell the core how to vectorise texts; features need nothing."""
    if isinstance(vectoriser, TfidfVectoriser):
        state: dict[str, Any] = vectoriser.to_state()
        damped = DAMPED if state["sublinear"] else np.empty(0)
        pieces = isinstance(vectoriser, WordPieceVectoriser)
        core.set_text(state["tokens"], pieces, state["idf"], damped, state["normalise"])
        if not vectoriser.preparation.is_plain:
            core.set_prepared()


def sparse_core(servable: Servable) -> Any:
    """The native core of a servable with sparse classifiers or label trees, and label texts."""
    assert isinstance(servable.fusion, TextMix)
    core = _native.SparsePredictor(servable.vectoriser.n_features, servable.n_labels)
    set_text(core, servable.vectoriser)
    first, *texts = servable.scorers
    if isinstance(first, LabelTrees):
        core.set_trees(first.loss, first.beam, _is_unit(servable, first))
        for tree in first.trees:
            core.add_tree([_level_parts(level) for level in tree.levels], tree.labels)
    else:
        core.set_classifier(_classifier_parts(first), servable.fusion.loss, _is_unit(servable, first))
    for text in texts:
        core.set_label_text(_classifier_parts(text), servable.fusion.text_weight, _is_unit(servable, text))
    return core


def _level_parts(level: TreeLevel) -> tuple[np.ndarray, ...]:
    return level.children, level.starts, level.features, level.nodes, level.weights, level.bias


def _classifier_parts(scorer: Scorer) -> tuple[np.ndarray, ...]:
    assert isinstance(scorer, SparseClassifier)
    return scorer.starts, scorer.labels, scorer.weights, scorer.bias


def _is_unit(servable: Servable, scorer: Scorer) -> bool:
    encoder = servable.encoders[scorer.vector]
    assert isinstance(encoder, SparseFeatures)
    return encoder.unit
