"""The decoupled softmax and its gradients against the formula written out, in one block of labels and in several."""

import numpy as np
import pytest
import torch

from xclearn.algorithms.dual_encoder import decoupled_softmax as module
from xclearn.algorithms.dual_encoder.decoupled_softmax import Relevant, decoupled_softmax

N, C, D, P = 7, 12, 5, 3


def case(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, Relevant, np.ndarray]:
    """Documents, labels, what is relevant, and the same as a matrix (N, C)."""
    rng = np.random.default_rng(seed)
    matrix = rng.random((N, C)) < 0.3
    matrix[np.arange(N), rng.integers(C, size=N)] = True  # each document has a label
    matrix[:, 0] = False  # this one is relevant to nobody
    matrix[matrix.sum(axis=1) == 0, 1] = True
    drawn = np.stack([rng.choice(np.flatnonzero(row), P) for row in matrix])
    owner, columns = matrix.nonzero()
    relevant = Relevant(*(torch.from_numpy(part) for part in (drawn, owner, columns)))
    x, w = (torch.from_numpy(rng.standard_normal(shape)).requires_grad_() for shape in ((N, D), (C, D)))
    return x, w, relevant, matrix


def written_out(x: torch.Tensor, w: torch.Tensor, relevant: Relevant, matrix: np.ndarray, scale: float) -> torch.Tensor:
    terms = []
    for i in range(N):
        scores = scale * (w @ x[i])
        wrong = scores[torch.from_numpy(~matrix[i])]
        terms += [torch.log1p(torch.exp(wrong - scores[label]).sum()) for label in relevant.drawn[i]]
    return torch.stack(terms).mean()


@pytest.mark.parametrize("at_once", [1, 3 * N, 1 << 20], ids=["a label at a time", "four blocks", "one block"])
def test_value_and_gradients_are_those_of_the_formula(monkeypatch, at_once):
    monkeypatch.setitem(module._SCORES_AT_ONCE, "cpu", at_once)
    x, w, relevant, matrix = case()
    expected = torch.autograd.grad(written_out(x, w, relevant, matrix, 2.0), (x, w))
    found = decoupled_softmax(x, w, relevant, 2.0, compute=torch.float64)
    assert found.item() == pytest.approx(written_out(x, w, relevant, matrix, 2.0).item(), rel=1e-6)
    for mine, right in zip(torch.autograd.grad(found, (x, w)), expected, strict=True):
        torch.testing.assert_close(mine, right, rtol=1e-5, atol=1e-7)


def test_relevant_labels_do_not_compete():
    """A label that is relevant but not drawn has no gradient from its document."""
    x = torch.ones(1, 2, requires_grad=True)
    w = torch.ones(3, 2, requires_grad=True)
    relevant = Relevant(torch.tensor([[0]]), torch.tensor([0, 0]), torch.tensor([0, 1]))
    decoupled_softmax(x, w, relevant, 1.0, compute=torch.float32).backward()
    assert w.grad is not None
    assert (w.grad[1] == 0).all()
    assert (w.grad[0] < 0).all()
    assert (w.grad[2] > 0).all()


def test_a_document_of_every_label_learns_nothing():
    x, w = torch.ones(1, 2, requires_grad=True), torch.ones(1, 2, requires_grad=True)
    relevant = Relevant(torch.tensor([[0]]), torch.tensor([0]), torch.tensor([0]))
    loss = decoupled_softmax(x, w, relevant, 20.0, compute=torch.float32)
    loss.backward()
    assert loss.item() == 0
    assert w.grad is not None
    assert torch.isfinite(w.grad).all()


def test_one_thread_and_several_give_the_same_bits():
    generator = torch.Generator().manual_seed(0)
    x, w = torch.randn(512, 64, generator=generator), torch.randn(3000, 64, generator=generator)
    drawn = torch.randint(3000, (512, 3), generator=generator)
    relevant = Relevant(drawn, torch.arange(512).repeat_interleave(3), drawn.ravel())
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            parts = x.clone().requires_grad_(), w.clone().requires_grad_()
            loss = decoupled_softmax(*parts, relevant, 20.0, compute=torch.float32)
            found.append([loss.detach(), *torch.autograd.grad(loss, parts)])
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))
