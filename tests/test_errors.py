"""The one sentence of every error: what, where, the value that came, what is allowed, what to do."""

import inspect
import pickle

import pytest

from xclearn import errors
from xclearn.errors import DataError, XclearnError, nearest

TREE = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, XclearnError)]


def test_the_parts_stand_in_one_order():
    error = DataError("not a number", where="a.jsonl:3", got="x", allowed="0 to 4", todo="Correct it.")
    assert str(error) == "a.jsonl:3: not a number; got 'x'; allowed: 0 to 4. Correct it."


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ({}, "it broke."),
        ({"where": "a.csv"}, "a.csv: it broke."),
        ({"got": 0}, "it broke; got 0."),
        ({"got": ""}, "it broke; got ''."),
        ({"got": None}, "it broke."),
        ({"allowed": "1 or 2"}, "it broke; allowed: 1 or 2."),
        ({"todo": "Mend it."}, "it broke. Mend it."),
        ({"got": (2, 3), "todo": "Mend it."}, "it broke; got (2, 3). Mend it."),
    ],
)
def test_a_part_that_is_absent_leaves_no_trace(parts, sentence):
    assert str(DataError("it broke", **parts)) == sentence


def test_the_parts_can_be_read_one_by_one():
    error = DataError("it broke", where="a.csv", got=3, allowed="4", todo="Mend it.")
    assert (error.what, error.where, error.got, error.allowed, error.todo) == (
        "it broke",
        "a.csv",
        3,
        "4",
        "Mend it.",
    )


@pytest.mark.parametrize("value", ["x" * 1000, b"x" * 1000, list(range(1000))])
def test_a_long_value_is_cut(value):
    sentence = str(DataError("too long", got=value))
    assert len(sentence) < 150
    assert sentence.endswith("….")


def test_a_sentence_is_one_line_whatever_came():
    sentence = str(DataError("not a text", got="one\ntwo\r\x1b[31m"))
    assert sentence == r"not a text; got 'one\ntwo\r\x1b[31m'."


def test_one_tree():
    """The command line and the server catch the root; a user can catch a branch."""
    assert len(TREE) == 9
    for kind in TREE:
        with pytest.raises(XclearnError, match="it broke; got 1"):
            raise kind("it broke", got=1)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("epoch", "Did you mean 'epochs'?"),
        ("batchsize", "Did you mean 'batch_size'?"),
        ("zzz", "Known: batch_size, epochs."),
    ],
)
def test_nearest_name(name, hint):
    assert nearest(name, ["epochs", "batch_size"]) == hint


def test_nearest_of_nothing():
    assert nearest("x", []) == "Known: none."


@pytest.mark.parametrize("kind", TREE)
def test_an_error_comes_from_another_process_as_it_was(kind):
    error = kind("it broke", where="a.csv", got=3, allowed="4", todo="Mend it.")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert (str(again), again.got, again.todo) == (str(error), 3, "Mend it.")
