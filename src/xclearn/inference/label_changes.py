"""Adds labels to a servable and removes them, by editing its classifiers, trees, clusters and memory.

Supports linear scores over all labels or over the labels of clusters, label trees and sparse classifiers with label
texts, and blends, in which members that cannot read a new label's text ignore it. Knows nothing about label names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
import scipy.sparse as sp

from xclearn.errors import ModelError
from xclearn.inference.blend import AnyServable, BlendServable, CsrRows, Memory, Sources, servables_of
from xclearn.inference.components import AllLabels, Candidates, Classifier, ClusterBeam
from xclearn.inference.servable import Ensemble, Servable
from xclearn.inference.sparse import LabelTrees, SparseClassifier, TextMix, Tree, TreeLevel, unit_rows
from xclearn.inference.text_rows import TextRows
from xclearn.text import Vectoriser

_SILENT = -30.0  # the logit of a label unknown to a classifier


@final
@dataclass(frozen=True)
class Additions:
    """Texts of the labels to add, and example documents."""

    texts: Sequence[str]
    examples: Sequence[Sequence[str]]

    def __len__(self) -> int:
        return len(self.texts)

    @cached_property
    def counts(self) -> np.ndarray:
        """The number of examples of each label, (m,)."""
        return np.array([len(each) for each in self.examples], dtype=np.int64)

    @cached_property
    def documents(self) -> list[str]:
        """All examples, sorted by label."""
        return [text for each in self.examples for text in each]

    @cached_property
    def owners(self) -> np.ndarray:
        """The label of each document."""
        return np.repeat(np.arange(len(self)), self.counts)

    @cached_property
    def shares(self) -> sp.csr_matrix:
        """(m, documents): a matrix that averages each label's documents."""
        weights = 1 / self.counts[self.owners]
        return sp.csr_matrix((weights, (self.owners, np.arange(len(self.owners)))), (len(self), len(self.owners)))

    def rows(self, vectoriser: Vectoriser) -> tuple[sp.csr_matrix, sp.csr_matrix]:
        """Rows of texts and means of examples, each (m, V) of unit length, or zero if there are none."""
        texts = unit_rows(sp.csr_matrix(vectoriser.transform(list(self.texts)), dtype=np.float32))
        documents = unit_rows(sp.csr_matrix(vectoriser.transform(self.documents), dtype=np.float32))
        return texts, unit_rows(sp.csr_matrix(self.shares @ documents, dtype=np.float32))


def grown(servable: AnyServable, makers: Sequence[TextRows | None], added: Additions) -> AnyServable:
    """The servable with more labels after its own; `makers` correspond to `servables_of`."""
    maker = dict(zip(map(id, servables_of(servable)), makers, strict=True))
    if not isinstance(servable, BlendServable):
        return _each(servable, lambda part: _grown(part, maker[id(part)], added))
    if servable.sources.label_texts is None and not any(
        _reads_texts(part, maker[id(part)]) for part in servables_of(servable)
    ):
        raise _cannot("no part of the blend reads a label's text")
    sources = _grown_sources(servable.sources, added)
    members = _members(servable, lambda part: _grown(part, maker[id(part)], added, may_be_silent=True))
    weights = servable.inverse_propensity
    if weights is not None:
        weights = np.concatenate([weights, weights[_alike(servable.sources.counts, added.counts)]])
    return replace(servable, sources=replace(sources, members=members), inverse_propensity=weights)


def shrunk(servable: AnyServable, kept: np.ndarray) -> AnyServable:
    """The servable with only the labels `kept` (ascending)."""
    if not isinstance(servable, BlendServable):
        return _each(servable, lambda part: _shrunk(part, kept))
    sources, weights = servable.sources, servable.inverse_propensity
    memory = sources.memory
    if memory is not None:
        memory = replace(memory, labels=CsrRows.of(memory.labels.matrix[:, kept]))
    made = replace(
        sources,
        members=_members(servable, lambda part: _shrunk(part, kept)),
        label_texts=_rows_at(sources.label_texts, kept),
        centroids=_rows_at(sources.centroids, kept),
        memory=memory,
        counts=sources.counts[kept],
    )
    return replace(servable, sources=made, inverse_propensity=None if weights is None else weights[kept])


def _members(blend: BlendServable, change: Callable[[Servable], Servable]) -> Mapping[str, Servable | Ensemble]:
    return {name: _each(member, change) for name, member in blend.sources.members.items()}


def _each(servable: Servable | Ensemble, change: Callable[[Servable], Servable]) -> Servable | Ensemble:
    if isinstance(servable, Ensemble):
        return Ensemble([change(member) for member in servable.members])
    return change(servable)


def _alike(counts: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """For each number in `wanted`, a label with about as many documents."""
    order = np.argsort(counts, kind="stable")
    place = np.searchsorted(counts[order], wanted)
    return order[np.minimum(place, len(order) - 1)]


# Growing


def _grown_sources(sources: Sources, added: Additions) -> Sources:
    """Add texts, means and examples of the new labels; members are not changed."""
    texts, means = added.rows(sources.vectoriser)
    memory = sources.memory
    return replace(
        sources,
        label_texts=None if sources.label_texts is None else _with_rows(sources.label_texts, texts),
        centroids=None if sources.centroids is None else _with_rows(sources.centroids, means),
        memory=None if memory is None else _remembering(memory, sources.vectoriser, added),
        counts=np.concatenate([sources.counts, added.counts]).astype(np.float32),
    )


def _remembering(memory: Memory, vectoriser: Vectoriser, added: Additions) -> Memory:
    """Add the examples to the memory, like training documents."""
    rows = unit_rows(sp.csr_matrix(vectoriser.transform(added.documents), dtype=np.float32))
    width = memory.labels.width
    ones = np.ones(len(added.owners), dtype=np.float32)
    own = sp.csr_matrix((ones, (np.arange(len(ones)), width + added.owners)), (len(ones), width + len(added)))
    before = memory.labels.matrix
    wider = sp.csr_matrix((before.data, before.indices, before.indptr), (before.shape[0], width + len(added)))
    labels = CsrRows.of(sp.vstack([wider, own], format="csr"))
    return replace(memory, documents=_with_rows(memory.documents, rows), labels=labels)


def _with_rows(rows: CsrRows, more: sp.csr_matrix) -> CsrRows:
    return CsrRows.of(sp.vstack([rows.matrix, more], format="csr"))


def _reads_texts(servable: Servable, maker: TextRows | None) -> bool:
    return maker is not None or (_is_sparse(servable) and len(servable.scorers) > 1)


def _grown(servable: Servable, maker: TextRows | None, added: Additions, *, may_be_silent: bool = False) -> Servable:
    if not (may_be_silent or _reads_texts(servable, maker)):
        raise _cannot("the model cannot make a row of a label's text")
    if _is_sparse(servable):
        return _grown_sparse(servable, added)
    scorer, candidates = _editable(servable)
    if maker is None:
        rows = np.zeros((len(added), scorer.weight.shape[1]), dtype=np.float32)
        biases = np.full(len(added), _SILENT)
    else:
        rows, biases = _rows_of(servable, scorer, maker, added)
    weight = np.concatenate([scorer.weight, rows])
    bias = np.concatenate([scorer.bias, biases]).astype(np.float32)
    made = replace(scorer, weight=weight, bias=bias)
    if isinstance(candidates, ClusterBeam):
        return replace(servable, scorers=[made], candidates=_placed(candidates, rows))
    return replace(servable, scorers=[made])


def _rows_of(
    servable: Servable, scorer: Classifier, maker: TextRows, added: Additions
) -> tuple[np.ndarray, np.ndarray]:
    """Rows (m, D) and biases (m,) for the new labels."""
    vectors = np.zeros((0, scorer.weight.shape[1]), dtype=np.float32)  # (examples, D)
    if added.documents:
        vectors = servable.encoders[scorer.vector].encode(servable.vectoriser.transform(added.documents))
    return maker.rows(servable.vectoriser.transform(list(added.texts)), added.shares @ vectors, added.counts)


def _grown_sparse(servable: Servable, added: Additions) -> Servable:
    """Trees and classifiers ignore the new labels, which are found by their texts and examples."""
    first, *others = servable.scorers
    texts, means = added.rows(servable.vectoriser)
    if isinstance(first, LabelTrees):
        made: Any = replace(first, trees=[_with_leaves(tree, len(added)) for tree in first.trees])
    else:
        assert isinstance(first, SparseClassifier)
        silent = sp.csr_matrix((len(added), first.matrix.shape[0]), dtype=np.float32)
        made = _with_labels(first, silent, _SILENT)
    return replace(servable, scorers=[made, *(_with_labels(text, unit_rows(texts + means), 0.0) for text in others)])


def _with_labels(scorer: Any, rows: sp.csr_matrix, bias: float) -> SparseClassifier:
    assert isinstance(scorer, SparseClassifier)
    weights = sp.vstack([scorer.matrix.T, rows], format="csr")
    return SparseClassifier.of(
        scorer.vector, weights, np.concatenate([scorer.bias, np.full(rows.shape[0], bias, dtype=np.float32)])
    )


def _with_leaves(tree: Tree, n: int) -> Tree:
    """Append the new labels below the last node, with a bias so low that only their texts find them."""
    last = tree.levels[-1]
    children = last.children.copy()
    children[-1] += n
    bias = np.concatenate([last.bias, np.full(n, _SILENT, dtype=np.float32)])
    labels = np.concatenate([tree.labels, len(tree.labels) + np.arange(n)])
    return Tree([*tree.levels[:-1], replace(last, children=children, bias=bias)], labels)


def _placed(clusters: ClusterBeam, rows: np.ndarray) -> ClusterBeam:
    """Append each new label to the cluster whose classifier is most similar to its own."""
    cluster = (rows @ clusters.weight.T).argmax(axis=1)  # (m,)
    n_labels = len(clusters.labels)
    owner = np.concatenate([np.repeat(np.arange(len(clusters.bias)), np.diff(clusters.offsets)), cluster])
    labels = np.concatenate([clusters.labels, n_labels + np.arange(len(rows))])
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(clusters.bias)), dtype=np.int64)])
    return replace(clusters, labels=labels[np.argsort(owner, kind="stable")], offsets=offsets.astype(np.int64))


# Shrinking


def _shrunk(servable: Servable, kept: np.ndarray) -> Servable:
    if _is_sparse(servable):
        return replace(servable, scorers=[_sparse_at(scorer, kept) for scorer in servable.scorers])
    scorer, candidates = _editable(servable)
    made = replace(scorer, weight=scorer.weight[kept], bias=scorer.bias[kept])
    if not isinstance(candidates, ClusterBeam):
        return replace(servable, scorers=[made])
    place = _places(kept, scorer.n_labels)
    there = place[candidates.labels] >= 0
    offsets = np.concatenate([[0], np.cumsum(there, dtype=np.int64)])[candidates.offsets]
    left = replace(candidates, labels=place[candidates.labels[there]], offsets=offsets)
    return replace(servable, scorers=[made], candidates=left)


def _sparse_at(scorer: Any, kept: np.ndarray) -> Any:
    if isinstance(scorer, LabelTrees):
        return replace(scorer, trees=[_pruned(tree, kept) for tree in scorer.trees])
    return SparseClassifier.of(scorer.vector, scorer.matrix.T.tocsr()[kept], scorer.bias[kept])


def _pruned(tree: Tree, kept: np.ndarray) -> Tree:
    """Remove other labels, and nodes without labels below."""
    place = _places(kept, len(tree.labels))
    there, levels = place[tree.labels] >= 0, []
    labels = place[tree.labels[there]]
    for level in reversed(tree.levels):
        made, there = _level_at(level, there)
        levels.append(made)
    return Tree(levels[::-1], labels)


def _level_at(level: TreeLevel, there: np.ndarray) -> tuple[TreeLevel, np.ndarray]:
    """The level without other children; also which parents remain."""
    before = np.concatenate([[0], np.cumsum(there)])
    left = np.diff(before[level.children])  # (parents,)
    stays = there[level.nodes]
    entries = np.concatenate([[0], np.cumsum(stays)])
    sizes = np.diff(entries[level.starts])[left > 0]
    made = TreeLevel(
        np.concatenate([[0], np.cumsum(left[left > 0])]).astype(np.int64),
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        level.features[stays],
        before[level.nodes[stays]].astype(np.int32),
        level.weights[stays],
        level.bias[there],
    )
    return made, left > 0


def _places(kept: np.ndarray, n: int) -> np.ndarray:
    """The new id of each of n labels, −1 if removed."""
    place = np.full(n, -1, dtype=np.int64)
    place[kept] = np.arange(len(kept))
    return place


def _rows_at(rows: CsrRows | None, kept: np.ndarray) -> CsrRows | None:
    return None if rows is None else CsrRows.of(rows.matrix[kept])


def _is_sparse(servable: Servable) -> bool:
    """Whether it has label trees or sparse classifiers over all labels, with or without label texts."""
    first, *others = servable.scorers
    return (
        not servable.steps
        and isinstance(servable.candidates, AllLabels)
        and isinstance(servable.fusion, TextMix)
        and isinstance(first, LabelTrees | SparseClassifier)
        and all(isinstance(other, SparseClassifier) for other in others)
    )


def _editable(servable: Servable) -> tuple[Classifier, Candidates]:
    """The classifier and the candidates, if labels can be added and removed."""
    scorer, *others = servable.scorers
    whole = isinstance(servable.candidates, AllLabels | ClusterBeam)
    if others or servable.steps or not whole or not isinstance(scorer, Classifier):
        todo = "Edit the model that it was exported from; a re-ranker, a label graph or an index must be trained again."
        raise ModelError("labels of this kind of model cannot be edited", todo=todo)
    return scorer, servable.candidates


def _cannot(what: str) -> ModelError:
    todo = "Train blend, dual_encoder, decaf or label_tree on labels with texts, or train again with the new labels."
    return ModelError(what, todo=todo)
