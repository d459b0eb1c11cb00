"""What `gpu.py` checks before it measures: steps on the device against plain float64 with autograd on the CPU.

Each check gives the largest error, relative to the largest value, and what half precision allows.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional as F

from xclearn.parts.classifiers import RowClassifier, row_width
from xclearn.parts.fused import descend
from xclearn.parts.label_rows import LabelRows
from xclearn.parts.losses import all_outputs_loss
from xclearn.parts.row_update import RowAdam, RowSgd
from xclearn.parts.rows import Gathered

_N, _LABELS, _DIM, _EACH = 96, 1_003, 62, 3
_HALF, _SINGLE = 2e-2, 2e-5
_FIRST_STEP = 1e-4  # of Adam: 1 − 0.999 is exact to 6e-5 in float32, and its root to half of that


def _relative(found: torch.Tensor, wanted: torch.Tensor) -> float:
    wanted = wanted.double().cpu()
    return float((found.double().cpu() - wanted).abs().max() / wanted.abs().max())


def _problem() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, Gathered]:
    """Vectors (n, D), rows (L, D), biases (L,), positives, on the CPU."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(_N, _DIM, generator=generator)
    weight = torch.randn(_LABELS, _DIM, generator=generator) * _DIM**-0.5
    owner = torch.arange(_N).repeat_interleave(_EACH)
    columns = torch.cat([torch.randperm(_LABELS, generator=generator)[:_EACH] for _ in range(_N)])
    positives = Gathered(owner, columns, torch.ones(len(owner)), torch.arange(_N) * _EACH)
    return x, weight, torch.randn(_LABELS, generator=generator) - 4, positives


def _dense_loss(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, positives: Gathered) -> torch.Tensor:
    wanted = torch.zeros(_N, _LABELS, dtype=x.dtype)
    wanted[positives.owner, positives.columns] = 1
    return F.binary_cross_entropy_with_logits(x @ weight.T + bias, wanted, reduction="sum") / _N


def loss_over_all_outputs(device: str) -> tuple[float, float]:
    x, weight, bias, positives = _problem()
    vectors, rows, biases = (each.double().requires_grad_() for each in (x, weight, bias))
    wanted = torch.autograd.grad(_dense_loss(vectors, rows, biases, positives), (vectors, rows, biases))
    vectors, rows, biases = (each.to(device).requires_grad_() for each in (x, weight, bias))
    owner = positives.owner.to(device)
    columns = positives.columns.to(device)
    loss = all_outputs_loss(vectors, rows, biases, owner, columns, compute=torch.bfloat16, measure=True)
    found = torch.autograd.grad(loss, (vectors, rows, biases))
    return max(_relative(*pair) for pair in zip(found, wanted, strict=True)), _HALF


def _row_step(update: type[RowSgd] | type[RowAdam], device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows and biases after a step from zero, and the float64 gradient of both (L, D + 1)."""
    x, _, _, positives = _problem()
    prior = -4.0
    classifier = RowClassifier(
        LabelRows(0, _LABELS), _DIM, prior, update(_LABELS, row_width(_DIM), 0.5), torch.bfloat16
    )
    classifier.to(device)
    on_device = Gathered(*(part.to(device) for part in positives))
    classifier.step(x.to(device), on_device, None, False)
    weight = torch.zeros(_LABELS, _DIM, dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(_LABELS, dtype=torch.float64, requires_grad=True)
    loss = _N * _dense_loss(x.double(), weight, bias + prior, positives)
    of_weight, of_bias = torch.autograd.grad(loss, (weight, bias))
    return classifier.weight[:, : _DIM + 1], torch.cat([of_weight, of_bias[:, None]], dim=1)


def rows_by_sgd(device: str) -> tuple[float, float]:
    rows, gradient = _row_step(RowSgd, device)
    return _relative(rows, -0.5 * gradient), _HALF


def rows_by_adam(device: str) -> tuple[float, float]:
    """The first step of Adam is the rate times the sign, but for gradients near epsilon."""
    rows, gradient = _row_step(RowAdam, device)
    sure = gradient.abs() > 0.02 * gradient.abs().max()
    return _relative(rows.cpu()[sure], -0.5 * gradient.sign()[sure]), _FIRST_STEP


def descend_in_one_pass(device: str) -> tuple[float, float]:
    generator = torch.Generator().manual_seed(0)
    table, gradient = (torch.randn(301, 64, generator=generator) for _ in range(2))
    wanted = table.double() - 0.3 * gradient.bfloat16().double()
    wanted[:, 5] = table[:, 5].double()
    mine, copy = table.to(device), table.to(device, torch.bfloat16)
    descend(mine, copy, gradient.to(device, torch.bfloat16), 0.3, 5)
    assert torch.equal(copy, mine.bfloat16())
    return _relative(mine, wanted), _SINGLE


CHECKS: list[Callable[[str], tuple[float, float]]] = [
    descend_in_one_pass,
    loss_over_all_outputs,
    rows_by_sgd,
    rows_by_adam,
]
