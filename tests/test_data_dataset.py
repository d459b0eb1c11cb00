"""Splits and data sets as values: rows taken, splits asked for."""

import numpy as np
import pytest
import scipy.sparse as sp

from xclearn.data import Dataset, LabelSet, Split
from xclearn.data.dataset import kind_of
from xclearn.errors import DataError

relevance = sp.csr_matrix(np.eye(3, dtype=np.float32))
split = Split(["a", "b", "c"], relevance, np.array([[0, 2], [2, 1], [2, 0]]), ["x", "y", "z"])


def test_rows_taken_bring_their_labels_names_and_filter_pairs() -> None:
    taken = split.take(np.array([2, 0]))
    assert (taken.documents, taken.names) == (["c", "a"], ["z", "x"])
    np.testing.assert_array_equal(taken.relevance.toarray(), [[0, 0, 1], [1, 0, 0]])
    np.testing.assert_array_equal(taken.filter_pairs, [[1, 2], [0, 1], [0, 0]])


def test_documents_and_relevance_must_agree() -> None:
    with pytest.raises(DataError, match="differ in rows"):
        Split(["a"], relevance)


def test_only_splits_that_exist_are_given() -> None:
    data = Dataset("set", split, LabelSet(["a", "b", "c"]), test=split)
    assert list(data.splits) == ["train", "test"]
    assert data.split("test") is split
    with pytest.raises(DataError, match="no such split; got 'dev'; allowed: train, test"):
        data.split("dev")


def test_kinds_of_documents() -> None:
    kinds = [kind_of(documents) for documents in (["a"], relevance, relevance.toarray())]
    assert kinds == ["texts", "sparse features", "dense features"]
