"""Why a label got its score: what each token of the text adds to it.

Where the score is the logistic of one linear classifier over a bag encoder, the answer is exact. At one input every
ReLU either passes a value on or stops it; with these choices kept, the network is linear in the token embeddings, so
the parts of the tokens and of the biases sum to the logit. Any other model is asked again without each word, and the
score that is lost is reported as an approximation.
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

MOST_WORDS = 64  # distinct words left out in turn when the answer is approximate

_find_words = re.compile(r"\w+").finditer


@final
@dataclass(frozen=True)
class Explanation:
    """What one label's value is made of."""

    label: int
    value: float  # exact: the logit; else the score
    rest: float  # exact: what the biases add; else the score of an empty text
    tokens: list[tuple[str, float]]  # in the text's or vocabulary's order; exact: these and `rest` sum to `value`
    exact: bool
    unread: int = 0  # distinct words beyond the first MOST_WORDS that were not left out in turn
    votes: list[Vote] = field(default_factory=list)  # of a blend: what each of its sources says


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
    """The words of a text that no part of the model reads, each once, in the text's order."""
    owners = [servable] if isinstance(servable, Servable) else [servable, *servable.members]
    readers = [owner.vectoriser for owner in owners]
    words = dict.fromkeys(match.group().lower() for match in _find_words(text))
    return [word for word in words if not any(len(reader.transform_one(word)[0]) for reader in readers)]


def _linear_parts(servable: AnyServable) -> tuple[TfidfVectoriser, Bag, Classifier | PackedClassifier] | None:
    """The parts of a model whose score is the logistic of one linear classifier over a bag; None of any other."""
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
    """Slopes (m, D) at the output and the bag (D,) → slopes at the bag, and what the biases add (m,)."""
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
    """The length is taken as given, so that the contributions of the words add up to the score."""
    return slopes / (float(np.linalg.norm(vector)) or 1.0), 0.0


_BACK: dict[type, Callable[[Any, np.ndarray, np.ndarray], tuple[np.ndarray, Any]]] = {
    Relu: _back_relu,
    Residual: _back_residual,
    GatedBlock: _back_gated,
    Unit: _back_unit,
}


def _without_each_word(predictor: Predictor, text: str, labels: np.ndarray) -> list[Explanation]:
    """The score, less the score without the word, for each distinct word."""
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
    """The blend with its members in the forms that answer."""
    return predictor.answers if isinstance(predictor.answers, BlendServable) else blend


def _without(text: str, word: str) -> str:
    return re.sub(r"\w+", lambda match: "" if match.group().lower() == word else match.group(), text)


def _scores_of(predictor: Predictor, text: str, labels: np.ndarray) -> np.ndarray:
    """The scores (m,) in the order of `labels`; 0 where the label is no candidate."""
    (ids,), (scores,) = predict_among(predictor, [text], labels, len(labels))
    score_of_label = dict(zip(ids.tolist(), scores.tolist(), strict=True))
    return np.array([score_of_label.get(label, 0.0) for label in labels.tolist()])
