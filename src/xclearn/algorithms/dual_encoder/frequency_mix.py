"""Mixes a label's text score and its documents' offset by label frequency, so that scores are probabilities.

A logit is a · text + m · change + c: `text` is the score of the label's text, `change` is the offset learnt from its
documents, and m and c belong to the label's group of similar frequency. All terms are linear in the document's vector,
so a label is served as one row. Knows nothing about encoders or where documents come from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, final

import numpy as np
import torch

MixKind = Literal["plain", "weights", "biases"]

EDGES = (1, 2, 4, 8, 16, 64)  # minimum documents of each group; the first group has labels without any
_LEAST_SLOPE = 1e-3  # minimum slope, which keeps the order of uninformative scores
_AT_ONCE = 256  # documents per block
_PAIRS_AT_ONCE = 1 << 14
_CANDIDATES = 100  # best labels per document used to learn the mix


class Rows(NamedTuple):
    """The two parts of each label's row."""

    texts: np.ndarray  # (L, D)
    changes: np.ndarray  # (L, D)
    biases: np.ndarray  # (L,) biases learnt from documents
    group: np.ndarray  # (L,)

    @classmethod
    def of(cls, texts: torch.Tensor, changes: torch.Tensor, biases: torch.Tensor, counts: torch.Tensor) -> Rows:
        """Rows with groups by the document counts (L,)."""
        first, second, third = (part.float().cpu().numpy() for part in (texts, changes, biases))
        return cls(first, second, third, np.searchsorted(EDGES, counts.cpu().numpy(), side="right"))


@final
@dataclass(frozen=True)
class FrequencyMix:
    """The coefficients of the mix."""

    slope: float  # weight of the text score
    weights: np.ndarray  # (groups,) weight of the offset
    biases: np.ndarray  # (groups,)

    @classmethod
    def plain(cls, weight: float, bias: float) -> FrequencyMix:
        """The same coefficients for all groups."""
        groups = len(EDGES) + 1
        return cls(1.0, np.full(groups, weight), np.full(groups, bias))

    def folded(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """The served rows (L, D) and biases (L,)."""
        weight = self.slope * rows.texts + self.weights[rows.group][:, None] * rows.changes
        bias = self.biases[rows.group] + self.weights[rows.group] * rows.biases
        return weight.astype(np.float32), bias.astype(np.float32)


class Pairs(NamedTuple):
    """Pairs of documents and candidate labels."""

    document: np.ndarray  # (m,)
    text: np.ndarray  # (m,) score of the label's text
    change: np.ndarray  # (m,) offset from its documents
    group: np.ndarray  # (m,) group of the label
    relevant: np.ndarray  # (m,) bool


def learn_mix(pairs: Pairs, first: FrequencyMix, kind: MixKind) -> FrequencyMix:
    """Fit the coefficients that `kind` leaves free by logistic regression on the pairs.

    `plain`: one slope and one bias, which keeps the order of labels. `weights`: a slope, and a weight of the offset for
    each group. `biases`: also a bias for each group, which favours frequent labels.

    Labels without documents are left out and take the bias of the next group: if such a label occurs in a held-out
    document, it is mostly correct there, as it would otherwise not be a label, so it would bias the group upwards.
    """
    from sklearn.linear_model import LogisticRegression

    pairs = Pairs(*(part[pairs.group > 0] for part in pairs))
    if not 0 < pairs.relevant.sum() < len(pairs.relevant):
        return first
    groups = len(EDGES) + 1
    if kind == "plain":
        columns = (first.slope * pairs.text + first.weights[pairs.group] * pairs.change)[:, None]
    else:
        member = pairs.group[:, None] == np.arange(groups)  # (m, groups)
        columns = np.column_stack([pairs.text, member * pairs.change[:, None], *([member] if kind == "biases" else [])])
    found = LogisticRegression(C=1.0, max_iter=1000).fit(columns, pairs.relevant)
    slope = max(float(found.coef_[0, 0]), _LEAST_SLOPE)
    rest = found.coef_[0, 1:]
    biases = np.full(groups, found.intercept_[0])
    if kind == "plain":
        return FrequencyMix(slope * first.slope, slope * first.weights, biases)
    if kind == "biases":
        biases[1:] += rest[groups + 1 :]
        biases[0] = biases[1]
    return FrequencyMix(slope, rest[:groups], biases)


def candidate_pairs(
    vectors: np.ndarray,
    rows: Rows,
    mix: FrequencyMix,
    relevant: np.ndarray,
    void: np.ndarray,
    device: torch.device,
) -> Pairs:
    """Documents (n, D) paired with the labels that `mix` ranks first, without `void` pairs; scored on `device`.

    `relevant` and `void` are (m, 2) pairs of document and label.
    """
    weight, bias = (torch.from_numpy(part).to(device) for part in mix.folded(rows))
    n_labels, k = len(weight), min(_CANDIDATES, len(weight))
    parts = torch.from_numpy(vectors).to(device).split(_AT_ONCE)
    ids = torch.cat([(part @ weight.T + bias).topk(k, dim=1).indices for part in parts]).cpu().numpy()
    document = np.repeat(np.arange(len(ids)), k)
    keys = document * n_labels + ids.ravel()
    kept = ~np.isin(keys, void[:, 0] * n_labels + void[:, 1])
    document, label, keys = document[kept], ids.ravel()[kept], keys[kept]
    text = _pair_scores(vectors, rows.texts, document, label)
    change = _pair_scores(vectors, rows.changes, document, label) + rows.biases[label]
    return Pairs(document, text, change, rows.group[label], np.isin(keys, relevant[:, 0] * n_labels + relevant[:, 1]))


def _pair_scores(vectors: np.ndarray, rows: np.ndarray, document: np.ndarray, label: np.ndarray) -> np.ndarray:
    """The products (m,) of pairs of a document and a label, some at a time: both vectors of each are copied."""
    parts = [slice(start, start + _PAIRS_AT_ONCE) for start in range(0, len(document), _PAIRS_AT_ONCE)]
    scores = [np.einsum("md,md->m", vectors[document[part]], rows[label[part]]) for part in parts]
    return np.concatenate([np.empty(0, dtype=rows.dtype), *scores])
