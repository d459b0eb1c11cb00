"""Describes a data set (`statistics`) and reports its problems (`validate`).

It changes nothing, prints nothing, and knows nothing about models.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from typing import Any, Literal, final

import numpy as np
import scipy.sparse as sp

from xclearn.data.columns import AS_LIST
from xclearn.data.dataset import Dataset, Documents, Split, kind_of
from xclearn.data.near_copies import comparable_rows, near_pairs
from xclearn.data.splits import fingerprints, pairs_matrix, void_pairs

FEW_DOCUMENTS = 5  # a label with fewer training documents is counted as rare

_ALONE = 0.9  # if this share of documents has a single label, a separator may be missing
_MANY = 20  # minimum documents for that check
_MARKED = 0.2  # share of labels that must contain a separator
_MARKS = ("|", ";", ",")

_SHOWN = 3  # examples of a finding
_SHOWN_CHARACTERS = 80


@final
@dataclass(frozen=True)
class Finding:
    """A problem. An error would break training, a warning makes metrics less meaningful than they seem."""

    severity: Literal["error", "warning"]
    what: str
    count: int
    examples: tuple[str, ...] = ()


def statistics(dataset: Dataset) -> dict[str, Any]:
    """Counts and means of the labels and of every split, as nested plain values."""
    splits = {role: _split_statistics(split) for role, split in dataset.splits.items()}
    return {"name": dataset.name, "propensity": list(dataset.propensity), "labels": _label_statistics(dataset)} | splits


def validate(dataset: Dataset) -> list[Finding]:
    """All problems, errors first."""
    found = [finding for check in _CHECKS for finding in check(dataset) if finding.count]
    return sorted(found, key=lambda finding: finding.severity != "error")


def _label_statistics(dataset: Dataset) -> dict[str, Any]:
    documents = _documents_of_labels(dataset)
    texts = dataset.labels.texts
    return {
        "count": dataset.n_labels,
        "documents_per_label": _mean(documents),
        "most_documents": int(documents.max(initial=0)),
        f"fewer_than_{FEW_DOCUMENTS}_documents": int((documents < FEW_DOCUMENTS).sum()),
        "without_documents": int((documents == 0).sum()),
        "text": "none" if texts is None else kind_of(texts),
    } | ({} if texts is None else _lengths(texts))


def _split_statistics(split: Split) -> dict[str, Any]:
    labels = split.relevance.getnnz(axis=1)
    return {
        "documents": len(split),
        "kind": kind_of(split.documents),
        "pairs": int(labels.sum()),
        "labels_per_document": _mean(labels),
        "most_labels": int(labels.max(initial=0)),
        "without_labels": int((labels == 0).sum()),
        "labels_used": int((split.relevance.getnnz(axis=0) > 0).sum()),
        "filter_pairs": len(split.filter_pairs),
    } | _lengths(split.documents)


def _lengths(documents: Documents) -> dict[str, Any]:
    if isinstance(documents, Sequence):
        words = [len(text.split()) for text in documents]
        return {"words_per_text": _mean(words), "most_words": max(words, default=0), "empty": words.count(0)}
    return {"features": documents.shape[1], "features_per_document": _mean(_features_of_rows(documents))}


def _features_of_rows(documents: sp.csr_matrix | np.ndarray) -> np.ndarray:
    return np.count_nonzero(documents, axis=1) if isinstance(documents, np.ndarray) else documents.getnnz(axis=1)


def _mean(counts: Sequence[int] | np.ndarray) -> float:
    return round(float(np.mean(counts)), 3) if len(counts) else 0.0


def _documents_of_labels(dataset: Dataset) -> np.ndarray:
    return dataset.train.relevance.getnnz(axis=0)  # (L,)


# Checks: each yields findings; those with a count of 0 are dropped.


def _nothing_to_learn(dataset: Dataset) -> Iterator[Finding]:
    train = dataset.train
    yield Finding("error", "train has no documents", int(not len(train)))
    yield Finding("error", "no training document has a label", int(len(train) > 0 and not train.relevance.nnz))
    empty = _empty_rows(train.documents)
    yield Finding("error", "every training document is empty", len(empty) if len(empty) == len(train) else 0)


def _empty_documents(dataset: Dataset) -> Iterator[Finding]:
    for role, split in dataset.splits.items():
        rows = _empty_rows(split.documents)
        yield Finding("warning", f"empty documents in {role}", len(rows), _show(f"row {row}" for row in rows))


def _empty_rows(documents: Documents) -> np.ndarray:
    if isinstance(documents, Sequence):
        return np.flatnonzero([not text.strip() for text in documents])
    return np.flatnonzero(_features_of_rows(documents) == 0)


def _documents_without_labels(dataset: Dataset) -> Iterator[Finding]:
    for role, split in dataset.splits.items():
        rows = np.flatnonzero(split.relevance.getnnz(axis=1) == 0)
        yield Finding("warning", f"documents without labels in {role}", len(rows), _titles(split, rows))


def _labels_without_documents(dataset: Dataset) -> Iterator[Finding]:
    unseen = _documents_of_labels(dataset) == 0
    names = dataset.labels.names
    shown = _show(names[label] for label in np.flatnonzero(unseen)[:_SHOWN].tolist())
    yield Finding("warning", "labels without training documents", int(unseen.sum()), shown)
    for role, split in islice(dataset.splits.items(), 1, None):
        asked = np.flatnonzero(unseen & (split.relevance.getnnz(axis=0) > 0))
        shown = _show(names[label] for label in asked[:_SHOWN].tolist())
        yield Finding("warning", f"labels of {role} without training documents", len(asked), shown)


def outside_vocabulary(dataset: Dataset) -> Iterator[Finding]:
    """Labels that were left out because the vocabulary does not have them."""
    names = sorted(dataset.left_out, key=lambda name: (-dataset.left_out[name], name))
    shown = _show(f"{name} ({dataset.left_out[name]:,})" for name in names)
    yield Finding("warning", "labels of documents that are not in the vocabulary, left out", len(names), shown)


def _duplicates(dataset: Dataset) -> Iterator[Finding]:
    splits = dataset.splits
    prints = {role: fingerprints(split.documents) for role, split in splits.items()}
    for role, split in splits.items():
        _, first = np.unique(prints[role], return_index=True)
        rows = np.setdiff1d(np.arange(len(split)), first)
        yield Finding("warning", f"documents repeated within {role}", len(rows), _titles(split, rows))
    for one, other in combinations(splits, 2):
        rows = np.flatnonzero(np.isin(prints[other], prints[one]))
        what = f"documents of {other} that are also in {one}"
        yield Finding("warning", what, len(rows), _titles(splits[other], rows))


def _near_copies(dataset: Dataset) -> Iterator[Finding]:
    """Near-duplicates of training documents; exact ones are counted as duplicates."""
    train = dataset.train
    for role, split in islice(dataset.splits.items(), 1, None):
        together = comparable_rows(_joined(train.documents, split.documents))
        if together is None:
            continue
        copy_of = np.full(len(split), -1)
        for found in near_pairs(together[len(train) :], together[: len(train)]):
            copy_of[found.rows] = found.others
        equal = np.isin(fingerprints(split.documents), fingerprints(train.documents))
        rows = np.flatnonzero((copy_of >= 0) & ~equal)
        shown = _show(f"{_cut(_title(split, row))} ~ {_cut(_title(train, copy_of[row]))}" for row in rows[:_SHOWN])
        what = f"documents of {role} that nearly repeat one of train"
        yield Finding("warning", what, len(rows), shown)


def _joined(one: Documents, other: Documents) -> Documents:
    if isinstance(one, Sequence) and isinstance(other, Sequence):
        return [*one, *other]
    return np.vstack([one, other]) if isinstance(one, np.ndarray) else sp.csr_matrix(sp.vstack([one, other]))


def missed_separator(dataset: Dataset, role: str = "train", known: Collection[str] = ()) -> Iterator[Finding]:
    """If nearly every document has a single label, labels may be several names that were not separated.

    Labels `known` to a model are correct; a name that contains one of them and a separator is several.
    """
    relevance = dataset.split(role).relevance
    labels_of_rows = relevance.getnnz(axis=1)
    labelled = int((labels_of_rows > 0).sum())
    if not labelled or (labels_of_rows == 1).sum() < _ALONE * labelled:
        return
    used = np.flatnonzero(relevance.getnnz(axis=0)).tolist()
    names = [name for name in (dataset.labels.names[label] for label in used) if name not in known]
    found = _uncut(names, known)
    if found:
        separator, shown = found
        what = f"labels that look like several in one; --label-separator {shlex.quote(separator)} would separate them"
        yield Finding("warning", what, len(shown), _show(shown))
    elif labelled >= _MANY and len(names) >= _ALONE * labelled and any(" " in name for name in names):
        what = "labels of only one document, while nearly no document has two; is a --label-separator missing?"
        yield Finding("warning", what, len(names), _show(names))


def _uncut(names: list[str], known: Collection[str]) -> tuple[str, list[str]] | None:
    """The separator, and the names it would split into parts that are known or occur in several names."""
    listed = [name for name in names if name.startswith(("[", "(", "{")) and name.endswith(("]", ")", "}"))]
    if listed and len(listed) >= _MARKED * len(names):
        return AS_LIST, listed
    for mark in _MARKS:
        marked = [name for name in names if mark in name]
        parts = Counter(part.strip() for name in names for part in set(name.split(mark)))
        shared = any(count > 1 or part in known for part, count in parts.items())
        if marked and len(marked) >= _MARKED * len(names) and shared:
            return mark, marked
    return None


def _shared_label_texts(dataset: Dataset) -> Iterator[Finding]:
    if isinstance(dataset.labels.texts, Sequence):
        counts = Counter(dataset.labels.texts)
        yield Finding("warning", "labels without text", counts.pop("", 0))
        shared = {text: count for text, count in counts.items() if count > 1}
        yield Finding("warning", "labels that share their text with another", sum(shared.values()), _show(shared))


def _label_text_in_documents(dataset: Dataset) -> Iterator[Finding]:
    """Documents that contain their label's text, so that exact matching would find it without a model."""
    if not isinstance(dataset.labels.texts, Sequence):
        return
    labels = [text.lower() for text in dataset.labels.texts]
    for role, split in dataset.splits.items():
        if isinstance(split.documents, Sequence):
            rows = [row for row, text in enumerate(split.documents) if _names_a_label(split, row, text.lower(), labels)]
            what = f"documents of {role} that contain the text of one of their labels"
            yield Finding("warning", what, len(rows), _titles(split, rows))


def _names_a_label(split: Split, row: int, text: str, labels: list[str]) -> bool:
    start, end = split.relevance.indptr[row : row + 2]
    return any(labels[label] and labels[label] in text for label in split.relevance.indices[start:end])


def _uncovered_void_pairs(dataset: Dataset) -> Iterator[Finding]:
    for role, split in islice(dataset.splits.items(), 1, None):
        void = split.relevance.multiply(void_pairs(dataset.train, split, dataset.labels)).tocsr()
        left = (void - void.multiply(pairs_matrix(split.filter_pairs, void.shape))).tocoo()
        left.eliminate_zeros()
        names = dataset.labels.names
        shown = _show(f"{_title(split, row)} → {names[label]}" for row, label in zip(left.row, left.col, strict=True))
        what = f"pairs of {role} that train holds in reverse (or an item and itself), not covered by a filter"
        yield Finding("warning", what, left.nnz, shown)


_CHECKS: tuple[Callable[[Dataset], Iterator[Finding]], ...] = (
    _nothing_to_learn,
    _empty_documents,
    _documents_without_labels,
    _labels_without_documents,
    outside_vocabulary,
    missed_separator,
    _duplicates,
    _near_copies,
    _shared_label_texts,
    _label_text_in_documents,
    _uncovered_void_pairs,
)


def _titles(split: Split, rows: Iterable[int]) -> tuple[str, ...]:
    return _show(_title(split, row) for row in rows)


def _title(split: Split, row: int) -> str:
    return split.documents[row] if isinstance(split.documents, Sequence) else f"row {row}"


def _show(examples: Iterable[str]) -> tuple[str, ...]:
    shown = islice(examples, _SHOWN)
    return tuple(_cut(text, _SHOWN_CHARACTERS) for text in shown)


def _cut(text: str, most: int = _SHOWN_CHARACTERS // 2 - 2) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
