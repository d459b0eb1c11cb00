"""Classifiers for labels that DECAF was not trained on: from their texts, as for labels without documents.

Knows nothing about training.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from xclearn.inference.components import Bag, Classifier
from xclearn.inference.text_rows import TextRows
from xclearn.parts.combination import Gates
from xclearn.parts.text_network import TextNetwork
from xclearn.training.prepare import Prepared

_FEW = 1  # labels with at most this many documents are like new ones
_GAIN = 0.3  # weight of examples, relative to the norm of a typical classifier
_SOME = 10_000  # documents sampled for the mean vector


def new_label_rows(
    network: TextNetwork, encoder: Bag, labels: Classifier, data: Prepared, *, from_text: bool
) -> TextRows:
    """σ(α) ⊙ text + σ(β) ⊙ E z: an untrained refinement keeps its initial value, if `from_text`."""
    block = network.text_block.served()
    if isinstance(network.combination, Gates) and network.refinement is not None:
        text, refined = [gate.sigmoid().detach().float().cpu().numpy() for gate in network.combination.gates]
        skip = text * block.skip_gate + from_text * refined
        block = replace(block, block_gate=text * block.block_gate, skip_gate=skip)
    counts = np.asarray(data.relevance.sum(axis=0)).ravel()
    few = counts <= max(_FEW, counts.min())
    length = float(np.linalg.norm(labels.weight[few], axis=1).mean())
    centre = encoder.encode(data.features[:_SOME]).mean(axis=0).astype(np.float32)
    usual = float((labels.weight[few] @ centre + labels.bias[few]).mean())  # a new label should be as likely as these
    return TextRows(Bag(encoder.token_embeddings, [block]), centre, 1.0, usual, _GAIN * length, at_centre=True)
