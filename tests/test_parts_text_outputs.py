"""Classifiers made, scored and differentiated a block at a time, against plain autograd over all of them."""

from itertools import pairwise

import pytest
import scipy.sparse as sp
import torch

from xclearn.parts import losses
from xclearn.parts.losses import all_outputs_loss
from xclearn.parts.rows import Gathered, SparseRows
from xclearn.parts.text_network import Blocks, OutputTexts, TextNetwork
from xclearn.parts.text_outputs import BatchScoring, mixture_loss

N, LABELS, WORDS, DIM = 12, 150, 40, 6


@pytest.fixture(autouse=True)
def _several_blocks(monkeypatch):
    monkeypatch.setitem(losses.SCORES_AT_ONCE, "cpu", 64 * N)


def made(*, refined: bool, combine: str = "gates") -> TextNetwork:
    """A network in double precision whose every value is off its start."""
    texts = sp.random(LABELS, WORDS, density=0.1, format="csr", random_state=0, dtype="float32")
    torch.manual_seed(0)
    outputs = OutputTexts(SparseRows.of(texts, torch.device("cpu")))
    start = torch.randn(LABELS, DIM) if refined else None
    blocks = Blocks(0.3, spectral=True)
    network = TextNetwork(
        torch.randn(WORDS, DIM), [outputs], blocks, use_text=True, refinement=start, sparse=False, combine=combine
    )
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return network


def positives() -> Gathered:
    generator = torch.Generator().manual_seed(1)
    owner = torch.arange(N).repeat_interleave(2)
    columns = torch.cat([torch.randperm(LABELS, generator=generator)[:2] for _ in range(N)])
    return Gathered(owner, columns, torch.ones(2 * N), 2 * torch.arange(N))


def gradients(loss: torch.Tensor, network: TextNetwork, x: torch.Tensor) -> dict[str, torch.Tensor]:
    named = {"x": x, **dict(network.named_parameters())}
    found = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    return {name: each for name, each in zip(named, found, strict=True) if each is not None}


def plain_loss(network: TextNetwork, x: torch.Tensor, prior: float) -> torch.Tensor:
    weight, bias = network.classifiers()
    relevant = positives()
    options = {"compute": torch.float32, "measure": True}
    return all_outputs_loss(x, weight, bias + prior, relevant.owner, relevant.columns, **options)


@pytest.mark.parametrize("refined", [False, True])
def test_loss_and_all_gradients_are_those_of_plain_autograd(refined):
    network, x = made(refined=refined).eval(), torch.randn(N, DIM, requires_grad=True)
    expected = plain_loss(network, x, -2.0)
    wanted = gradients(expected, network, x)
    mixture = network.mixture()
    assert mixture is not None
    found = mixture_loss(
        x, mixture, network.own(None, -2.0, torch.float32), positives(), BatchScoring(torch.float32, 0, True)
    )
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)
    mine = gradients(found, network, x)
    assert mine.keys() == wanted.keys()
    assert len(wanted) == (10 if refined else 7)
    for name, gradient in wanted.items():
        torch.testing.assert_close(mine[name], gradient, rtol=1e-3, atol=1e-5 * gradient.abs().max(), msg=name)


def test_a_gradient_reaches_its_scale():
    network, x = made(refined=True).eval(), torch.randn(N, DIM, requires_grad=True)
    own = network.own(None, 0.0, torch.float32)
    once, thrice = (
        torch.autograd.grad(
            scale * mixture_loss(x, network.mixture(), own, positives(), BatchScoring(torch.float32, 0, False)),
            network.refinement,
            retain_graph=True,
        )[0]
        for scale in (1, 3)
    )
    torch.testing.assert_close(3 * once, thrice)


def test_a_dropout_of_one_lets_no_gradient_through_the_block():
    network, x = made(refined=True), torch.randn(N, DIM, requires_grad=True)
    mixture = network.mixture()
    assert mixture is not None
    options = BatchScoring(torch.float32, 1.0, measure=True)
    loss = mixture_loss(x, mixture, network.own(None, -2.0, torch.float32), positives(), options)
    found = gradients(loss, network, x)
    assert not found["text_block.block_gate"].isnan().any()
    assert found["refinement"].any()
    assert found["table"].isfinite().all()


def test_dropout_is_in_the_gradient():
    """Differences of the loss, the same places dropped each time."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(N, DIM), (DIM, DIM), (DIM,), (DIM,), (DIM,), (LABELS, DIM), (LABELS, DIM), (LABELS,)]
    parts = [torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True) for shape in shapes]
    step = BatchScoring(torch.float64, 0.4, measure=True)

    def loss(*tensors: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(3)
        from xclearn.parts.fused_text import Mixture, Own

        return mixture_loss(tensors[0], Mixture(*tensors[1:5]), Own(*tensors[5:]), positives(), step)

    assert torch.autograd.gradcheck(loss, parts, fast_mode=True)
    without = mixture_loss_without_dropout(parts)
    assert abs(loss(*parts).item() - without) > 1e-3


def mixture_loss_without_dropout(parts: list[torch.Tensor]) -> float:
    from xclearn.parts.fused_text import Mixture, Own

    step = BatchScoring(torch.float64, 0.0, measure=True)
    return mixture_loss(parts[0], Mixture(*parts[1:5]), Own(*parts[5:]), positives(), step).item()


def test_refinements_that_move_at_once_move_by_their_gradient():
    network, x = made(refined=True).eval(), torch.randn(N, DIM)
    before = network.refinement.detach().clone()
    own, mixture = network.own(None, 0.0, torch.float32), network.mixture()
    loss = mixture_loss(x, mixture, own, positives(), BatchScoring(torch.float32, 0, False))
    (gradient,) = torch.autograd.grad(loss, network.refinement, retain_graph=True)
    with torch.no_grad():
        mixture_loss(x, mixture, own, positives(), BatchScoring(torch.float32, 0, False, descent=0.5))
    torch.testing.assert_close(network.refinement.detach(), before - 0.5 * gradient)


def test_what_cannot_be_multiplied_out_has_no_mixture():
    assert made(refined=True, combine="attention").mixture() is None
    assert made(refined=True, combine="sum").mixture() is None


def test_blocks_are_several():
    assert len(list(pairwise(losses.blocks(LABELS, N, "cpu")))) >= 2
