"""Labels added to a model without training, and labels removed from it.

A model whose candidates are all labels, or those of clusters, and whose scores are linear: what an index or fewer bits
were made of is to be edited before it is exported. Knows nothing about files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np
import scipy.sparse as sp

from xclearn.data.dataset import LabelSet
from xclearn.errors import ConfigError, DataError, ModelError
from xclearn.inference.components import AllLabels, Candidates, Classifier, ClusterBeam
from xclearn.inference.folder import Model
from xclearn.inference.servable import Ensemble, Servable
from xclearn.inference.text_rows import TextRows
from xclearn.inference.train_texts import TrainTexts

_ALLOWED = "label, text, examples"


@final
@dataclass(frozen=True)
class NewLabel:
    """A label that a model is to know."""

    label: str
    text: str
    examples: Sequence[str] = field(default_factory=list)  # texts of documents that have it

    @classmethod
    def of(cls, record: Mapping[str, Any], where: str) -> NewLabel:
        """From a record as JSON gives it."""
        if not isinstance(record, Mapping) or (unknown := [key for key in record if key not in _ALLOWED.split(", ")]):
            got = record if not isinstance(record, Mapping) else unknown
            raise DataError("not a new label", where=where, got=got, allowed=_ALLOWED)
        for name in ("label", "text"):
            if not isinstance(record.get(name), str) or not record[name].strip():
                raise DataError(f"a new label needs a {name}", where=where, got=record.get(name), allowed="a text")
        examples = record.get("examples", [])
        if not isinstance(examples, list) or not all(isinstance(each, str) for each in examples):
            raise DataError("examples are no list of texts", where=where, got=examples)
        return cls(record["label"], record["text"], examples)


def with_labels(model: Model, added: Sequence[NewLabel]) -> Model:
    """The model with more labels, after those it has."""
    _require_new(model, added)
    members = _members(model)
    if len(model.text_rows) != len(members):
        todo = "Train a dual_encoder or decaf, or train again with the new labels."
        got = model.about.get("algorithm")
        raise ModelError("the model cannot make a row of a label's text", got=got, todo=todo)
    grown = [_grown(member, rows, added) for member, rows in zip(members, model.text_rows, strict=True)]
    names, texts = [*model.labels.names, *(each.label for each in added)], model.labels.texts
    kept = [*texts, *(each.text for each in added)] if isinstance(texts, Sequence) else texts
    before = [*range(len(model.labels)), *[-1] * len(added)]
    return _edited(model, grown, LabelSet(names, kept), before, {"labels_added": len(added)})


def without_labels(model: Model, removed: Sequence[str]) -> Model:
    """The model without some of its labels: these are never answered again."""
    gone = set(removed)
    unknown = gone - set(model.labels.names)
    if unknown:
        raise ConfigError("no such label", got=sorted(unknown)[0], todo="Search the labels for its exact name.")
    kept = np.array([i for i, name in enumerate(model.labels.names) if name not in gone], dtype=np.int64)
    if not len(kept):
        raise ConfigError("no label would be left", got=len(gone))
    shrunk = [_shrunk(member, kept) for member in _members(model)]
    texts = model.labels.texts
    left = [texts[i] for i in kept] if isinstance(texts, Sequence) else texts
    labels = LabelSet([model.labels.names[i] for i in kept], left)
    return _edited(model, shrunk, labels, kept.tolist(), {"labels_removed": len(model.labels) - len(kept)})


def _members(model: Model) -> list[Servable]:
    if isinstance(model.servable, Servable):
        return [model.servable]
    if isinstance(model.servable, Ensemble):
        return list(model.servable.members)
    raise ModelError("labels of a blend cannot be edited", todo="Edit the labels of one of its algorithms' models.")


def _edited(
    model: Model, members: list[Servable], labels: LabelSet, before: list[int], counts: dict[str, int]
) -> Model:
    """`before` says which label each was, −1 a new one; `counts` are added up in what is said about the model."""
    servable = Ensemble(members) if isinstance(model.servable, Ensemble) else members[0]
    train_texts = None if model.train_texts is None else _moved_texts(model.train_texts, before)
    label_counts = None if model.label_counts is None else _moved_counts(model.label_counts, before)
    about = model.about | {name: model.about.get(name, 0) + count for name, count in counts.items()}
    edited = replace(
        model, servable=servable, labels=labels, about=about, train_texts=train_texts, label_counts=label_counts
    )
    edited.servable.check()
    return edited


def _moved_counts(counts: np.ndarray, before: list[int]) -> np.ndarray:
    """A new label has no training documents."""
    old = np.array(before)
    return np.where(old >= 0, counts[old], 0).astype(np.int32)


def _moved_texts(texts: TrainTexts, before: list[int]) -> TrainTexts:
    parts = [texts.rows[texts.offsets[i] : texts.offsets[i + 1]] if i >= 0 else texts.rows[:0] for i in before]
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts], dtype=np.int64)]).astype(np.int64)
    return TrainTexts(texts.texts, offsets, np.concatenate([*parts, texts.rows[:0]]))


def _require_new(model: Model, added: Sequence[NewLabel]) -> None:
    known = set(model.labels.names)
    for each in added:
        if each.label in known:
            todo = "Remove it first, or give the new one another name."
            raise ConfigError("the model has this label already", got=each.label, todo=todo)
        known.add(each.label)


def _grown(servable: Servable, maker: TextRows, added: Sequence[NewLabel]) -> Servable:
    scorer, candidates = _editable(servable)
    texts = servable.vectoriser.transform([each.text for each in added])
    examples = [text for each in added for text in each.examples]
    counts = np.array([len(each.examples) for each in added])
    vectors = np.zeros((0, scorer.weight.shape[1]), dtype=np.float32)  # (examples, D)
    if examples:
        vectors = servable.encoders[scorer.vector].encode(servable.vectoriser.transform(examples))
    owner = np.repeat(np.arange(len(added)), counts)
    share = sp.csr_matrix((1 / counts[owner], (owner, np.arange(len(owner)))), (len(added), len(owner)))
    rows, biases = maker.rows(texts, share @ vectors, counts)
    grown = replace(
        scorer,
        weight=np.concatenate([scorer.weight, rows]),
        bias=np.concatenate([scorer.bias, biases]).astype(np.float32),
    )
    if isinstance(candidates, ClusterBeam):
        return replace(servable, scorers=[grown], candidates=_placed(candidates, rows))
    return replace(servable, scorers=[grown])


def _shrunk(servable: Servable, kept: np.ndarray) -> Servable:
    scorer, candidates = _editable(servable)
    shrunk = replace(scorer, weight=scorer.weight[kept], bias=scorer.bias[kept])
    if not isinstance(candidates, ClusterBeam):
        return replace(servable, scorers=[shrunk])
    place = np.full(scorer.n_labels, -1, dtype=np.int64)
    place[kept] = np.arange(len(kept))
    there = place[candidates.labels] >= 0
    offsets = np.concatenate([[0], np.cumsum(there, dtype=np.int64)])[candidates.offsets]
    return replace(
        servable,
        scorers=[shrunk],
        candidates=replace(candidates, labels=place[candidates.labels[there]], offsets=offsets),
    )


def _placed(clusters: ClusterBeam, rows: np.ndarray) -> ClusterBeam:
    """Each new label stands last in the cluster whose classifier points most the way its own does."""
    cluster = (rows @ clusters.weight.T).argmax(axis=1)  # (m,)
    n_labels = len(clusters.labels)
    owner = np.concatenate([np.repeat(np.arange(len(clusters.bias)), np.diff(clusters.offsets)), cluster])
    labels = np.concatenate([clusters.labels, n_labels + np.arange(len(rows))])
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(clusters.bias)), dtype=np.int64)])
    return replace(clusters, labels=labels[np.argsort(owner, kind="stable")], offsets=offsets.astype(np.int64))


def _editable(servable: Servable) -> tuple[Classifier, Candidates]:
    """The one classifier and the candidates, where labels can be added and removed."""
    scorer, *others = servable.scorers
    whole = isinstance(servable.candidates, AllLabels | ClusterBeam)
    if others or servable.steps or not whole or not isinstance(scorer, Classifier):
        todo = "Edit the model that it was exported from; a re-ranker, a label graph or an index must be trained again."
        raise ModelError("labels of this form of a model cannot be edited", todo=todo)
    return scorer, servable.candidates
