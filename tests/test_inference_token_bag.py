"""A bag of tokens and of pairs of neighbours, by hand and against a count in plain Python."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from handmade import expect_fits
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from xclearn.errors import ModelError
from xclearn.inference import token_bag
from xclearn.inference.components import COMPONENTS
from xclearn.inference.sparse import SparseFeatures
from xclearn.inference.token_bag import TokenBag, bag_encoder
from xclearn.text import Sequences, Words, vectoriser_for

V = 5


class Tokens:
    """As much of a vectoriser as is asked for."""

    n_features = V


def test_a_bag_of_sequences_counts_tokens_by_their_rarity():
    texts = ["red red fish", "red bird", "red"]
    vectoriser = vectoriser_for(texts, Sequences(max_length=4), None)
    ids = vectoriser.transform(texts)
    bag = bag_encoder(vectoriser, ids)
    assert isinstance(bag, TokenBag)
    found = bag.encode(ids).toarray()
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-6)
    red, fish = (int(vectoriser.transform([word])[0, 0]) for word in ("red", "fish"))
    assert found[0, red] / found[0, fish] == pytest.approx(2 * (np.log(4 / 4) + 1) / (np.log(4 / 2) + 1))


def test_bags_stay_what_they_are_with_pairs_or_without():
    vectoriser = vectoriser_for(["red fish", "fish red"], Words(), None)
    features = vectoriser.transform(["red fish"])
    for pairs in (False, True):
        assert bag_encoder(vectoriser, features, pairs=pairs) == SparseFeatures(vectoriser.n_features, True)


def test_pairs_of_two_texts_count_those_of_one_do_not():
    ids = np.array([[0, 1, 2, -1], [3, 0, 1, -1], [1, 0, -1, -1]], dtype=np.int32)  # only 0 1 stands in two texts
    bag = bag_encoder(Tokens(), ids, pairs=True)
    assert bag.pairs.tolist() == [0 * V + 1]
    assert (bag.n_features, bag.dim) == (V, V + 1)
    found = bag.encode(ids).toarray()
    assert (found[:, V] > 0).tolist() == [True, True, False]
    assert found[0, V] / found[0, 0] == pytest.approx((np.log(4 / 3) + 1) / (np.log(4 / 4) + 1))


@given(hnp.arrays(np.int32, st.tuples(st.integers(1, 6), st.integers(1, 6)), elements=st.integers(-1, V - 1)))
def test_columns_are_those_of_a_count_in_plain_python(ids):
    bag = bag_encoder(Tokens(), ids, pairs=True)
    texts = [Counter((a, b) for a, b in pairwise(row) if min(a, b) >= 0) for row in ids.tolist()]
    common = sorted(pair for pair, n in Counter(pair for text in texts for pair in text).items() if n >= 2)
    assert bag.pairs.tolist() == [V * a + b for a, b in common]
    counts = np.array(
        [
            [row.count(t) for t in range(V)] + [text[p] for p in common]
            for row, text in zip(ids.tolist(), texts, strict=True)
        ]
    )
    rarity = 1 + np.log((1 + len(ids)) / (1 + (counts > 0).sum(axis=0)))
    expected = counts * rarity
    norms = np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(bag.encode(ids).toarray(), expected / np.where(norms > 0, norms, 1), rtol=1e-5)


def test_a_text_of_pairs_never_seen_has_its_tokens_alone():
    bag = bag_encoder(Tokens(), np.array([[0, 1], [0, 1]], dtype=np.int32), pairs=True)
    assert np.flatnonzero(bag.encode(np.array([[1, 0]], dtype=np.int32)).toarray()).tolist() == [0, 1]


def test_texts_are_counted_in_blocks_as_at_once(monkeypatch):
    ids = np.random.default_rng(0).integers(-1, V, (50, 6), dtype=np.int32)
    whole = bag_encoder(Tokens(), ids, pairs=True)
    monkeypatch.setattr(token_bag, "_AT_ONCE", 7)
    blocks = bag_encoder(Tokens(), ids, pairs=True)
    assert (blocks.pairs == whole.pairs).all()
    assert (blocks.idf == whole.idf).all()
    assert (blocks.encode(ids) != whole.encode(ids)).nnz == 0
    assert whole.encode(ids[:0]).shape == (0, whole.dim)


def test_a_file_from_before_pairs_is_read():
    bag = COMPONENTS["token_bag.v1"](idf=np.ones(V, np.float32))
    expect_fits(bag, features=V)
    assert bag.encode(np.array([[0, 1]], np.int32)).shape == (1, V)


GOOD = {"idf": np.ones(V + 2, np.float32), "pairs": np.array([1, 7])}


@pytest.mark.parametrize(
    "damage",
    [
        {"pairs": np.array([7, 1])},
        {"pairs": np.array([1, 1])},
        {"pairs": np.array([-1, 1])},
        {"pairs": np.array([1, V * V])},
        {"pairs": np.array([1, 7], np.int32)},
        {"pairs": np.array([[1, 7]])},
        {"idf": np.ones(2, np.float32)},
        {"idf": np.ones(V + 2)},
        {"idf": np.full(V + 2, np.nan, np.float32)},
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(damage):
    expect_fits(TokenBag(**GOOD), features=V)
    with pytest.raises(ModelError, match="token_bag"):
        expect_fits(TokenBag(**GOOD | damage), features=V)
