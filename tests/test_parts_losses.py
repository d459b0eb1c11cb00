"""The blocked loss over all outputs against plain autograd, and the blocks themselves."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from xclearn.parts import losses
from xclearn.parts.losses import all_outputs_loss, blocks

N, D, OUTPUTS = 7, 5, 200


@pytest.mark.parametrize("at_once", [1, 64 * N, 1 << 22], ids=["blocks of 64", "64 at once", "one block"])
def test_the_blocked_loss_and_its_gradients_equal_autograd(at_once, monkeypatch):
    monkeypatch.setitem(losses.SCORES_AT_ONCE, "cpu", at_once)
    generator = torch.Generator().manual_seed(1)
    tensors = [torch.randn(*shape, generator=generator) for shape in ((N, D), (OUTPUTS, D), (OUTPUTS,))]
    relevance = (torch.rand(N, OUTPUTS, generator=generator) < 0.03).float()
    owner, columns = relevance.nonzero(as_tuple=True)

    ours = [tensor.clone().requires_grad_() for tensor in tensors]
    loss = all_outputs_loss(*ours, owner, columns, compute=torch.float32, measure=True)
    (3 * loss).backward()  # the outer gradient must be passed on

    theirs = [tensor.double().requires_grad_() for tensor in tensors]
    logits = theirs[0] @ theirs[1].T + theirs[2]
    expected = F.binary_cross_entropy_with_logits(logits, relevance.double(), reduction="sum") / N
    (3 * expected).backward()

    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    for mine, other in zip(ours, theirs, strict=True):
        difference = (mine.grad - other.grad).abs().max().item()
        print(f"largest difference of a gradient: {difference:.1e}")
        assert difference < 1e-5


def test_an_unmeasured_loss_is_not_a_number_but_has_the_same_gradient():
    x = torch.randn(N, D, generator=torch.Generator().manual_seed(2))
    owner, columns = torch.arange(N), torch.arange(N)
    gradients = []
    for measure in (True, False):
        mine = x.clone().requires_grad_()
        loss = all_outputs_loss(
            mine, torch.ones(OUTPUTS, D), torch.zeros(OUTPUTS), owner, columns, compute=torch.float32, measure=measure
        )
        assert torch.isnan(loss).item() is not measure
        loss.backward()
        gradients.append(mine.grad)
    assert torch.equal(*gradients)


@given(st.integers(1, 5_000), st.integers(1, 3_000))
def test_blocks_cover_every_output_once_and_are_long_multiples_of_64_but_for_the_rest(n_outputs, n_documents):
    found = blocks(n_outputs, n_documents, "cpu")
    assert [output for begin, end in found for output in range(begin, end)] == list(range(n_outputs))
    assert all((end - begin) % 64 == 0 for begin, end in found[:-1])
    assert all(begin < end for begin, end in found)
