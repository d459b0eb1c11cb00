"""The tokeniser of a folder: what it makes of texts, what it cuts, what it keeps in a model, what it refuses."""

import numpy as np
import pytest
from tiny_transformer import MARKS, WORDS, write_tokeniser

from xclearn.errors import ConfigError, DataError, ModelError
from xclearn.text import Pretrained, PretrainedVectoriser, vectoriser_from_state

FIRST, LAST, UNKNOWN = 2, 3, 1


@pytest.fixture
def vectoriser(tmp_path) -> PretrainedVectoriser:
    write_tokeniser(tmp_path)
    return Pretrained(folder=str(tmp_path), max_length=5).learn(["whatever"])


def test_ids_stand_in_the_texts_order_between_their_marks(vectoriser):
    ids = vectoriser.transform(["Red stones", ""])
    assert ids.tolist() == [[FIRST, 4, 7, 9, LAST], [FIRST, LAST, -1, -1, -1]]
    assert ids.dtype == np.int32
    assert vectoriser.tokens(ids[0]) == ["[CLS]", "red", "stone", "##s", "[SEP]"]
    assert vectoriser.n_features == len(MARKS) + len(WORDS)


def test_long_texts_are_cut_and_counted(vectoriser):
    ids, n_cut = vectoriser.transform_and_count_cuts(["red green blue", "red green blue stone", "water " * 100])
    assert n_cut == 2
    assert (ids[:, -1] == LAST).all()  # the mark of the end is kept


@pytest.mark.parametrize("text", ["red stone", "", "water", "\ud800", "\x00", "unseen words"])
def test_one_text_is_its_row_among_many(vectoriser, text):
    row = vectoriser.transform([text])[0]
    ids, weights = vectoriser.transform_one(text)
    assert ids.tolist() == row[row >= 0].tolist()
    assert (weights == 1).all()


def test_a_lone_surrogate_is_an_unknown_word(vectoriser):
    assert vectoriser.transform(["\ud800"])[0].tolist() == [FIRST, UNKNOWN, LAST, -1, -1]


def test_the_state_gives_the_same_vectoriser_without_the_folder(vectoriser, tmp_path):
    texts = ["red water", "blue"]
    state = vectoriser.to_state()
    (tmp_path / "tokenizer.json").unlink()
    again = vectoriser_from_state(vectoriser.kind, state)
    assert (again.transform(texts) == vectoriser.transform(texts)).all()
    assert str(tmp_path) not in str(state)


@pytest.mark.parametrize(
    "change", [{"tokeniser": "{}"}, {"max_length": 0}, {"max_length": 1}, {"max_length": "5"}, {"other": 1}]
)
def test_a_damaged_state_is_refused(vectoriser, change):
    with pytest.raises(ModelError):
        vectoriser_from_state(vectoriser.kind, vectoriser.to_state() | change)


@pytest.mark.parametrize("folder", ["", "nothing here"])
def test_a_folder_without_a_tokeniser_is_named_with_the_way_out(tmp_path, folder):
    with pytest.raises(ConfigError, match=r"vectoriser.folder: no tokenizer.json of the encoder.*xc data encoder"):
        Pretrained(folder=folder and str(tmp_path / folder)).learn(["red"])


def test_a_file_that_is_no_tokeniser_is_refused(tmp_path):
    (tmp_path / "tokenizer.json").write_text("[]")
    with pytest.raises(DataError, match=r"tokenizer.json cannot be used"):
        Pretrained(folder=str(tmp_path)).learn(["red"])


def test_a_length_without_room_for_a_word_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"max_length: out of range; got 2"):
        Pretrained(folder=str(tmp_path), max_length=2).learn(["red"])
