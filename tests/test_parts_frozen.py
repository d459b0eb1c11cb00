"""Classifiers by a solver over fixed vectors find what was planted; Slice looks only at listed documents."""

import numpy as np
import pytest
import scipy.sparse as sp

from xclearn.parts.frozen import _listed, solved

N_LABELS = 8


@pytest.fixture(scope="module")
def clouds() -> tuple[np.ndarray, sp.csr_matrix]:
    rng = np.random.default_rng(0)
    label = np.arange(80) % N_LABELS
    vectors = np.eye(N_LABELS, dtype=np.float32)[label] + 0.1 * rng.random((80, N_LABELS), dtype=np.float32)
    relevance = sp.csr_matrix((np.ones(80, np.float32), (np.arange(80), label)), shape=(80, N_LABELS))
    return vectors, relevance


@pytest.mark.parametrize("kind", ["label_tree", "slice", "sparse_one_vs_all"])
def test_the_right_label_is_first(kind, clouds):
    vectors, relevance = clouds
    lists = np.argsort(-vectors, axis=1)[:, :3].astype(np.int32)
    scorer = solved(kind, "document", vectors, relevance, lists, seed=0)
    assert scorer.n_labels == N_LABELS
    assert (scorer.score_all(vectors).argmax(axis=1) == np.arange(80) % N_LABELS).all()


def test_slice_with_every_label_on_every_list_is_one_vs_all(clouds):
    """The same problems, but that few children get a learnt bias: the ranking is the same."""
    vectors, relevance = clouds
    everything = np.tile(np.arange(N_LABELS, dtype=np.int32), (80, 1))
    listed, exact = (
        solved(kind, "v", vectors, relevance, everything, seed=0) for kind in ("slice", "sparse_one_vs_all")
    )
    assert (listed.score_all(vectors).argmax(axis=1) == exact.score_all(vectors).argmax(axis=1)).all()


def test_the_documents_of_a_label_are_its_own_and_those_that_list_it():
    relevance = sp.csr_matrix(np.array([[1, 0], [0, 1], [0, 1]], np.float32))
    lists = np.array([[1, -1], [1, -1], [0, 1]], np.int32)
    assert _listed(lists, sp.csr_matrix(relevance.T)).toarray().tolist() == [[1, 0, 1], [1, 1, 1]]
