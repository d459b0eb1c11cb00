"""Rows on a device against scipy."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

from xclearn.parts.rows import DenseRows, SparseRows, bag_vectors, feature_rows

CPU = torch.device("cpu")


@given(seed=st.integers(0, 2**32 - 1), rows=st.lists(st.integers(0, 7), max_size=12))
def test_taken_rows_are_scipys(seed, rows):
    matrix = sp.random(8, 11, density=0.3, format="csr", dtype=np.float32, rng=np.random.default_rng(seed))
    matrix.data[matrix.indptr[3] : matrix.indptr[4]] = 0  # at least one row is empty
    matrix.eliminate_zeros()
    taken = SparseRows.of(matrix, CPU).take(torch.tensor(rows, dtype=torch.int64))
    expected = matrix[rows]
    assert taken.offsets.tolist() == expected.indptr[:-1].tolist()
    assert taken.columns.tolist() == expected.indices.tolist()
    assert taken.values.tolist() == expected.data.tolist()
    assert taken.owner.tolist() == np.repeat(np.arange(len(rows)), np.diff(expected.indptr)).tolist()
    assert taken.columns.dtype == torch.int64


def test_sizes():
    rows = SparseRows.of(sp.csr_matrix(np.eye(3, 5, dtype=np.float32)), CPU)
    assert (len(rows), rows.n_columns) == (3, 5)


@pytest.mark.parametrize("kind", [np.int64, np.float64, bool])
def test_other_number_types_become_float32(kind):
    matrix = sp.csr_matrix(np.array([[0, 1, 1]]).astype(kind))
    assert SparseRows.of(matrix, CPU).take(torch.tensor([0])).values.dtype == torch.float32
    assert feature_rows(matrix.toarray(), CPU).take(torch.tensor([0])).dtype == torch.float32


def test_dense_rows():
    values = np.arange(12.0).reshape(3, 4)
    rows = feature_rows(values, CPU)
    assert isinstance(rows, DenseRows)
    assert len(rows) == 3
    assert rows.take(torch.tensor([2, 0, 2])).tolist() == values[[2, 0, 2]].tolist()


def test_the_sparse_gradient_of_bags_is_the_dense_one():
    matrix = sp.random(40, 30, density=0.2, format="csr", dtype=np.float32, random_state=0)
    rows, goal = torch.tensor([3, 0, 3, 17]), torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    gradients = []
    for sparse in (True, False):
        table = torch.arange(180.0).view(30, 6).requires_grad_()
        vectors = bag_vectors(table, SparseRows.of(matrix, CPU).take(rows), sparse=sparse)
        np.testing.assert_allclose(vectors.detach(), (matrix[rows.numpy()] @ table.detach().numpy()), rtol=1e-5)
        (vectors * goal).sum().backward()
        gradients.append(table.grad)
    assert gradients[0].is_sparse
    assert gradients[0]._indices()[0].tolist() == np.unique(matrix[rows.numpy()].indices).tolist()
    torch.testing.assert_close(gradients[0].to_dense(), gradients[1])


def test_the_matrix_and_the_transposed_one_are_those_of_scipy():
    matrix = sp.random(9, 14, density=0.2, format="csr", dtype=np.float32, rng=np.random.default_rng(3))
    rows = SparseRows.of(matrix, torch.device("cpu"))
    np.testing.assert_array_equal(rows.matrix().to_dense().numpy(), matrix.toarray())
    np.testing.assert_array_equal(rows.transposed().matrix().to_dense().numpy(), matrix.T.toarray())
    assert len(rows.transposed()) == 14
