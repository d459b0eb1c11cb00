"""Adds labels to a model without training, and removes labels from it.

Edit a model before exporting it, as an exported one cannot be edited. Knows nothing about files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np

from xclearn.data.dataset import LabelSet
from xclearn.errors import ConfigError, DataError
from xclearn.inference.blend import AnyServable, servables_of
from xclearn.inference.folder import Model
from xclearn.inference.label_changes import Additions, grown, shrunk
from xclearn.inference.train_texts import TrainTexts

_ALLOWED = "label, text, examples"


@final
@dataclass(frozen=True)
class NewLabel:
    """A label to add to a model."""

    label: str
    text: str
    examples: Sequence[str] = field(default_factory=list)  # texts of documents with this label

    @classmethod
    def of(cls, record: Mapping[str, Any], where: str) -> NewLabel:
        """From a JSON record."""
        if not isinstance(record, Mapping) or (unknown := [key for key in record if key not in _ALLOWED.split(", ")]):
            got = record if not isinstance(record, Mapping) else unknown
            raise DataError("not a new label", where=where, got=got, allowed=_ALLOWED)
        for name in ("label", "text"):
            if not isinstance(record.get(name), str) or not record[name].strip():
                raise DataError(f"a new label needs a {name}", where=where, got=record.get(name), allowed="a text")
        examples = record.get("examples", [])
        if not isinstance(examples, list) or not all(isinstance(each, str) for each in examples):
            raise DataError("examples must be a list of texts", where=where, got=examples)
        return cls(record["label"], record["text"], examples)


def with_labels(model: Model, added: Sequence[NewLabel]) -> Model:
    """The model with more labels after its own."""
    _require_new(model, added)
    makers = model.text_rows or [None] * len(servables_of(model.servable))
    additions = Additions([each.text for each in added], [each.examples for each in added])
    larger = grown(model.servable, makers, additions)
    names = [*model.labels.names, *(each.label for each in added)]
    texts = model.labels.texts
    kept = [*texts, *(each.text for each in added)] if isinstance(texts, Sequence) else texts
    before = [*range(len(model.labels)), *[-1] * len(added)]
    return _edited(model, larger, LabelSet(names, kept), before, {"labels_added": len(added)})


def without_labels(model: Model, removed: Sequence[str]) -> Model:
    """The model without some of its labels, which it then never predicts."""
    gone = set(removed)
    unknown = gone - set(model.labels.names)
    if unknown:
        raise ConfigError("no such label", got=sorted(unknown)[0], todo="Search the labels for its exact name.")
    kept = np.array([i for i, name in enumerate(model.labels.names) if name not in gone], dtype=np.int64)
    if not len(kept):
        raise ConfigError("no labels would be left", got=len(gone))
    texts = model.labels.texts
    left = [texts[i] for i in kept] if isinstance(texts, Sequence) else texts
    labels = LabelSet([model.labels.names[i] for i in kept], left)
    return _edited(
        model, shrunk(model.servable, kept), labels, kept.tolist(), {"labels_removed": len(model.labels) - len(kept)}
    )


def _edited(model: Model, servable: AnyServable, labels: LabelSet, before: list[int], counts: dict[str, int]) -> Model:
    """The edited model; `before` maps labels to their old ids, −1 if new; `counts` are added to the model's facts."""
    train_texts = None if model.train_texts is None else _moved_texts(model.train_texts, before)
    label_counts = None if model.label_counts is None else _moved_counts(model.label_counts, before)
    about = model.about | {name: model.about.get(name, 0) + count for name, count in counts.items()}
    edited = replace(
        model, servable=servable, labels=labels, about=about, train_texts=train_texts, label_counts=label_counts
    )
    edited.servable.check()
    return edited


def _moved_counts(counts: np.ndarray, before: list[int]) -> np.ndarray:
    """Reorder the counts; new labels have no training documents."""
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
            raise ConfigError("the model already has this label", got=each.label, todo=todo)
        known.add(each.label)
