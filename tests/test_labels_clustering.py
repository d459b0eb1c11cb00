"""Label centroids by hand, clusters of labels by planted truth."""

import numpy as np
import pytest
import scipy.sparse as sp

from xclearn.errors import ConfigError, DataError
from xclearn.labels.clustering import cluster_labels, label_centroids

RELEVANCE = sp.csr_matrix(np.array([[1, 0, 0], [1, 1, 0]], dtype=np.float32))  # label 2 has no document
FEATURES = np.array([[3, 0], [0, 4]], dtype=np.float32)
CENTROIDS = np.array([[0.6, 0.8], [0, 1], [0, 0]], dtype=np.float32)


def test_centroids_of_sparse_features():
    centroids = label_centroids(RELEVANCE, sp.csr_matrix(FEATURES))
    assert sp.issparse(centroids)
    assert centroids.dtype == np.float32
    np.testing.assert_allclose(centroids.toarray(), CENTROIDS, rtol=1e-6)


def test_centroids_of_dense_features():
    centroids = label_centroids(RELEVANCE, FEATURES.astype(np.float64))
    assert isinstance(centroids, np.ndarray)
    assert centroids.dtype == np.float32
    np.testing.assert_allclose(centroids, CENTROIDS, rtol=1e-6)


def test_rows_must_agree():
    with pytest.raises(DataError, match=r"differ in rows; got \(2, 1\)"):
        label_centroids(RELEVANCE, FEATURES[:1])


def test_sparse_and_dense_rows_give_the_same_clusters():
    rows = sp.random(100, 30, density=0.2, format="csr", dtype=np.float32, random_state=0)
    np.testing.assert_array_equal(cluster_labels(rows, 8, seed=1), cluster_labels(rows.toarray(), 8, seed=1))


def test_labels_of_the_same_documents_share_a_cluster():
    """Labels 0, 2, 4, … live in documents on one topic, 1, 3, 5, … in documents on another."""
    relevance = sp.csr_matrix(np.eye(40, dtype=np.float32))
    features = np.zeros((40, 10))
    rng = np.random.default_rng(0)
    features[0::2, :5], features[1::2, 5:] = rng.random((20, 5)), rng.random((20, 5))
    clusters = cluster_labels(label_centroids(relevance, sp.csr_matrix(features)), 2, seed=3)
    assert len(set(clusters[0::2])) == len(set(clusters[1::2])) == 1
    assert clusters[0] != clusters[1]


@pytest.mark.parametrize(("asked", "given"), [(1, 1), (2, 2), (3, 4), (5, 8), (16, 16)])
def test_n_clusters_is_rounded_up_and_none_is_empty(asked, given):
    clusters = cluster_labels(np.random.default_rng(0).random((21, 3)), asked, seed=0)
    assert clusters.dtype == np.int32
    sizes = np.bincount(clusters)
    assert len(sizes) == given
    assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize("n_clusters", [0, -1, 17, 22])
def test_too_many_or_too_few_clusters_are_refused(n_clusters):
    with pytest.raises(ConfigError, match=f"'n_clusters' .*got {n_clusters}; allowed: 1 to 16 for 21 labels"):
        cluster_labels(np.ones((21, 3)), n_clusters, seed=0)
