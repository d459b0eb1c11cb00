"""Token ids against a hand-made example and against Hugging Face `tokenizers` as second library."""

import string

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordPiece

from xclearn.text.tokenisers import LONGEST_WORD, WordPieceTokeniser, WordTokeniser, runs, words

PIECES = ["un", "##a", "##aff", "##able", "##ff", "a", "b", "##b", "ab", "##ba", "é", "##é", "_", "##_"]


def test_words_are_lower_cased_runs_of_word_characters():
    assert words("Über-Fluß, x_1  42!\0a\ud800b") == ["über", "fluß", "x_1", "42", "a", "b"]


def test_every_surrogate_separates_words():
    assert words("".join(f"a{chr(code)}" for code in range(0xD800, 0xE000))) == ["a"] * 2048


def test_unknown_words_give_no_id():
    tokeniser = WordTokeniser(["red", "blue"])
    assert tokeniser.encode_one("Blue, green, red; BLUE") == [1, 0, 1]


def test_runs_are_of_neighbouring_words():
    assert list(runs(["a", "b", "c"], 1)) == ["a", "b", "c"]
    assert list(runs(["a", "b", "c"], 2)) == ["a b", "b c"]
    assert list(runs(["a", "b", "c"], 4)) == []


def test_a_known_run_is_a_token_beside_its_words():
    tokeniser = WordTokeniser(["red", "apple", "red apple", "pie", "red apple pie"])
    assert sorted(tokeniser.encode_one("RED, apple-pie")) == [0, 1, 2, 3, 4]
    assert sorted(tokeniser.encode_one("red red apple red apple")) == [0, 0, 0, 1, 1, 2, 2]


def test_no_run_goes_across_an_unknown_word_or_from_text_to_text():
    tokeniser = WordTokeniser(["red", "apple", "red apple"])
    assert tokeniser.encode_one("red unknown apple red") == [0, 1, 0]
    assert tokeniser.encode(["red", "apple"])[0].tolist() == [0, 1]


def test_pieces_are_the_longest_from_the_left():
    tokeniser = WordPieceTokeniser(PIECES)
    tokens = [tokeniser.tokens[i] for i in tokeniser.encode_one("unaffable unabz ab")]
    assert tokens == ["un", "##aff", "##able", "ab"]  # "unabz" has no piece for z and is unknown as a whole


def test_encode_lays_texts_end_to_end():
    ids, ends = WordTokeniser(["red", "blue"]).encode(["blue red", "", "?", "red"])
    np.testing.assert_array_equal(ids, np.array([1, 0, 0], dtype=np.int32), strict=True)
    np.testing.assert_array_equal(ends, np.array([0, 2, 2, 2, 3], dtype=np.int64), strict=True)


def test_encode_of_nothing():
    ids, ends = WordTokeniser(["red"]).encode([])
    assert ids.size == 0
    assert ends.tolist() == [0]


@given(st.lists(st.text("unafblé_z", max_size=LONGEST_WORD + 5)))
def test_pieces_equal_those_of_the_tokenizers_library(sequence):
    vocabulary = {"[UNK]": 0, **{piece: i + 1 for i, piece in enumerate(PIECES)}}
    library = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=LONGEST_WORD))
    text = " ".join(sequence)
    theirs = [i - 1 for i in library.encode(words(text), is_pretokenized=True).ids if i > 0]
    assert WordPieceTokeniser(PIECES).encode_one(text) == theirs


def test_an_endless_word_is_unknown_to_pieces():
    tokeniser = WordPieceTokeniser([*string.ascii_lowercase, *("##" + letter for letter in string.ascii_lowercase)])
    assert len(tokeniser.encode_one("a" * LONGEST_WORD)) == LONGEST_WORD
    assert tokeniser.encode_one("a" * (LONGEST_WORD + 1)) == []
