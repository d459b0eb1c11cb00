"""Explains a label's score by the contribution of each token.

If the score is the sigmoid of one linear classifier over a bag encoder, the explanation is exact: for a given input
every ReLU either passes a value or blocks it, so the network is linear in the token embeddings, and the contributions
of tokens and biases sum to the logit. For any other model the text is scored without each word in turn, and the change
in score is reported as an approximation.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from xclearn.inference.blend import AnyServable, BlendServable
from xclearn.inference.components import Bag, Classifier, GatedBlock, Layer, Relu, Residual, Sigmoid, Unit
from xclearn.inference.exported import PackedClassifier
from xclearn.inference.labels import predict_among
from xclearn.inference.predictor import Predictor
from xclearn.inference.servable import Servable
from xclearn.inference.votes import Vote, votes
from xclearn.text.vectorisers import TfidfVectoriser

MOST_WORDS = 64  # distinct words left out in turn by the approximation

_find_words = re.compile(r"\w+").finditer


@final
@dataclass(frozen=True)
class Explanation:
    """The contributions to one label's value."""

    label: int
    value: float  # the logit if exact, else the score
    rest: float  # the contribution of biases if exact, else the score of an empty text
    tokens: list[tuple[str, float]]  # in text or vocabulary order; if exact, these and `rest` sum to `value`
    exact: bool
    unread: int = 0  # distinct words beyond MOST_WORDS, which were not examined
    votes: list[Vote] = field(default_factory=list)  # contributions of a blend's sources


def explain(predictor: Predictor, text: str, labels: np.ndarray) -> list[Explanation]:
    """One explanation for each of these labels (m,)."""
    if not len(labels):
        return []
    found = _linear_parts(predictor.model.servable)
    if found is None:
        return _without_each_word(predictor, text, labels)
    vectoriser, encoder, scorer = found
    ids, weights = vectoriser.transform_one(text)
    embeddings = weights[:, None] * encoder.token_embeddings[ids].astype(np.float64)  # (t, D)
    rows, bias = _rows_of(scorer, labels, encoder.dim)
    slopes, rest = _back(encoder.layers, embeddings.sum(axis=0), rows)
    rest = rest + bias  # (m,)
    parts = slopes @ embeddings.T  # (m, t)
    tokens = vectoriser.tokens(ids)
    return [
        Explanation(label, float(own.sum() + base), float(base), list(zip(tokens, own.tolist(), strict=True)), True)
        for label, own, base in zip(labels.tolist(), parts, rest, strict=True)
    ]


def unknown_words(servable: AnyServable, text: str) -> list[str]:
    """The distinct words of a text that no part of the model knows, in text order."""
    owners = [servable] if isinstance(servable, Servable) else [servable, *servable.members]
    readers = [owner.vectoriser for owner in owners]
    words = dict.fromkeys(match.group().lower() for match in _find_words(text))
    return [word for word in words if not any(len(reader.transform_one(word)[0]) for reader in readers)]


def _linear_parts(servable: AnyServable) -> tuple[TfidfVectoriser, Bag, Classifier | PackedClassifier] | None:
    """The parts of a model that is a sigmoid of one linear classifier over a bag, else None."""
    if not isinstance(servable, Servable) or servable.steps or not isinstance(servable.fusion, Sigmoid):
        return None
    scorer, vectoriser = servable.scorers[0], servable.vectoriser
    encoder = servable.encoders[scorer.vector]
    if not (isinstance(scorer, Classifier | PackedClassifier) and isinstance(encoder, Bag)):
        return None
    if not isinstance(vectoriser, TfidfVectoriser) or any(type(layer) not in _BACK for layer in encoder.layers):
        return None
    return vectoriser, encoder, scorer


def _rows_of(scorer: Classifier | PackedClassifier, labels: np.ndarray, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """The weights (m, D) and biases (m,) of these labels."""
    if isinstance(scorer, Classifier):
        return scorer.weight[labels].astype(np.float64), scorer.bias[labels]
    rows = scorer.row_of_label[labels]
    return scorer.rows.weight(rows, dim).astype(np.float64), scorer.rows.bias[rows]


def _back(layers: list[Layer], vector: np.ndarray, slopes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Propagate slopes (m, D) from the output back to the bag (D,); also returns the biases' contribution (m,)."""
    inputs = [vector]
    for layer in layers:
        inputs.append(layer(inputs[-1]))
    rest = np.zeros(len(slopes))
    for layer, came in zip(reversed(layers), reversed(inputs[:-1]), strict=True):
        slopes, added = _BACK[type(layer)](layer, came, slopes)
        rest = rest + added
    return slopes, rest


def _back_relu(_: Relu, vector: np.ndarray, slopes: np.ndarray) -> tuple[np.ndarray, float]:
    return slopes * (vector > 0), 0.0


def _back_residual(layer: Residual, vector: np.ndarray, slopes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    passed = slopes * (layer.weight @ vector + layer.bias > 0)  # (m, D)
    return slopes + passed @ layer.weight, passed @ layer.bias


def _back_gated(layer: GatedBlock, vector: np.ndarray, slopes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    gated = slopes * layer.block_gate  # (m, D)
    return gated @ layer.weight * (vector > 0) + slopes * layer.skip_gate, gated @ layer.bias


def _back_unit(_: Unit, vector: np.ndarray, slopes: np.ndarray) -> tuple[np.ndarray, float]:
    """Treat the norm as constant, so that the contributions of words sum to the score."""
    return slopes / (float(np.linalg.norm(vector)) or 1.0), 0.0


_BACK: dict[type, Callable[[Any, np.ndarray, np.ndarray], tuple[np.ndarray, Any]]] = {
    Relu: _back_relu,
    Residual: _back_residual,
    GatedBlock: _back_gated,
    Unit: _back_unit,
}


def _without_each_word(predictor: Predictor, text: str, labels: np.ndarray) -> list[Explanation]:
    """The score minus the score without the word, for each distinct word."""
    words = list(dict.fromkeys(match.group().lower() for match in _find_words(text)))
    asked = words[:MOST_WORDS]
    variants = [text, "", *(_without(text, word) for word in asked)]
    scores = np.stack([_scores_of(predictor, variant, labels) for variant in variants], axis=1)  # (m, 2 + words)
    whole, explanations = [text, *variants[2:]], []
    blend = predictor.model.servable if isinstance(predictor.model.servable, BlendServable) else None
    for label, (value, rest, *left) in zip(labels.tolist(), scores.tolist(), strict=True):
        lost = [(word, value - score) for word, score in zip(asked, left, strict=True)]
        said = [] if blend is None else votes(_asked(predictor, blend), text, asked, whole, label)
        explanations.append(Explanation(label, value, rest, lost, False, len(words) - len(asked), said))
    return explanations


def _asked(predictor: Predictor, blend: BlendServable) -> BlendServable:
    """The blend with its members in their prediction forms."""
    return predictor.answers if isinstance(predictor.answers, BlendServable) else blend


def _without(text: str, word: str) -> str:
    return re.sub(r"\w+", lambda match: "" if match.group().lower() == word else match.group(), text)


def _scores_of(predictor: Predictor, text: str, labels: np.ndarray) -> np.ndarray:
    """The scores (m,) in the order of `labels`; 0 if a label is not a candidate."""
    (ids,), (scores,) = predict_among(predictor, [text], labels, len(labels))
    score_of_label = dict(zip(ids.tolist(), scores.tolist(), strict=True))
    return np.array([score_of_label.get(label, 0.0) for label in labels.tolist()])
