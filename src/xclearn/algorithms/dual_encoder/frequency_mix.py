"""How much a label's documents count beside its text, by how many documents it has; and scores as probabilities.

A logit is a · text + m · change + c, where `text` is the score of the label's text, `change` what its documents add to
it, and m and c are those of the label's group: labels of about the same number of documents. All are linear in the
document's vector, so a label ends as one row. Knows nothing about encoders or where documents come from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, final

import numpy as np
import torch

MixKind = Literal["plain", "weights", "biases"]

EDGES = (1, 2, 4, 8, 16, 64)  # documents at which a group begins; the first group has labels without any
_LEAST_SLOPE = 1e-3  # of scores that say nothing, which keep their order
_AT_ONCE = 256  # documents scored against all labels at once
_CANDIDATES = 100  # best labels of a document that the mix is learnt on


class Rows(NamedTuple):
    """Two parts of each label's row."""

    texts: np.ndarray  # (L, D)
    changes: np.ndarray  # (L, D)
    biases: np.ndarray  # (L,) what documents change beside the row
    group: np.ndarray  # (L,)

    @classmethod
    def of(cls, texts: torch.Tensor, changes: torch.Tensor, biases: torch.Tensor, counts: torch.Tensor) -> Rows:
        """With the group of labels of `counts` (L,) documents."""
        first, second, third = (part.float().cpu().numpy() for part in (texts, changes, biases))
        return cls(first, second, third, np.searchsorted(EDGES, counts.cpu().numpy(), side="right"))


@final
@dataclass(frozen=True)
class FrequencyMix:
    """The numbers of the mix."""

    slope: float  # of the text's score
    weights: np.ndarray  # (groups,) of what documents add
    biases: np.ndarray  # (groups,)

    @classmethod
    def plain(cls, weight: float, bias: float) -> FrequencyMix:
        """The same for all groups."""
        groups = len(EDGES) + 1
        return cls(1.0, np.full(groups, weight), np.full(groups, bias))

    def folded(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """The rows (L, D) and biases (L,) that are served."""
        weight = self.slope * rows.texts + self.weights[rows.group][:, None] * rows.changes
        bias = self.biases[rows.group] + self.weights[rows.group] * rows.biases
        return weight.astype(np.float32), bias.astype(np.float32)


class Pairs(NamedTuple):
    """Documents with labels that are candidates of theirs."""

    document: np.ndarray  # (m,)
    text: np.ndarray  # (m,) the score of the label's text
    change: np.ndarray  # (m,) what its documents add
    group: np.ndarray  # (m,) of the label
    relevant: np.ndarray  # (m,) bool


def learn_mix(pairs: Pairs, first: FrequencyMix, kind: MixKind) -> FrequencyMix:
    """Logistic regression on the pairs of what `kind` leaves open.

    `plain`: one slope and one bias, so that the order of labels stays. `weights`: of text and, in each group, of what
    documents add. `biases`: of each group too, which raises frequent labels.

    Labels without documents are left out and take the bias of the next group: such a label of a held-out document is
    mostly right, as it would be no label otherwise, and what is learnt from it would lift all labels without documents.
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
    """Documents (n, D) with the labels that `mix` ranks first for them, without `void` pairs; scored on `device`.

    `relevant` and `void` are (m, 2) pairs of a document and a label.
    """
    weight, bias = (torch.from_numpy(part).to(device) for part in mix.folded(rows))
    n_labels, k = len(weight), min(_CANDIDATES, len(weight))
    parts = torch.from_numpy(vectors).to(device).split(_AT_ONCE)
    ids = torch.cat([(part @ weight.T + bias).topk(k, dim=1).indices for part in parts]).cpu().numpy()
    document = np.repeat(np.arange(len(ids)), k)
    keys = document * n_labels + ids.ravel()
    kept = ~np.isin(keys, void[:, 0] * n_labels + void[:, 1])
    document, label, keys = document[kept], ids.ravel()[kept], keys[kept]
    text = np.einsum("md,md->m", vectors[document], rows.texts[label])
    change = np.einsum("md,md->m", vectors[document], rows.changes[label]) + rows.biases[label]
    return Pairs(document, text, change, rows.group[label], np.isin(keys, relevant[:, 0] * n_labels + relevant[:, 1]))
