"""Near copies, against the cosines of all pairs."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from xclearn.data import near_copies
from xclearn.data.near_copies import ALIKE, comparable_rows, near_pairs, resembling


def unit(values: np.ndarray) -> sp.csr_matrix:
    lengths = np.linalg.norm(values, axis=1, keepdims=True)
    return sp.csr_matrix(np.divide(values, lengths, where=lengths > 0, out=np.zeros_like(values)).astype(np.float32))


def all_near(rows: sp.csr_matrix, others: sp.csr_matrix) -> set[tuple[int, int]]:
    found = [(pair[0], pair[1]) for part in near_pairs(rows, others) for pair in zip(*part, strict=True)]
    assert len(found) == len(set(found))
    return {(int(row), int(other)) for row, other in found}


@given(st.integers(0, 10_000), st.integers(1, 40), st.integers(1, 12), st.booleans())
def test_pairs_are_those_of_all_cosines(seed: int, n: int, width: int, negative: bool) -> None:
    """Columns of very different frequency, empty rows among them; features may be negative."""
    rng = np.random.default_rng(seed)
    values = rng.random((n + 5, width)) * (rng.random((n + 5, width)) < np.linspace(0.05, 0.95, width))
    values *= rng.choice([-1, 1], values.shape) if negative else 1
    rows = unit(values)
    cosines = (rows[:5].astype(np.float64) @ rows[5:].T.astype(np.float64)).toarray()
    sure = np.abs(cosines - ALIKE) > 1e-5
    found = all_near(rows[:5], rows[5:])
    assert {pair for pair in found if sure[pair]} == {
        (int(row), int(other)) for row, other in zip(*np.nonzero((cosines >= ALIKE) & sure), strict=True)
    }


def test_small_blocks_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    rows = unit(rng.random((300, 30)) * (rng.random((300, 30)) < 0.2))
    whole = all_near(rows, rows)
    assert len(whole) > 400
    monkeypatch.setattr(near_copies, "_PRODUCTS", 50)
    assert all_near(rows, rows) == whole
    assert all_near(rows[:0], rows) == set()


def test_texts_and_features_become_rows_of_length_one() -> None:
    texts = comparable_rows(["a red hat", "a red hat", "", "one two three"])
    features = comparable_rows(sp.csr_matrix([[3.0, -4.0], [0.0, 0.0]]))
    assert texts is not None
    assert features is not None
    np.testing.assert_allclose(np.sqrt(texts.multiply(texts).sum(axis=1)).ravel(), [[1, 1, 0, 1]], rtol=1e-6)
    np.testing.assert_allclose(features.toarray(), [[0.6, -0.8], [0, 0]], rtol=1e-6)
    assert comparable_rows(np.ones((2, 2))) is None


def test_groups_are_connected_by_near_pairs() -> None:
    chain = unit(np.array([[1.0, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1]]))  # neighbours have a cosine of 0.7
    assert resembling(chain).tolist() == [0, 0, 0, 1]
    assert resembling(chain, same=np.array([0, 1, 2, 0])).tolist() == [0, 0, 0, 0]
