"""Bags of many texts from the native core, against those of one text at a time, to the bit."""

import numpy as np
import pytest

from xclearn.kernels.texts import text_bags
from xclearn.text import WordPiece, Words
from xclearn.text.vectorisers import TfidfVectoriser

CORPUS = [
    "Red apple, green apple",
    "a green pear: not an apple",
    "",
    "naïve Äpfel größer 苹果 苹果",
    "zzz !!!",
    "\ud800apple\udfff\0apple",
    "é\u0301 İSTANBUL ǅ ß ﬁ \u2028 \x85 \ufeff",
] * 400  # more than one task of a thread
VECTORISERS = {
    "words": Words(),
    "runs": Words(longest=3),
    "counts": Words(sublinear=False, normalise=False),
    "plain": Words(unicode=False),
    "pieces": WordPiece(vocabulary_size=200),
}


def learnt(name: str) -> TfidfVectoriser:
    vectoriser = VECTORISERS[name].learn(CORPUS)
    assert isinstance(vectoriser, TfidfVectoriser)
    return vectoriser


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("name", VECTORISERS)
def test_many_texts_have_the_bags_of_each(name: str, n_threads: int) -> None:
    vectoriser = learnt(name)
    starts, ids, weights = text_bags(vectoriser._rules(), vectoriser.preparation.all(CORPUS), n_threads)
    assert len(starts) == len(CORPUS) + 1
    for i in (*range(7), 1023, 1024, len(CORPUS) - 1):
        row = slice(starts[i], starts[i + 1])
        expected = vectoriser.transform_one(CORPUS[i])
        np.testing.assert_array_equal(ids[row], expected[0], strict=True)
        np.testing.assert_array_equal(weights[row], expected[1], strict=True)


@pytest.mark.parametrize("name", VECTORISERS)
def test_a_matrix_of_many_texts_is_that_of_few(name: str) -> None:
    vectoriser = learnt(name)
    many, few = vectoriser.transform(CORPUS), vectoriser.transform(CORPUS[:7])
    assert many.shape == (len(CORPUS), vectoriser.n_features)
    assert (many[-7:] != few).nnz == 0
    assert many.indices.dtype == few.indices.dtype
    assert many.data.dtype == few.data.dtype
    assert many.has_sorted_indices


def test_no_texts_have_no_bags() -> None:
    starts, ids, weights = text_bags(learnt("words")._rules(), [])
    assert (starts.tolist(), len(ids), len(weights)) == ([0], 0, 0)
