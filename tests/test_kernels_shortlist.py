"""The native shortlist step against its NumPy form, torch's own losses and optimisers, and itself on more threads."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles import shortlist as oracle

from xclearn.errors import DataError
from xclearn.kernels import shortlist
from xclearn.kernels.shortlist import PairLoss, RowPairs, RowRule


def problem(
    n: int, rows: int, width: int, m: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, RowPairs, np.ndarray]:
    rng = np.random.default_rng(seed)
    x, table = (rng.standard_normal((size, width), dtype=np.float32) * np.float32(0.3) for size in (n, rows))
    pairs = RowPairs(rng.integers(n, size=m), np.sort(rng.integers(rows, size=m)))
    return x, table, pairs, (rng.random(m) < 0.2).astype(np.float32)


def adam(table: np.ndarray, rate: float = 0.01) -> RowRule:
    return RowRule(rate, (np.zeros_like(table), np.zeros_like(table), np.zeros((len(table), 1), np.float32)))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 20), st.integers(1, 30), st.integers(1, 70), st.integers(0, 9000), st.booleans(), st.booleans())
def test_native_and_numpy_train_the_same_rows(n, rows, width, m, hinge, with_adam):
    x, table, pairs, targets = problem(n, rows, width, m)
    ours, theirs = table.copy(), table.copy()
    rules = [adam(table) if with_adam else RowRule(0.01) for _ in range(2)]
    loss = PairLoss(hinge, 1 / 7)
    for _ in range(2):  # the second step reads what the first left
        mine = shortlist.train_pairs(x, ours, pairs, targets, rules[0], loss, fixed=width - 1)
        other = oracle.train_pairs(x, theirs, pairs, targets, rules[1], loss, fixed=width - 1)
        assert mine[0] == pytest.approx(other[0], rel=1e-4, abs=1e-5)
        np.testing.assert_allclose(mine[1], other[1], rtol=1e-3, atol=2e-4)
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=2e-4)
    assert (ours[:, width - 1] == table[:, width - 1]).all()


@pytest.mark.parametrize("with_adam", [False, True], ids=["sgd", "adam"])
@pytest.mark.parametrize("hinge", [False, True], ids=["cross-entropy", "squared hinge"])
def test_a_step_is_what_autograd_and_torchs_optimiser_do(hinge, with_adam):
    x, table, pairs, targets = problem(8, 20, 33, 200)
    inputs, weight = (torch.tensor(array, dtype=torch.float64, requires_grad=True) for array in (x, table))
    scores = (inputs[pairs.owner] * weight[pairs.row]).sum(dim=1)
    wanted = torch.tensor(targets, dtype=torch.float64)
    if hinge:
        expected = torch.relu(1 - (2 * wanted - 1) * scores).square().sum()
    else:
        expected = torch.nn.functional.binary_cross_entropy_with_logits(scores, wanted, reduction="sum")
    (expected / 8).backward()
    # Adam on the rows that have pairs is SparseAdam; with every row touched it is plain Adam
    assert len(np.unique(pairs.row)) == 20
    optimiser = torch.optim.Adam([weight], lr=0.01) if with_adam else torch.optim.SGD([weight], lr=0.01)
    optimiser.step()

    loss, gradient = shortlist.train_pairs(
        x, table, pairs, targets, adam(table) if with_adam else RowRule(0.01), PairLoss(hinge, 1 / 8)
    )
    differences = [
        np.abs(ours - theirs.detach().numpy()).max() for ours, theirs in ((gradient, inputs.grad), (table, weight))
    ]
    print(f"largest differences: gradient {differences[0]:.1e}, rows {differences[1]:.1e}")
    assert loss == pytest.approx(expected.item() / 8, rel=1e-5)
    assert max(differences) < 1e-5


def test_rows_without_pairs_stay_and_so_do_their_moments():
    x, table, _, _ = problem(3, 5, 8, 0)
    before, rule = table.copy(), adam(table)
    pairs = RowPairs(np.array([0, 2]), np.array([1, 1]))
    shortlist.train_pairs(x, table, pairs, np.array([1, 0], np.float32), rule, PairLoss())
    assert (table != before).any(axis=1).tolist() == [False, True, False, False, False]
    assert rule.moments[2].ravel().tolist() == [0, 1, 0, 0, 0]


@pytest.mark.parametrize("n_threads", [2, 5])
def test_more_threads_give_the_same_bits(n_threads):
    x, table, pairs, targets = problem(64, 500, 40, 50_000)
    found = []
    for threads in (1, n_threads):
        rows, rule = table.copy(), adam(table)
        loss, gradient = shortlist.train_pairs(x, rows, pairs, targets, rule, PairLoss(), n_threads=threads)
        products = shortlist.pair_products(x, table, pairs, targets, n_threads=threads)
        arrays = (gradient, rows, *rule.moments, *products)
        found.append((loss, *(array.tobytes() for array in arrays)))
    assert found[0] == found[1]


@pytest.mark.parametrize(("m", "width"), [(0, 5), (1, 1), (30_000, 37), (20_000, 128)])
def test_scores_and_products_of_pairs_equal_numpy(m, width):
    x, weight, pairs, _ = problem(40, 300, width, m)
    outer = np.random.default_rng(1).standard_normal(m, dtype=np.float32)
    np.testing.assert_allclose(shortlist.pair_scores(x, weight, pairs), oracle.pair_scores(x, weight, pairs), atol=1e-5)
    ours = shortlist.pair_products(x, weight, pairs, outer)
    for mine, other in zip(ours, oracle.pair_products(x, weight, pairs, outer), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("score", [-1e4, 1e4])
@pytest.mark.parametrize("target", [0.0, 1.0])
def test_extreme_scores_stay_finite(score, target):
    x, table = np.full((1, 1), score, np.float32), np.ones((1, 1), np.float32)
    pairs = RowPairs(np.array([0]), np.array([0]))
    loss, gradient = shortlist.train_pairs(x, table, pairs, np.array([target], np.float32), RowRule(0.0), PairLoss())
    assert loss == pytest.approx(max(score, 0) - score * target)
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize(
    "pairs",
    [
        RowPairs(np.array([3]), np.array([0])),
        RowPairs(np.array([0]), np.array([5])),
        RowPairs(np.array([0, 0]), np.array([1, 0])),
    ],
    ids=["no such document", "no such row", "rows in disorder"],
)
def test_pairs_that_point_outside_are_refused(pairs):
    x, table, _, _ = problem(3, 5, 4, 0)
    with pytest.raises(DataError, match="not sorted by row"):
        shortlist.pair_scores(x, table, pairs)
