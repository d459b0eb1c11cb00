"""Who spoke for a label in a blend, how loudly, and by which words.

A source's share is the logit that is lost when it falls silent: its columns as if it had not named the label. Its words
are exact where it is a product of weights; of a member they are the score that is lost without the word.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from xclearn.data.dataset import NO_PAIRS
from xclearn.inference.blend import COLUMNS, BlendServable, Evidence, Sources
from xclearn.inference.sparse import unit_rows

_NAMED = -3  # the column that counts the sources which name a label
_MOST_WORDS = 6  # of each source


class Vote(NamedTuple):
    """What one source of a blend says about a label."""

    source: str
    score: float  # of a member its score, else a cosine or the share of the nearest texts
    place: int | None  # among the labels that it names
    share: float  # of the blend's logit: what is lost without this source
    tokens: list[tuple[str, float]]  # the words that count most, by what each adds


def votes(blend: BlendServable, text: str, words: Sequence[str], variants: Sequence[str], label: int) -> list[Vote]:
    """Of every source that names the label, the loudest first; `variants` are the text without each of the `words`."""
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
    """The evidence (F,) if the source at this place had not named the label, nor seen anything of it."""
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
    """The score that is lost without each word."""
    form = blend.sources.answering[place]
    depth = min(blend.sources.depth, blend.n_labels)
    found = form.rank(form.vectoriser.transform(list(variants)), depth, NO_PAIRS)
    scores = np.where(found.ids == label, found.scores, 0.0).max(axis=1)  # (1 + words,) of the whole text first
    return _largest(zip(words, (scores[0] - scores[1:]).tolist(), strict=True))


def _of_part(blend: BlendServable, name: str, text: str, label: int) -> list[tuple[str, float]]:
    """Words in common with the label's text, or with the nearest training text that has the label."""
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
    """The mean of the label's documents names no label, and has its say about each."""
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
    """What each word in common adds to the cosine of two rows of length one."""
    product = sp.csr_matrix(row.multiply(other))
    vectoriser: Any = blend.sources.vectoriser
    return _largest(zip(vectoriser.tokens(product.indices), product.data.tolist(), strict=True))


def _largest(tokens: Any) -> list[tuple[str, float]]:
    there = [(token, float(part)) for token, part in tokens if part]
    return sorted(there, key=lambda pair: -abs(pair[1]))[:_MOST_WORDS]
