"""Lazy Adam against torch's own, and the native kernel against NumPy's."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles import adam as oracle

from xclearn.kernels.adam import (
    AdamStep,
    AdamTable,
    Entries,
    adam_rows,
    bag_gradient,
)
from xclearn.parts.lazy_adam import LazyAdam, _elsewhere, _on_cpu


def table(n_rows: int, dim: int, seed: int) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.randn(n_rows, dim, generator=torch.Generator().manual_seed(seed)))


def test_steps_are_those_of_torch():
    """Repeated tokens in a bag, rows touched in some steps only, a rate that changes."""
    mine, theirs = table(40, 6, 0), table(40, 6, 0)
    optimisers = [LazyAdam([mine], lr=0.05), torch.optim.SparseAdam([theirs], lr=0.05)]
    draw = torch.Generator().manual_seed(1)
    for step in range(12):
        ids = torch.randint(40, (30,), generator=draw)
        weights, goal = torch.rand(30, generator=draw), torch.randn(5, 6, generator=draw)
        for parameter, optimiser in zip((mine, theirs), optimisers, strict=True):
            optimiser.param_groups[0]["lr"] = 0.05 / (1 + step)
            optimiser.zero_grad()
            bags = torch.nn.functional.embedding_bag(
                ids, parameter, torch.arange(0, 30, 6), mode="sum", sparse=True, per_sample_weights=weights
            )
            ((bags - goal) ** 2).sum().backward()
            optimiser.step()
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
    assert not torch.equal(mine, table(40, 6, 0))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(0, 60), dim=st.integers(1, 40), threads=st.integers(1, 3))
def test_native_equals_numpy(seed, n, dim, threads):
    rng = np.random.default_rng(seed)
    ids, gradients = rng.integers(0, 20, n), rng.standard_normal((n, dim), dtype=np.float32)
    tables = [AdamTable(*(np.abs(rng.standard_normal((20, dim), dtype=np.float32)) for _ in range(3)))]
    tables.append(AdamTable(*(part.copy() for part in tables[0])))
    step = AdamStep(0.1, 0.1, 0.001, 1e-8)
    adam_rows(tables[0], ids, gradients, step, threads)
    oracle.adam_rows(tables[1], ids, gradients, step)
    for native, expected in zip(*tables, strict=True):
        np.testing.assert_allclose(native, expected, rtol=1e-5, atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(0, 60), dim=st.integers(1, 40), threads=st.integers(1, 3))
def test_native_bag_gradients_equal_numpys(seed, n, dim, threads):
    rng = np.random.default_rng(seed)
    owner = np.sort(rng.integers(0, 7, n))
    entries = Entries(rng.integers(0, 20, n), owner, rng.standard_normal(n, dtype=np.float32))
    gradients = rng.standard_normal((7, dim), dtype=np.float32)
    native, expected = bag_gradient(entries, gradients, 20, threads), oracle.bag_gradient(entries, gradients)
    assert native[0].tolist() == expected[0].tolist()
    np.testing.assert_allclose(native[1], expected[1], rtol=1e-5, atol=1e-6)


def sparse(ids: list[int], rows: torch.Tensor, n_rows: int) -> torch.Tensor:
    return torch.sparse_coo_tensor(torch.tensor([ids]), rows, (n_rows, rows.shape[1]), check_invariants=True)


def test_both_forms_of_a_step_agree():
    moved = []
    for move in (_on_cpu, _elsewhere):
        parameter, first, second = table(5, 3, 0), torch.ones(5, 3), torch.ones(5, 3)
        parameter.grad = sparse([1, 4, 1], torch.arange(9.0).view(3, 3), 5)
        with torch.no_grad():
            move(parameter, first, second, AdamStep(0.1, 0.1, 0.001, 1e-8))
        moved.append(torch.stack([parameter.detach(), first, second]))
    torch.testing.assert_close(*moved)


def test_rows_without_a_gradient_do_not_move():
    parameter = table(4, 2, 0)
    before = parameter.detach().clone()
    parameter.grad = sparse([2, 2], torch.tensor([[1.0, -1.0], [1.0, 1.0]]), 4)
    LazyAdam([parameter], lr=0.5).step()
    moved = (parameter != before).tolist()
    assert moved == [[False, False], [False, False], [True, False], [False, False]]


def test_a_state_that_is_saved_and_loaded_goes_on_alike():
    states = []
    for interrupted in (False, True):
        parameter = table(8, 3, 0)
        optimiser = LazyAdam([parameter], lr=0.1)
        for step in range(4):
            if interrupted and step == 2:
                kept = optimiser.state_dict()
                optimiser = LazyAdam([parameter], lr=0.1)
                optimiser.load_state_dict(kept)
            parameter.grad = sparse([step, 7], torch.ones(2, 3), 8)
            optimiser.step()
        states.append(parameter.detach().clone())
    assert torch.equal(*states)
