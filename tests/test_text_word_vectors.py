"""Word vectors from files: worked-out examples, and the sentence that a wrong file gets."""

import gzip

import numpy as np
import pytest

from xclearn.errors import DataError
from xclearn.text.word_vectors import read_word_vectors

TOKENS = ["cat", "dog", "emu"]
LINES = "dog 1 2\ncat 0.5 -1e-1\ndog 7 7\ncow 3 4\n"


@pytest.mark.parametrize("header", ["", "4 2\n"])
@pytest.mark.parametrize("ending", ["\n", " \n", "\r\n"])
def test_rows_are_in_the_order_of_the_vocabulary_and_the_first_of_two_counts(tmp_path, header, ending):
    (tmp_path / "a.vec").write_text((header + LINES).replace("\n", ending), newline="")
    found = read_word_vectors(tmp_path / "a.vec", TOKENS)
    assert found.values.dtype == np.float32
    np.testing.assert_array_equal(found.values, np.array([[0.5, -0.1], [1, 2], [0, 0]], dtype=np.float32))
    assert found.known.tolist() == [True, True, False]


def test_a_run_of_words_is_unknown_to_a_text_file(tmp_path):
    (tmp_path / "a.vec").write_text(LINES)
    assert read_word_vectors(tmp_path / "a.vec", ["cat", "cat dog", "dog"]).known.tolist() == [True, False, True]


def test_a_compressed_file_is_read_alike(tmp_path):
    (tmp_path / "a.vec.gz").write_bytes(gzip.compress(LINES.encode()))
    assert read_word_vectors(tmp_path / "a.vec.gz", TOKENS).known.sum() == 2


def test_an_array_has_a_row_for_each_feature(tmp_path):
    array = np.arange(6, dtype=np.float64).reshape(3, 2)
    np.save(tmp_path / "a.npy", array)
    found = read_word_vectors(tmp_path / "a.npy", TOKENS)
    np.testing.assert_array_equal(found.values, array)
    assert found.known.all()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("dog 1 2\ncat 1\n", ":2: the line is not a word vector; got 'cat 1'; allowed: a token and 2 numbers."),
        ("dog 1 two\n", ":1: the line is not a word vector"),
        ("dog 1 nan\n", ":1: the vector holds a value that is not finite."),
        ("cow 1 2\n", ": the file contains none of the vocabulary's tokens; got '3 tokens'."),
        ("", ": the file has no word vectors."),
        ("4 2\n", ": the file has no word vectors."),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(tmp_path, content, said):
    (tmp_path / "a.vec").write_text(content)
    with pytest.raises(DataError) as refused:
        read_word_vectors(tmp_path / "a.vec", TOKENS)
    assert str(refused.value).startswith(f"{tmp_path / 'a.vec'}{said}")


@pytest.mark.parametrize("array", [np.ones((2, 2)), np.ones(3), np.ones((3, 2), dtype=int), np.full((3, 2), np.nan)])
def test_an_array_that_does_not_fit_is_refused(tmp_path, array):
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(DataError, match="array"):
        read_word_vectors(tmp_path / "a.npy", TOKENS)


def test_what_is_no_array_and_what_is_not_there(tmp_path):
    headers = (b"broken", b"\x01\x00\x02\x00[\n", b"\x01\x00\x10\x00" + b"(" * 15 + b"\n")
    for header in headers:
        (tmp_path / "a.npy").write_bytes(b"\x93NUMPY" + header)
        with pytest.raises(DataError, match="not a NumPy array"):
            read_word_vectors(tmp_path / "a.npy", TOKENS)
    with pytest.raises(DataError, match="no such file of word vectors"):
        read_word_vectors(tmp_path / "b.npy", TOKENS)
