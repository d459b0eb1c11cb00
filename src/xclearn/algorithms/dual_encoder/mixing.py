"""The rows that a dual encoder serves: a label's text and offset in one row, mixed according to the hold-out.

Knows nothing about how either part was trained.
"""

from __future__ import annotations

import numpy as np
import torch

from xclearn.algorithms.dual_encoder.frequency_mix import FrequencyMix, MixKind, Pairs, Rows, candidate_pairs, learn_mix
from xclearn.inference.components import Encoder
from xclearn.training.prepare import Prepared, required
from xclearn.training.scoring import held_out_score
from xclearn.training.stage import Stopping

_KINDS: tuple[MixKind, ...] = ("plain", "weights", "biases")
_SAMPLE = 4000  # training documents used to calibrate scores if none are held out


def frequency_mix(
    rows: Rows, encoder: Encoder, data: Prepared, weight: float, stopping: Stopping | None, device: torch.device
) -> FrequencyMix:
    """The mix, of the kind that is best on the hold-out and fitted there, so that scores are probabilities.

    Without a hold-out, `weight` is the weight of the offset, and probabilities are calibrated on train. All labels are
    scored on `device`.
    """
    first = FrequencyMix.plain(weight, 0.0)
    if stopping is None:
        some = np.random.default_rng(0).permutation(data.size.n_documents)[:_SAMPLE]
        relevant = np.column_stack(data.relevance[some].nonzero())
        vectors = encoder.encode(data.features[some])
        void = np.empty((0, 2), dtype=np.int64)
        return learn_mix(candidate_pairs(vectors, rows, first, relevant, void, device), first, "plain")
    vectors = encoder.encode(required(data.held_out_features))
    held_out = required(data.held_out)
    relevant = np.column_stack(held_out.relevance.nonzero())
    pairs = candidate_pairs(vectors, rows, first, relevant, held_out.filter_pairs, device)
    scored = torch.from_numpy(vectors).to(device)
    score = {kind: _cross_fitted(kind, first, pairs, rows, scored, data, stopping.metric) for kind in _KINDS}
    return learn_mix(pairs, first, max(_KINDS, key=lambda kind: score[kind]))


def _cross_fitted(
    kind: MixKind, first: FrequencyMix, pairs: Pairs, rows: Rows, vectors: torch.Tensor, data: Prepared, metric: str
) -> float:
    """The held-out metric by two-fold cross-fitting."""
    half = pairs.document % 2
    learnt = [learn_mix(Pairs(*(part[half != own] for part in pairs)), first, kind) for own in (0, 1)]
    taught = [[torch.from_numpy(part).to(vectors.device) for part in mix.folded(rows)] for mix in learnt]

    def best(asked: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        scores = vectors.new_empty(len(asked), len(rows.texts))
        for own, (weight, bias) in enumerate(taught):
            here = asked % 2 == own
            scores[here.to(vectors.device)] = vectors[asked[here].to(vectors.device)] @ weight.T + bias
        found = scores.topk(min(k, scores.shape[1]), dim=1)
        return found.indices, found.values

    return held_out_score(data, metric, best)()
