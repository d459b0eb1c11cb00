"""Products of pairs, each way of making them, against autograd in double precision."""

import pytest
import torch

from xclearn.parts.pair_products import DensePairs, GatheredPairs, _PairScores, dense_bytes, pair_scores

N, D, OUTPUTS = 7, 5, 200


@pytest.fixture
def pairs() -> tuple[torch.Tensor, torch.Tensor]:
    """Owner and column of 500 pairs, each once, in any order."""
    chosen = torch.randperm(N * OUTPUTS, generator=torch.Generator().manual_seed(4))[:500]
    return chosen // OUTPUTS, chosen % OUTPUTS


def sides() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(size, D, generator=generator) for size in (N, OUTPUTS)]


def by_autograd(pairs: tuple[torch.Tensor, torch.Tensor], outer: torch.Tensor) -> list[torch.Tensor]:
    """Scores, and the gradients of both sides."""
    x, weight = (side.double().requires_grad_() for side in sides())
    scores = (x[pairs[0]] * weight[pairs[1]]).sum(dim=1)
    (scores * outer).sum().backward()
    return [scores.detach(), x.grad, weight.grad]


def largest_differences(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    differences = [
        ((one - other).abs().max() / other.abs().max()).item() for one, other in zip(found, expected, strict=True)
    ]
    print(f"largest differences: {differences}")
    return max(differences)


@pytest.mark.parametrize("score", [pair_scores, _PairScores.apply], ids=["native", "torch"])
@pytest.mark.parametrize("ordered", [True, False], ids=["column after column", "in any order"])
def test_scores_of_pairs_and_their_gradients_equal_autograd(pairs, score, ordered):
    order = pairs[1].argsort() if ordered else torch.arange(500)
    owner, column = (part[order] for part in pairs)
    outer = torch.randn(500, generator=torch.Generator().manual_seed(6))
    x, weight = (side.requires_grad_() for side in sides())
    scores = score(x, weight, owner, column)
    (scores * outer).sum().backward()
    found = [scores.detach(), x.grad, weight.grad]
    assert largest_differences(found, by_autograd((owner, column), outer)) < 1e-5


@pytest.mark.parametrize(("kind", "allowed"), [(DensePairs, 2e-2), (GatheredPairs, 1e-5)])
def test_what_a_gpu_does_equals_autograd_as_far_as_its_precision_goes(pairs, kind, allowed):
    outer = torch.randn(500, generator=torch.Generator().manual_seed(6))
    of_pairs = kind(*sides(), *pairs)
    found = [of_pairs.scores(), *of_pairs.gradients(outer)]
    assert [tensor.dtype for tensor in found] == [torch.float32] * 3
    assert largest_differences(found, by_autograd(pairs, outer)) < allowed


def test_what_a_gpu_holds_is_a_score_for_every_document_and_output_of_the_batch():
    """Outputs are filled up to a multiple of 64, and never more than all of them; 2 GB are the most."""
    assert dense_bytes(10, 100, 1000) == 2 * 10 * 128
    assert dense_bytes(10, 5000, 1000) == 2 * 10 * 1024
    assert dense_bytes(1 << 20, 1 << 30, 1 << 20) == 1 << 31
