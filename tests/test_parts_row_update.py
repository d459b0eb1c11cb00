"""Updates of rows against torch's optimisers."""

import pytest
import torch

from xclearn.parts.cost import Weights
from xclearn.parts.row_update import RowAdam, RowSgd

LR, ROWS, WIDTH, STEPS = 0.03, 7, 5, 6


@pytest.fixture
def gradients() -> torch.Tensor:
    return torch.randn(STEPS, ROWS, WIDTH, generator=torch.Generator().manual_seed(0))


def start() -> torch.Tensor:
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("rows", [slice(0, ROWS), slice(2, 5), torch.tensor([0, 3, 6])], ids=["all", "block", "some"])
def test_sgd_is_torchs(gradients, rows):
    weight, update = start(), RowSgd(ROWS, WIDTH, LR)
    expected = torch.nn.Parameter(start())
    optimiser = torch.optim.SGD([expected], lr=LR)
    for gradient in gradients:
        update.apply_(weight, rows, gradient[rows])
        expected.grad = torch.zeros_like(expected)
        expected.grad[rows] = gradient[rows]
        optimiser.step()
    torch.testing.assert_close(weight, expected.data)


@pytest.mark.parametrize("rows", [slice(0, ROWS), slice(2, 5), torch.tensor([0, 3, 6])], ids=["all", "block", "some"])
def test_adam_is_torchs_sparse_adam(gradients, rows):
    weight, update = start(), RowAdam(ROWS, WIDTH, LR)
    expected = torch.nn.Parameter(start())
    optimiser = torch.optim.SparseAdam([expected], lr=LR)
    touched = torch.arange(ROWS)[rows]
    for gradient in gradients:
        update.apply_(weight, rows, gradient[rows])
        expected.grad = torch.sparse_coo_tensor(touched[None], gradient[touched], (ROWS, WIDTH), check_invariants=True)
        optimiser.step()
    print(f"largest difference {(weight - expected.data).abs().max():.2e}")
    torch.testing.assert_close(weight, expected.data, rtol=1e-5, atol=1e-6)
    untouched = sorted(set(range(ROWS)) - set(touched.tolist()))
    assert torch.equal(weight[untouched], start()[untouched])


def test_adam_of_a_rarely_touched_row_is_adam_on_its_own_gradients(gradients):
    """Its steps are counted by row: a row first seen late is corrected as one that has just begun."""
    weight, update = start(), RowAdam(ROWS, WIDTH, LR)
    touched = [torch.tensor(rows) for rows in ([0, 1], [1], [1, 4], [0, 4], [4], [1, 2])]
    for rows, gradient in zip(touched, gradients, strict=True):
        update.apply_(weight, rows, gradient[rows])
    for row in range(ROWS):
        expected = torch.nn.Parameter(start()[row])
        optimiser = torch.optim.Adam([expected], lr=LR)
        for rows, gradient in zip(touched, gradients, strict=True):
            if row in rows:
                expected.grad = gradient[row].clone()
                optimiser.step()
        torch.testing.assert_close(weight[row], expected.data, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [RowSgd, RowAdam])
def test_the_schedules_factor_scales_the_step(gradients, kind):
    weights = [start(), start()]
    for weight, lr, factor in ((weights[0], LR, 0.5), (weights[1], LR / 2, 1.0)):
        update = kind(ROWS, WIDTH, lr)
        update.factor = factor
        update.apply_(weight, slice(0, ROWS), gradients[0])
    assert torch.equal(*weights)
    assert not torch.equal(weights[0], start())


@pytest.mark.parametrize(("kind", "optimiser"), [(RowSgd, "sgd"), (RowAdam, "adam")])
def test_the_state_travels_and_is_as_large_as_said(gradients, kind, optimiser):
    """A resumed update goes on as if it had not stopped."""
    one, weight = kind(ROWS, WIDTH, LR), start()
    one.apply_(weight, slice(0, ROWS), gradients[0])
    other, copy = kind(ROWS, WIDTH, LR), weight.clone()
    other.load_state_dict(one.state_dict())
    for update, rows in ((one, weight), (other, copy)):
        update.apply_(rows, torch.tensor([1, 2]), gradients[1][1:3])
    assert torch.equal(weight, copy)
    held = sum(buffer.nbytes for buffer in one.buffers() if buffer.shape == weight.shape)
    assert held == Weights(values=weight.numel(), optimiser=optimiser).state


@pytest.mark.parametrize("kind", [RowSgd, RowAdam])
def test_half_precision_gradients_update_full_precision_rows(gradients, kind):
    weight = start()
    for rows in (slice(0, 3), torch.tensor([5, 6])):
        kind(ROWS, WIDTH, LR).apply_(weight, rows, gradients[0][rows].bfloat16())
    assert weight.dtype == torch.float32
    assert (weight != start()).any(dim=1).tolist() == [True, True, True, False, False, True, True]
