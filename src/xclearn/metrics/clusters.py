"""How much information a clustering of labels loses: mutual information between labels and their features.

After Dhillon, Mallela and Kumar (JMLR 2003). Knows nothing about how clusters are made.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from xclearn.errors import DataError


def mutual_information_loss(described: sp.csr_matrix, cluster_of_label: np.ndarray) -> float:
    """Percent of the mutual information between labels and features that is lost when clusters replace labels.

    `described` (L, V) holds non-negative feature weights of each label, summed over its documents. The loss is 0 if
    each cluster is a single label or its labels have proportional features.
    """
    if described.shape[0] != len(cluster_of_label):
        raise DataError("labels and clusters differ in number", got=(described.shape[0], len(cluster_of_label)))
    if described.nnz == 0 or described.data.min() < 0:
        raise DataError("label features must be non-negative and not all zero")
    n_labels = described.shape[0]
    n_clusters = int(cluster_of_label.max()) + 1
    ones = np.ones(n_labels)
    members = sp.csr_matrix((ones, (cluster_of_label, np.arange(n_labels))), shape=(n_clusters, n_labels))
    whole = _mutual_information(described)
    return 100 * (whole - _mutual_information(sp.csr_matrix(members @ described))) / whole if whole > 0 else 0.0


def _mutual_information(joint: sp.csr_matrix) -> float:
    """Mutual information, in nats, of the rows and columns of a weight matrix."""
    chance = joint.data.astype(np.float64) / joint.data.sum(dtype=np.float64)
    row = np.repeat(np.arange(joint.shape[0]), np.diff(joint.indptr))
    rows = np.bincount(row, weights=chance, minlength=joint.shape[0])
    columns = np.bincount(joint.indices, weights=chance, minlength=joint.shape[1])
    there = chance > 0
    ratio = chance[there] / (rows[row[there]] * columns[joint.indices[there]])
    return float((chance[there] * np.log(ratio)).sum())
