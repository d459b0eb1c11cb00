"""Learning: scikit-learn as second library, planted ties, and independence of the order and of the process."""

import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from xclearn.config import build
from xclearn.errors import ConfigError, DataError
from xclearn.text import Sequences, WordPiece, Words, vectoriser_for

FEW_WORDS = st.lists(st.sampled_from(["a", "A", "b", "ab", "éß", "1_", "B2", "-", "."]), max_size=8).map(" ".join)
TEXTS = st.lists(FEW_WORDS | st.text("abAB éß1_-., ", max_size=30), min_size=1, max_size=12)


def learnable(texts: list[str]) -> bool:
    return any(character.isalnum() or character == "_" for text in texts for character in text)


@given(TEXTS.filter(learnable), st.lists(st.text("abc ", max_size=10)), st.integers(1, 4), st.booleans(), st.booleans())
def test_words_and_runs_equal_scikit_learn(texts, labels, longest, sublinear, normalise):
    ours = Words(longest=longest, sublinear=sublinear, normalise=normalise).learn(texts, labels)
    weighting = {"sublinear_tf": sublinear, "norm": "l2" if normalise else None, "smooth_idf": True}
    theirs = TfidfVectorizer(token_pattern=r"\w+", ngram_range=(1, longest), **weighting)
    theirs.fit(texts + labels)
    assert sorted(ours.tokens(range(ours.n_features))) == sorted(theirs.vocabulary_)
    columns = [theirs.vocabulary_[token] for token in ours.tokens(range(ours.n_features))]
    expected = theirs.transform(texts).toarray()[:, columns]
    np.testing.assert_allclose(ours.transform(texts).toarray(), expected, rtol=1e-6, atol=1e-6)


@given(TEXTS, st.integers(2, 3), st.integers(1, 3))
def test_min_count_counts_texts_as_scikit_learns_min_df(texts, min_count, longest):
    theirs = TfidfVectorizer(token_pattern=r"\w+", ngram_range=(1, longest))
    held = theirs.build_analyzer()
    kept = {w for text in texts for w in held(text) if sum(w in held(other) for other in texts) >= min_count}
    settings = Words(min_count=min_count, longest=longest)
    if not kept:
        with pytest.raises(DataError, match=f"at least {min_count} texts"):
            settings.learn(texts)
    else:
        ours = settings.learn(texts)
        assert set(ours.tokens(range(ours.n_features))) == kept


def test_the_vocabulary_cut_breaks_ties_by_name():
    vectoriser = Words(max_features=3).learn(["d c b a", "a d", "z"], ["d"])
    assert vectoriser.tokens(range(3)) == ["d", "a", "b"]  # in 3, 2 and 1 texts; c and z lose the tie


@given(TEXTS.filter(learnable), st.integers(2, 4), st.integers(1, 20))
def test_the_cut_keeps_the_first_tokens_and_parts_no_run_from_its_words(texts, longest, size):
    whole = Words(longest=longest).learn(texts).to_state()["tokens"]
    kept = Words(longest=longest, max_features=size).learn(texts).to_state()["tokens"]
    assert kept == whole[:size]
    for i, token in enumerate(kept):
        first, _, last = token.rpartition(" ")
        assert not first or {first, last} <= set(kept[:i])


def test_words_go_before_runs_of_the_same_count():
    vectoriser = Words(longest=2, max_features=3).learn(["a b c", "b c"])
    assert vectoriser.tokens(range(3)) == ["b", "c", "b c"]
    assert Words(longest=2, max_features=4).learn(["a b c", "b c"]).tokens([3]) == ["a"]  # not "a b"


def test_runs_end_where_the_longest_text_ends():
    assert Words(longest=10**9).learn(["a b", "c"]).n_features == 4


def test_a_word_once_seen_is_kept_only_of_few_texts():
    few, many = [f"both {i % 400}" for i in range(998)], [f"both {i % 400}" for i in range(999)]
    assert Words().learn([*few, "once"]).n_features == 402
    assert Words().learn([*many, "once"]).n_features == 401


@pytest.mark.parametrize(
    "settings", [Words(longest=2, max_features=5), WordPiece(vocabulary_size=100), Sequences(unit="words")]
)
@given(data=st.data())
def test_learning_does_not_depend_on_order_or_side(settings, data):
    texts = data.draw(TEXTS.filter(learnable))
    shuffled = data.draw(st.permutations(texts))
    side = data.draw(st.integers(0, len(texts)))
    first = settings.learn(texts).to_state()
    second = settings.learn(shuffled[:side], shuffled[side:]).to_state()
    np.testing.assert_equal(second, first)


CORPUS = [f"{'ab'[i % 2]}{'cdefgh'[i % 6]}{'xyzuvw'[i % 5]} {chr(0x4E00 + i % 300)}{'rstq'[i % 4]}" for i in range(900)]


def test_pieces_are_the_same_in_every_process():
    # The trainer's hash maps are seeded anew in each process: ties must not follow them.
    code = (
        "import sys; from xclearn.text import WordPiece; texts = sys.stdin.buffer.read().decode().split('|');"
        "v = WordPiece(vocabulary_size=400).learn(texts);"
        "sys.stdout.buffer.write('|'.join(v.tokens(range(v.n_features))).encode())"
    )
    here = WordPiece(vocabulary_size=400).learn(CORPUS)
    expected = here.tokens(range(here.n_features))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for _ in range(3):
        command, texts = [sys.executable, "-c", code], "|".join(CORPUS).encode()
        done = subprocess.run(command, input=texts, capture_output=True, check=True, env=environment)
        assert done.stdout.decode().split("|") == expected


def test_pieces_keep_their_number_and_find_the_planted_word():
    vectoriser = WordPiece(vocabulary_size=100).learn(["quicksilver runs"] * 50 + CORPUS)
    assert vectoriser.n_features <= 100
    pieces = WordPiece().learn(["quicksilver runs"] * 50 + CORPUS)
    ids, _ = pieces.transform_one("Quicksilvers")
    assert set(pieces.tokens(ids)) == {"quicksilver", "##s"}


def test_idf_of_pieces_counts_the_texts_that_hold_them():
    texts = ["apple apple", "apple pie", "pie", ""] * 2
    vectoriser = WordPiece(normalise=False, sublinear=False).learn(texts)
    ids, weights = vectoriser.transform_one("apple apple")
    assert vectoriser.tokens(ids) == ["apple"]
    np.testing.assert_allclose(weights, [2 * (np.log(9 / 5) + 1)], rtol=1e-6)


@pytest.mark.parametrize("settings", [Words(), WordPiece(), Sequences(), Sequences(unit="words")])
@pytest.mark.parametrize("texts", [[], ["", " !?", "\0", "\ud800"]])
def test_texts_without_words_teach_nothing(settings, texts):
    with pytest.raises(DataError, match="no word"):
        settings.learn(texts)


@pytest.mark.parametrize("settings", [Words(), WordPiece(), Sequences()])
def test_an_endless_word_and_lone_surrogates_do_not_stop_learning(settings):
    vectoriser = settings.learn(["red apple", "red\ud800 \0 apple", "a" * 200_000])
    assert {"red", "apple"} <= set(vectoriser.tokens(vectoriser.transform_one("red apple")[0]))


@pytest.mark.parametrize(
    "settings",
    [
        Words(longest=0),
        Words(max_features=0),
        Words(min_count=0),
        WordPiece(vocabulary_size=99),
        Sequences(unit="letters"),
        Sequences(max_length=0),
    ],
)
def test_settings_out_of_range_are_refused_when_used(settings):
    with pytest.raises(ConfigError):
        settings.learn(["red apple"])


def test_settings_are_built_from_plain_values():
    assert build(Sequences, {"unit": "words", "max_length": 8}) == Sequences(unit="words", max_length=8)


def test_texts_are_learnt_and_features_pass_through():
    assert vectoriser_for(["a b"], Words(), ["c"]).n_features == 3
    assert vectoriser_for(["a b"], WordPiece()).kind == "wordpiece.v2"
    assert vectoriser_for(["a b"], Sequences()).kind == "sequences.v1"
    sparse = vectoriser_for(sp.csr_matrix((4, 7)), Words(), sp.csr_matrix((2, 7)))
    assert (sparse.kind, sparse.n_features) == ("sparse.v1", 7)
    dense = vectoriser_for(np.zeros((4, 7)), Words(), np.zeros((2, 7)))
    assert (dense.kind, dense.n_features) == ("dense.v1", 7)
    assert dense.tokens([5]) == ["feature 5"]


@pytest.mark.parametrize(
    ("documents", "labels"),
    [
        (["a"], np.zeros((1, 3))),
        (["a"], "a"),
        (np.zeros((1, 3)), ["a"]),
        (np.zeros((1, 3)), np.zeros((1, 4))),
        (sp.csr_matrix((1, 3)), sp.csr_matrix((1, 4))),
        (["a"], ["b", None]),
    ],
)
def test_label_texts_must_match_the_documents(documents, labels):
    with pytest.raises(DataError):
        vectoriser_for(documents, Words(), labels)
