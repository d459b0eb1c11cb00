"""Explains a blend's prediction of a label: the contribution of each source, and the words behind it.

A source's share is the loss in logit when the source is removed, that is, its columns are as if it had not listed the
label. Word contributions are exact for sources that are products of weights; for a member they are the loss in score
without the word.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from xclearn.data.dataset import NO_PAIRS
from xclearn.inference.blend import COLUMNS, BlendServable, Evidence, Sources
from xclearn.inference.sparse import unit_rows

_NAMED = -3  # the column with the number of sources that list a label
_MOST_WORDS = 6  # words shown per source


class Vote(NamedTuple):
    """The contribution of one source of a blend to a label."""

    source: str
    score: float  # a member's score, else a cosine or the share of nearest texts
    place: int | None  # rank among the labels it lists
    share: float  # loss in the blend's logit without this source
    tokens: list[tuple[str, float]]  # the most important words and their contributions


def votes(blend: BlendServable, text: str, words: Sequence[str], variants: Sequence[str], label: int) -> list[Vote]:
    """The votes of all sources that list the label, largest first; `variants` are the text without each of `words`."""
    sources = blend.sources
    found = sources.evidence([text])
    (places,) = np.nonzero(found.labels == label)
    if not len(places):
        return []
    values = found.values[places[0]]
    whole = float(blend.stacker(values[None])[0])
    said = []
    for place, name in enumerate(sources.lists):
        own = slice(COLUMNS * place, COLUMNS * (place + 1))
        score, _, rank = values[own]
        if not rank > 0:
            continue
        member = place < len(sources.members)
        shown = 1 / (1 + np.exp(-float(score))) if member else float(score)
        lost = whole - float(blend.stacker(_silent(values, place, sources)[None])[0])
        tokens = _of_member(blend, place, words, variants, label) if member else _of_part(blend, name, text, label)
        said.append(Vote(name, shown, round(1 / float(rank)), lost, tokens))
    return sorted([*said, *_centroid(blend, found, int(places[0]), whole, text)], key=lambda vote: -abs(vote.share))


def _silent(values: np.ndarray, place: int, sources: Sources) -> np.ndarray:
    """The evidence (F,) as if the source at this place knew nothing about the label."""
    other, first = values.copy(), COLUMNS * place
    if sources.everywhere and place >= len(sources.members):
        score, gap = values[first], values[first + 1]
        other[first : first + COLUMNS] = 0.0, gap - score, 0.0
    else:
        other[first : first + COLUMNS] = np.nan, np.nan, 0.0
    other[_NAMED] -= 1
    if sources.lists[place] == "memory":
        other[sources.value_names.index("memory: nearest")] = 0.0
    return other


def _of_member(
    blend: BlendServable, place: int, words: Sequence[str], variants: Sequence[str], label: int
) -> list[tuple[str, float]]:
    """The vote of a member, with the loss in score without each word."""
    form = blend.sources.answering[place]
    depth = min(blend.sources.depth, blend.n_labels)
    found = form.rank(form.vectoriser.transform(list(variants)), depth, NO_PAIRS)
    scores = np.where(found.ids == label, found.scores, 0.0).max(axis=1)  # (1 + words,) the whole text first
    return _largest(zip(words, (scores[0] - scores[1:]).tolist(), strict=True))


def _of_part(blend: BlendServable, name: str, text: str, label: int) -> list[tuple[str, float]]:
    """Words shared with the label's text, or with the nearest training text of the label."""
    sources, row = blend.sources, _row(blend, text)
    if name == "label text":
        assert sources.label_texts is not None
        return _common(blend, row, sources.label_texts.matrix[label])
    assert sources.memory is not None
    memory = sources.memory
    ids, _ = memory.documents.index.nearest(row, memory.size)
    has = np.asarray(memory.labels.matrix[ids[0][ids[0] >= 0]][:, [label]].todense()).ravel() > 0
    near = ids[0][ids[0] >= 0][has]
    return _common(blend, row, memory.documents.matrix[near[0]]) if len(near) else []


def _centroid(blend: BlendServable, found: Evidence, place: int, whole: float, text: str) -> Iterator[Vote]:
    """The vote of the label's centroid, which lists no labels but scores every candidate."""
    sources = blend.sources
    if sources.centroids is None:
        return
    column = sources.value_names.index("centroid: cosine")
    values = found.values[place].copy()
    cosine, values[column] = float(values[column]), 0.0
    if cosine > 0:
        lost = whole - float(blend.stacker(values[None])[0])
        tokens = _common(blend, _row(blend, text), sources.centroids.matrix[int(found.labels[place])])
        yield Vote("centroid", cosine, None, lost, tokens)


def _row(blend: BlendServable, text: str) -> sp.csr_matrix:
    return unit_rows(sp.csr_matrix(blend.sources.vectoriser.transform([text]), dtype=np.float32))


def _common(blend: BlendServable, row: sp.csr_matrix, other: sp.csr_matrix) -> list[tuple[str, float]]:
    """The contribution of each shared word to the cosine of two unit rows."""
    product = sp.csr_matrix(row.multiply(other))
    vectoriser: Any = blend.sources.vectoriser
    return _largest(zip(vectoriser.tokens(product.indices), product.data.tolist(), strict=True))


def _largest(tokens: Any) -> list[tuple[str, float]]:
    there = [(token, float(part)) for token, part in tokens if part]
    return sorted(there, key=lambda pair: -abs(pair[1]))[:_MOST_WORDS]
