"""Combinations of a classifier's parts against their formulas."""

import pytest
import torch
from torch.nn import functional as F

from xclearn.parts.combination import Attention, Gates, Mean, make_combination

N, D = 7, 5


def parts(n_parts: int = 3) -> list[torch.Tensor]:
    return list(torch.randn(n_parts, N, D, generator=torch.Generator().manual_seed(0)))


def test_gates_scale_each_dimension_of_each_part():
    gates = Gates(D, [0.0, 1.0, 2.0])
    for i, (scaled, part) in enumerate(zip(gates(parts()), parts(), strict=True)):
        assert torch.allclose(scaled, torch.sigmoid(torch.tensor(float(i))) * part)


def test_the_mean_of_equal_parts_is_the_part():
    one = parts()[0]
    assert torch.allclose(sum(Mean()([one, one, one])), one)


@pytest.mark.parametrize("squash", [False, True])
def test_attention_is_the_formula_of_the_paper_and_its_code(squash):
    block = Attention(D, 3, 0.5, squash=squash).eval()
    transform, attend = block.transform.weight.detach(), block.attend.weight.detach()
    seen = [F.relu(part) @ transform.T + block.transform.bias for part in parts()]
    joined = torch.cat([torch.sigmoid(each) if squash else each for each in seen], dim=1)
    weights = torch.exp(joined @ attend.T)
    weights = weights / weights.sum(dim=1, keepdim=True)
    for i, (scaled, part) in enumerate(zip(block(parts()), parts(), strict=True)):
        assert torch.allclose(scaled, weights[:, [i]] * part, atol=1e-6)


def test_attention_weighs_the_parts_of_each_output_anew():
    block = Attention(D, 3, 0.0, squash=False).eval()
    lengths = [(scaled.norm(dim=1), part.norm(dim=1)) for scaled, part in zip(block(parts()), parts(), strict=True)]
    weights = torch.stack([after / before for after, before in lengths], dim=1)  # (n, parts)
    assert torch.allclose(weights.sum(dim=1), torch.ones(N))
    assert weights[:, 0].std() > 1e-3


def test_both_matrices_of_the_attention_have_spectral_norm_one():
    block = Attention(D, 2, 0.0, squash=False)
    for _ in range(30):
        block(parts(2))
    for layer in (block.transform, block.attend):
        assert torch.linalg.matrix_norm(layer.weight, 2).item() == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(
    ("kind", "made"), [("gates", Gates), ("sum", Mean), ("attention", Attention), ("attention_sigmoid", Attention)]
)
def test_each_kind_by_name(kind, made):
    combination = make_combination(kind, D, [0.0, 0.0], 0.1)
    assert type(combination) is made
    assert getattr(combination, "squash", False) is (kind == "attention_sigmoid")
