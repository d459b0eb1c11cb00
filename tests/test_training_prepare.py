"""From a data set to numbers."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
from planted import planted

from xclearn.data import Dataset, LabelSet, Split
from xclearn.errors import DataError
from xclearn.text import Words
from xclearn.training.prepare import prepare
from xclearn.training.stage import Stopping

TEXTS = ["red apple", "green apple", "", "red"]
RELEVANCE = sp.csr_matrix(np.array([[1, 0], [0, 1], [0, 0], [1, 1]], dtype=np.float32))
DATA = Dataset(
    "fruit", Split(TEXTS, RELEVANCE), LabelSet(["a", "b"], ["red fruit", "green fruit"]), propensity=(0.5, 0.4)
)


def test_sizes_and_counts():
    prepared = prepare(DATA, Words(), None, 0)
    assert prepared.features.shape == (4, 4)  # red, green, apple, and fruit from the labels
    assert prepared.label_features.shape == (2, 4)
    assert prepared.label_counts.tolist() == [2, 2]
    assert (prepared.n_train, prepared.propensity) == (4, (0.5, 0.4))
    assert prepared.held_out is None
    size = prepared.size
    assert (size.n_documents, size.n_labels, size.n_features, size.n_feature_entries, size.n_relevant) == (
        4,
        2,
        4,
        5,
        4,
    )
    assert size.labels_per_document == 1
    assert not size.dense


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_features_pass_through(kind):
    data = planted(kind, n_labels=5)
    prepared = prepare(data, Words(), None, 0)
    assert prepared.features.shape == data.train.documents.shape
    assert prepared.label_features.shape[0] == 5
    assert prepared.size.dense is (kind == "dense")
    assert prepared.size.n_feature_entries == (
        data.train.documents.size if kind == "dense" else data.train.documents.nnz
    )


def test_label_texts_of_another_kind_are_left_out():
    data = dataclasses.replace(planted("sparse", n_labels=5), labels=planted(n_labels=5).labels)
    assert prepare(data, Words(), None, 0).label_features is None


def test_the_hold_out_comes_from_train_and_counts_include_it():
    data = planted()
    prepared = prepare(data, Words(), Stopping(hold_out=0.1), seed=0)
    held, kept = len(prepared.held_out), prepared.features.shape[0]
    assert held == 60
    assert held + kept == len(data.train) == prepared.n_train
    assert prepared.label_counts.sum() == data.train.relevance.nnz
    assert set(prepared.held_out.documents) <= set(data.train.documents)
    assert prepared.held_out_features.shape == (held, prepared.vectoriser.n_features)


def test_the_vocabulary_is_learnt_without_the_hold_out():
    texts = [f"only{i}" for i in range(40)]
    data = Dataset("words", Split(texts, sp.csr_matrix(np.ones((40, 1), np.float32))), LabelSet(["a"]))
    prepared = prepare(data, Words(), Stopping(hold_out=0.25), seed=0)
    assert prepared.features.nnz == prepared.vectoriser.n_features == 30
    assert prepared.held_out_features.nnz == 0


def test_a_dev_split_is_the_hold_out():
    data = dataclasses.replace(planted(), dev=planted(seed=5).test)
    prepared = prepare(data, Words(), Stopping(), seed=0)
    assert prepared.held_out is data.dev
    assert prepared.features.shape[0] == len(data.train)


def test_too_few_to_hold_out_is_said():
    with pytest.raises(DataError, match="too few documents to hold some out; got 4"):
        prepare(DATA, Words(), Stopping(), 0)


def test_no_labels_at_all_is_said():
    data = dataclasses.replace(DATA, train=Split(TEXTS, sp.csr_matrix((4, 2), dtype=np.float32)))
    with pytest.raises(DataError, match="fruit: no training document has a label"):
        prepare(data, Words(), None, 0)
