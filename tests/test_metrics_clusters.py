"""The loss of mutual information: by hand, against scikit-learn, and where it must be zero or everything."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import mutual_info_score

from xclearn.errors import DataError
from xclearn.metrics import mutual_information_loss


def test_by_hand_and_against_scikit_learn():
    counts = np.array([[4, 1, 0], [3, 2, 0], [0, 1, 5], [1, 0, 3]])
    clusters = np.array([0, 0, 1, 1])
    merged = np.array([[7, 3, 0], [1, 1, 8]])
    whole, left = (mutual_info_score(None, None, contingency=table) for table in (counts, merged))
    found = mutual_information_loss(sp.csr_matrix(counts.astype(np.float32)), clusters)
    assert found == pytest.approx(100 * (whole - left) / whole)
    assert 0 < found < 50


def test_nothing_is_lost_by_clusters_of_one_or_of_labels_that_are_described_alike():
    alike = sp.csr_matrix(np.array([[1.0, 0], [2, 0], [0, 1], [0, 3]]))
    assert mutual_information_loss(alike, np.array([0, 0, 1, 1])) == pytest.approx(0, abs=1e-9)
    assert mutual_information_loss(alike, np.arange(4)) == pytest.approx(0, abs=1e-9)


def test_one_cluster_loses_everything_and_labels_that_share_nothing_lose_more():
    described = sp.csr_matrix(np.array([[1.0, 0], [2, 0], [0, 1], [0, 3]]))
    assert mutual_information_loss(described, np.zeros(4, dtype=int)) == pytest.approx(100)
    assert mutual_information_loss(described, np.array([0, 1, 0, 1])) > 90


@pytest.mark.parametrize(
    ("described", "clusters", "message"),
    [
        (np.eye(3), np.zeros(2, dtype=int), r"differ in number; got \(3, 2\)"),
        (-np.eye(3), np.zeros(3, dtype=int), "negative"),
        (np.zeros((3, 3)), np.zeros(3, dtype=int), "all zero"),
    ],
)
def test_what_cannot_be_measured_is_refused(described, clusters, message):
    with pytest.raises(DataError, match=message):
        mutual_information_loss(sp.csr_matrix(described), clusters)
