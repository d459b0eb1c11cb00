"""Adam on the rows of a table, and the gradient of bags, in NumPy."""

import numpy as np
import scipy.sparse as sp

from xclearn.kernels.adam import AdamStep, AdamTable, Entries


def adam_rows(table: AdamTable, ids: np.ndarray, gradients: np.ndarray, step: AdamStep) -> None:
    """Adam on whole arrays; rows that repeat are summed first."""
    rows, position = np.unique(ids, return_inverse=True)
    gradient = np.zeros((len(rows), gradients.shape[1]), dtype=np.float32)
    np.add.at(gradient, position, gradients)
    first = table.first[rows] + (gradient - table.first[rows]) * np.float32(step.first_share)
    second = table.second[rows] + (gradient * gradient - table.second[rows]) * np.float32(step.second_share)
    table.first[rows], table.second[rows] = first, second
    table.values[rows] -= np.float32(step.size) * (first / (np.sqrt(second) + np.float32(step.epsilon)))


def bag_gradient(entries: Entries, gradients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """As a product with a sparse matrix (t, n) of the weights."""
    rows, position = np.unique(entries.ids, return_inverse=True)
    weights = sp.csr_matrix((entries.weights, (position, entries.owner)), shape=(len(rows), len(gradients)))
    return rows, weights @ gradients
