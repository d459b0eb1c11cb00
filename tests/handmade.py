"""A model small enough to be worked out by hand: the logits of a one-word text are its colour's column of `WEIGHT`."""

import numpy as np
import scipy.sparse as sp

from xclearn.data import Dataset, LabelSet, Split
from xclearn.inference import Model
from xclearn.inference.components import AllLabels, Bag, Classifier, Relu, Sigmoid
from xclearn.inference.declared import Encoded, Part, Scope, check
from xclearn.inference.servable import Servable
from xclearn.text import Words
from xclearn.text.vectorisers import DENSE_ROWS, SPARSE_ROWS

COLOURS = ["blue", "green", "red"]  # the vocabulary: equally common, so by name
LABELS = ["sky", "leaf", "berry", "night"]
WEIGHT = np.array([[3, 0, 0], [0, 2, 0], [0, 0, 4], [1, -1, -1]], dtype=np.float32)  # (labels, colours)
BIAS = np.array([0, 0, 0, -2], dtype=np.float32)


def servable(**parts: object) -> Servable:
    """With some parts replaced."""
    made = {
        "vectoriser": Words().learn(COLOURS),
        "encoders": {"document": Bag(np.eye(3, dtype=np.float32), [Relu()])},
        "candidates": AllLabels(),
        "scorers": [Classifier("document", WEIGHT, BIAS)],
        "fusion": Sigmoid(),
    }
    return Servable(**made | parts)


def expect_fits(part: Part, dims: dict[str, int] | None = None, sparse: str = "", **sizes: int) -> None:
    """Check a part alone: among vectors of these widths, one of which may be sparse, and in a model of these sizes."""
    forms = {name: SPARSE_ROWS if name == sparse else DENSE_ROWS for name in dims or {}}
    check(part, Scope(sizes, {name: Encoded(dim, forms[name]) for name, dim in (dims or {}).items()}))


def model(texts: list[str] | None = None, **about: object) -> Model:
    facts = {"xclearn": "0", "algorithm": "by_hand", "settings": {}, "resolved": {}, "data": {"name": "colours"}}
    return Model(servable(), LabelSet(LABELS, texts), facts | about)


def dataset() -> Dataset:
    """Test: blue is a sky, green is a leaf and (wrongly) a berry, red is a night and (void) a berry."""
    train = np.array([[1, 0, 0, 1], [1, 1, 0, 0], [1, 0, 1, 0]], dtype=np.float32)
    test = np.array([[1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1]], dtype=np.float32)
    splits = [Split(COLOURS, sp.csr_matrix(relevance), **rest) for relevance, rest in ((train, {}), (test, VOID))]
    return Dataset("colours", splits[0], LabelSet(LABELS), splits[1])


VOID = {"filter_pairs": np.array([[2, 2]])}
