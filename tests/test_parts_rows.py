"""Rows on a device against scipy."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

from xclearn.parts.rows import DenseRows, SparseRows, feature_rows

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
