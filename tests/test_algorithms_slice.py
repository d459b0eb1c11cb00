"""Slice beyond the contract: what its vectors are, and what is chosen on held-out documents."""

import sys

import numpy as np
import pytest
from planted import planted, relevant_first

from xclearn import config
from xclearn.algorithms.slice import Slice
from xclearn.config import AUTO
from xclearn.errors import MissingExtra


def test_dense_features_are_taken_as_they_are():
    data = planted("dense", n_labels=12)
    fitted = Slice().fit(data, device="cpu")
    np.testing.assert_array_equal(
        fitted.model.servable.encoders["document"].encode(data.test.documents), data.test.documents
    )
    assert relevant_first(data, fitted.predict(data.test.documents).ids) > 0.9


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
