"""Slice beyond the contract: what its vectors are, and what is chosen on held-out documents."""

import sys

import numpy as np
import pytest
from planted import planted, relevant_first

from xclearn import config
from xclearn.algorithms.slice import Slice
from xclearn.config import AUTO
from xclearn.errors import ConfigError, MissingExtra


def test_dense_features_are_taken_as_they_are():
    data = planted("dense", n_labels=12)
    fitted = Slice().fit(data, device="cpu")
    np.testing.assert_array_equal(
        fitted.model.servable.encoders["document"].encode(data.test.documents), data.test.documents
    )
    assert relevant_first(data, fitted.predict(data.test.documents).ids) > 0.9


def test_vectors_of_texts_are_sums_of_the_words_of_a_file(tmp_path):
    """By hand from the TF-IDF row, without a ReLU; a word that the file does not know counts for nothing."""
    data = planted(n_labels=12)
    rng = np.random.default_rng(0)
    vectors = {f"own{label}": rng.normal(size=6) for label in range(12)}
    lines = [f"{word} {' '.join(f'{value:.6f}' for value in vector)}" for word, vector in vectors.items()]
    (tmp_path / "a.vec").write_text("\n".join(lines) + "\n")
    fitted = Slice(word_vectors=str(tmp_path / "a.vec"), embedding_dim=6).fit(data, device="cpu")
    servable = fitted.model.servable
    features = servable.vectoriser.transform(data.test.documents[:5])
    tokens = servable.vectoriser.tokens(range(servable.vectoriser.n_features))
    table = np.array([vectors.get(token, np.zeros(6)) for token in tokens])
    np.testing.assert_allclose(servable.encoders["document"].encode(features), features @ table, atol=1e-5)
    assert (features @ table).min() < 0
    assert relevant_first(data, fitted.predict(data.test.documents).ids) > 0.5


def test_dense_features_have_no_word_vectors(tmp_path):
    with pytest.raises(
        ConfigError, match=r"word_vectors: the setting has no effect .* give texts instead of dense features"
    ):
        Slice(word_vectors=str(tmp_path / "a.vec")).fit(planted("dense", n_labels=12), device="cpu")


def test_the_weight_of_the_similarity_is_chosen_on_the_hold_out():
    data = planted(n_labels=12)
    fitted = config.build(Slice, {"stopping": {"hold_out": 0.2}}).fit(data, device="cpu")
    assert fitted.fusion_weight is AUTO
    assert fitted.model.servable.fusion.weight == fitted.resolved_["fusion_weight"]


def test_short_lists_are_enough_where_neighbours_are_right():
    data = planted(n_labels=30)
    found = Slice(shortlist_size=3).fit(data, device="cpu").predict(data.test.documents, k=5)
    assert (found.ids[:, 3:] == -1).all()
    assert relevant_first(data, found.ids) > 0.8


def test_a_missing_index_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingExtra, match=r"xclearn\[ann\]"):
        Slice(search="ivf").fit(planted(n_labels=12), device="cpu")


def test_settings_written_before_hold_null_for_an_automatic_search():
    read = config.build(Slice, {"search": None})
    assert read.search is AUTO
    assert config.to_plain(read)["search"] is None
