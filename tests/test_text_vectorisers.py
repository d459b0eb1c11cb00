"""What was learnt: one text equals its row to the bit, rows do not depend on each other, states travel unharmed."""

import itertools
import json
import math
import time
import zlib

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import example, given
from hypothesis import strategies as st

from xclearn.errors import DataError, ModelError
from xclearn.text import Sequences, Subwords, WordPiece, Words, vectoriser_from_state
from xclearn.text.vectorisers import (
    VECTORISERS,
    DenseVectoriser,
    SequenceVectoriser,
    SparseVectoriser,
    WordVectoriser,
)
from xclearn.text.weighting import Weighting

CORPUS = [
    "Red apple, green apple",
    "a green pear: not an apple",
    "pears and apples of 1999",
    "naïve Äpfel größer 苹果 苹果",
    "",
] * 3
BAGS = [
    Words().learn(CORPUS),
    Words(sublinear=False, normalise=False).learn(CORPUS),
    WordPiece().learn(CORPUS),
    Words(longest=3).learn(CORPUS),
    Subwords(table_size=64).learn(CORPUS),
    Subwords(longest=2, shortest_part=1, longest_part=6, part_weight=2.0, sublinear=False).learn(CORPUS),
]
SEQUENCES = [Sequences(max_length=4).learn(CORPUS), Sequences(unit="words", max_length=4).learn(CORPUS)]
FEATURES = [SparseVectoriser(3), DenseVectoriser(3)]

# Arbitrary characters, lone surrogates among them, mixed with words that the corpus knows.
TEXT = st.lists(st.text(st.characters(exclude_categories=())) | st.sampled_from(" ".join(CORPUS).split())).map(" ".join)
STRANGE = ["", "\0", "zzz !!!", "\ud800apple\udfff", "apple\0apple", "é\u0301 İSTANBUL ǅ ß ﬁ", "\u2028 \x85 \ufeff"]


def rows_of(matrix: sp.csr_matrix) -> list[tuple[bytes, bytes]]:
    """Each row's ids and weights as raw bytes, so that equal means equal to the bit."""
    parts = itertools.pairwise(matrix.indptr)
    return [(matrix.indices[a:b].astype(np.int32).tobytes(), matrix.data[a:b].tobytes()) for a, b in parts]


def test_words_by_hand():
    vectoriser = WordVectoriser(["apple", "red"], Weighting(np.array([1.0, 2.0]), True, True))
    ids, weights = vectoriser.transform_one("Red apple or green APPLE")
    apple, red = 1 + math.log(2), 2.0
    np.testing.assert_array_equal(ids, np.array([0, 1], dtype=np.int32), strict=True)
    np.testing.assert_allclose(weights, np.array([apple, red]) / math.hypot(apple, red), rtol=1e-7)
    assert weights.dtype == np.float32
    assert vectoriser.tokens(ids) == ["apple", "red"]


def test_runs_by_hand():
    idf = np.array([1.0, 2.0, 3.0])
    vectoriser = WordVectoriser(["apple", "red", "red apple"], Weighting(idf, False, False))
    ids, weights = vectoriser.transform_one("Red apple, red APPLE: apple red")
    assert vectoriser.tokens(ids) == ["apple", "red", "red apple"]
    assert weights.tolist() == [3.0, 6.0, 6.0]


@pytest.mark.parametrize("vectoriser", BAGS)
@given(texts=st.lists(TEXT, max_size=5))
@example(texts=STRANGE)
def test_one_text_equals_its_row_to_the_bit(vectoriser, texts):
    matrix = vectoriser.transform(texts)
    assert matrix.shape == (len(texts), vectoriser.n_features)
    assert matrix.data.dtype == np.float32
    alone = [vectoriser.transform_one(text) for text in texts]
    assert rows_of(matrix) == [(ids.tobytes(), weights.tobytes()) for ids, weights in alone]
    for ids, weights in alone:
        assert (ids.dtype, weights.dtype) == (np.int32, np.float32)
        assert (np.diff(ids) > 0).all()
        assert np.isfinite(weights).all()


@pytest.mark.parametrize("vectoriser", BAGS)
@given(texts=st.lists(TEXT, max_size=5), data=st.data())
def test_transform_of_a_subset_is_the_subset(vectoriser, texts, data):
    chosen = data.draw(st.lists(st.integers(0, len(texts) - 1))) if texts else []
    whole = rows_of(vectoriser.transform(texts))
    assert rows_of(vectoriser.transform([texts[i] for i in chosen])) == [whole[i] for i in chosen]


@pytest.mark.parametrize("vectoriser", SEQUENCES)
@given(texts=st.lists(TEXT, max_size=5))
@example(texts=STRANGE)
def test_one_sequence_equals_its_row(vectoriser, texts):
    matrix = vectoriser.transform(texts)
    assert matrix.shape == (len(texts), 4)
    assert matrix.dtype == np.int32
    for row, text in zip(matrix, texts, strict=True):
        ids, weights = vectoriser.transform_one(text)
        assert ids.dtype == np.int32
        assert row.tolist() == ids.tolist() + [-1] * (4 - ids.size)
        assert weights.tolist() == [1.0] * ids.size


def test_sequences_by_hand():
    vectoriser = SequenceVectoriser("words", ["red", "apple"], 3)
    ids, cut = vectoriser.transform_and_count_cuts(["apple red, apple", "an apple", "", "red red apple apple"])
    assert ids.tolist() == [[1, 0, 1], [1, -1, -1], [-1, -1, -1], [0, 0, 1]]
    assert cut == 1
    assert vectoriser.tokens(ids[1]) == ["apple"]


@pytest.mark.parametrize("vectoriser", [*BAGS, *SEQUENCES])
def test_a_text_of_ten_megabytes_is_a_text(vectoriser):
    for text in ("apple pear " * 900_000, "a" * 10_000_000):
        ids, weights = vectoriser.transform_one(text)
        assert len(ids) == len(weights) <= max(4, vectoriser.n_features)


def test_sparse_features_are_scaled_and_their_owner_keeps_his():
    given_rows = sp.csr_matrix((np.array([3.0, 4.0, 0.0]), np.array([2, 0, 1]), np.array([0, 2, 2, 3])), shape=(3, 3))
    before = given_rows.copy()
    rows = SparseVectoriser(3).transform(given_rows)
    np.testing.assert_array_equal(rows.toarray(), np.array([[0.8, 0, 0.6], [0, 0, 0], [0, 0, 0]], np.float32))
    assert rows.dtype == np.float32
    assert rows.indices.tolist() == [0, 2, 1]
    np.testing.assert_array_equal(given_rows.indices, before.indices)
    np.testing.assert_array_equal(given_rows.data, before.data)


def test_dense_features_pass_through():
    rows = DenseVectoriser(2).transform(np.array([[1, 2], [3, 4]]))
    np.testing.assert_array_equal(rows, np.array([[1, 2], [3, 4]], dtype=np.float32), strict=True)


@pytest.mark.parametrize("vectoriser", FEATURES)
def test_features_are_checked(vectoriser):
    cast = sp.csr_matrix if vectoriser.reads == "sparse features" else np.array
    for bad in (cast([[1.0, 2.0]]), cast([[1.0, np.nan, 2.0]]), cast([[1.0, 1e300, 2.0]])):
        with pytest.raises(DataError):
            vectoriser.transform(bad)


@pytest.mark.parametrize("vectoriser", [*BAGS, *SEQUENCES, *FEATURES])
def test_another_kind_of_documents_is_told_what_the_model_is_trained_on(vectoriser):
    kinds = {"texts": ["a"], "sparse features": sp.csr_matrix((1, 3)), "dense features": np.zeros((1, 3))}
    vectoriser.transform(kinds.pop(vectoriser.reads))
    for documents in kinds.values():
        with pytest.raises(DataError, match=f"allowed: {vectoriser.reads}"):
            vectoriser.transform(documents)


@pytest.mark.parametrize(
    ("vectoriser", "document"), [(BAGS[0], None), (SEQUENCES[0], b"a"), *((v, "a") for v in FEATURES)]
)
def test_one_document_of_another_kind_is_refused(vectoriser, document):
    with pytest.raises(DataError):
        vectoriser.transform_one(document)


@pytest.mark.parametrize("vectoriser", [*BAGS, *SEQUENCES, *FEATURES])
def test_a_state_is_plain_and_gives_the_same_vectoriser(vectoriser):
    state = vectoriser.to_state()
    arrays = {key: value for key, value in state.items() if isinstance(value, np.ndarray)}
    plain = {key: value for key, value in state.items() if key not in arrays}
    again = vectoriser_from_state(vectoriser.kind, {**arrays, **json.loads(json.dumps(plain))})
    assert type(again) is type(vectoriser)
    assert again.n_features == vectoriser.n_features
    assert again.tokens([2, 0]) == vectoriser.tokens([2, 0])
    documents = {"texts": CORPUS, "sparse features": sp.eye(3), "dense features": np.eye(3)}[vectoriser.reads]
    ours, theirs = vectoriser.transform(documents), again.transform(documents)
    if sp.issparse(ours):
        assert rows_of(ours) == rows_of(theirs)
    else:
        np.testing.assert_array_equal(ours, theirs, strict=True)


FOREIGN = st.none() | st.booleans() | st.integers(-2, 2) | st.floats() | st.text() | st.lists(st.text() | st.none())
ARRAYS = st.sampled_from([np.ones(3), np.ones((2, 2)), np.array([1.0, np.nan]), np.arange(2), np.array(["a", "b"])])


@pytest.mark.parametrize("vectoriser", [BAGS[0], *BAGS[2:], *SEQUENCES, *FEATURES])
@given(data=st.data())
def test_a_changed_state_loads_as_a_working_vectoriser_or_raises_our_error(vectoriser, data):
    state = vectoriser.to_state()
    field = data.draw(st.sampled_from(sorted(state)))
    action = data.draw(st.sampled_from(["drop", "add", "change"]))
    if action == "drop":
        del state[field]
    else:
        state[field if action == "change" else "other"] = data.draw(FOREIGN | ARRAYS)
    try:
        loaded = vectoriser_from_state(vectoriser.kind, state)
    except ModelError:
        return
    assert action == "change"
    if loaded.reads == "texts":
        loaded.transform(CORPUS)


@pytest.mark.parametrize(
    ("kind", "changes", "says"),
    [
        ("words.v1", {"idf": np.ones(2)}, "idf"),
        ("words.v1", {"idf": np.ones(3, dtype=np.float32)}, "idf"),
        ("words.v1", {"idf": np.array([1.0, np.inf, 1.0])}, "idf"),
        ("words.v1", {"tokens": ["a", "b", "a"]}, "vocabulary"),
        ("words.v1", {"tokens": []}, "vocabulary"),
        ("words.v1", {"tokens": ["a", "b", "a c"]}, "got 'a c'"),
        ("words.v1", {"tokens": ["a", "b", "c a"]}, "got 'c a'"),
        ("words.v1", {"tokens": ["a", "b", "b a b"]}, "got 'b a b'"),
        ("words.v1", {"tokens": ["a", "b", "a  b"]}, "got 'a  b'"),
        ("words.v1", {"tokens": ["a", "b", " "]}, "got ' '"),
        ("words.v1", {"sublinear": 1}, "sublinear is of the wrong type"),
        ("word.v1", {}, "Did you mean 'words.v2'"),
        (["words.v1"], {}, "unknown kind"),
        ("words.v3", {}, "unknown kind"),
    ],
)
def test_a_foreign_state_is_refused_by_name(kind, changes, says):
    good = {"tokens": ["a", "b", "c"], "idf": np.ones(3), "sublinear": True, "normalise": True}
    assert vectoriser_from_state("words.v1", good).n_features == 3
    with pytest.raises(ModelError, match=says):
        vectoriser_from_state(kind, {**good, **changes})


def test_a_state_that_is_no_mapping_is_refused():
    assert len(VECTORISERS) == 7
    for kind in VECTORISERS:
        with pytest.raises(ModelError, match="unexpected fields"):
            vectoriser_from_state(kind, ["tokens"])


def test_report_the_time_of_one_text_and_of_a_batch():
    rng = np.random.default_rng(0)
    vocabulary = [f"word{i}" for i in range(20_000)]
    texts = [" ".join(vocabulary[i] for i in row) for row in rng.integers(0, 20_000, size=(10_000, 13))]
    for settings in (Words(), WordPiece(vocabulary_size=5_000)):
        vectoriser = settings.learn(texts)
        start = time.perf_counter()
        matrix = vectoriser.transform(texts)
        batch = time.perf_counter() - start
        start = time.perf_counter()
        rows = [vectoriser.transform_one(text) for text in texts[:1000]]
        one = time.perf_counter() - start
        assert sum(ids.size for ids, _ in rows) == matrix[:1000].nnz
        print(f"{vectoriser.kind}: one text {one * 1e3:.0f} µs, in a batch {batch / len(texts) * 1e6:.1f} µs")


def test_subwords_by_hand():
    """`ab` is one word, and the parts `<ab`, `ab>` and `<ab>`; either kind is of length one, parts then of half."""
    vectoriser = Subwords(min_count=1, table_size=1 << 16, part_weight=0.5, sublinear=False).learn(["ab", "ab", "cd"])
    ids, weights = vectoriser.transform_one("AB")
    n_words = 2
    parts = sorted(zlib.crc32(part) % (1 << 16) for part in (b"<ab", b"ab>", b"<ab>"))
    assert vectoriser.tokens(ids[:1]) == ["ab"]
    assert (ids[1:] - n_words).tolist() == parts
    np.testing.assert_allclose(weights, np.array([1, *[0.5 / math.sqrt(3)] * 3]) / math.sqrt(1.25), rtol=1e-6)


def test_a_word_nobody_knows_is_near_to_one_it_is_made_like():
    vectoriser = Subwords(min_count=1).learn(["photograph", "geology", "bakery"])
    known, unknown = (vectoriser.transform([text]) for text in ("photograph", "photographs"))
    other = vectoriser.transform(["bakery"])
    assert (known @ unknown.T).toarray()[0, 0] > 0.3
    assert (other @ unknown.T).toarray()[0, 0] < 0.1


def test_an_endless_word_has_no_parts():
    vectoriser = Subwords(min_count=1).learn(["stone"])
    assert vectoriser.transform_one("x" * 1_000_000)[0].size == 0


def test_damaged_subwords_are_refused():
    state = Subwords(min_count=1, table_size=32).learn(["stone water"]).to_state()
    for change, said in (
        ({"table_size": 33}, "idf does not fit"),
        ({"table_size": 0}, "table_size is out of range"),
        ({"part_weight": -1.0}, "out of range"),
        ({"longest_part": 2}, "out of range"),
        ({"tokens": ["stone", "stone"]}, "vocabulary is damaged"),
    ):
        with pytest.raises(ModelError, match=said):
            vectoriser_from_state("subwords.v1", state | change)
