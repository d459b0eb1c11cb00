"""Adam for a token table of which a batch touches few rows: only those rows and their moments are updated.

Equals torch's SparseAdam, but on a CPU in one pass over the gradient. Knows nothing about what the rows mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, final

import torch

from xclearn.kernels.adam import AdamStep, AdamTable, adam_rows


@final
class LazyAdam(torch.optim.Optimizer):
    """Adam for parameters (V, D) float32 with row-sparse gradients."""

    def __init__(
        self,
        params: Iterable[torch.Tensor],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "epsilon": epsilon})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]  # noqa: ARG002
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, group["lr"], group["betas"], group["epsilon"])

    def _move(self, parameter: torch.Tensor, lr: float, betas: tuple[float, float], epsilon: float) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros(())
            state["first"] = torch.zeros_like(parameter)
            state["second"] = torch.zeros_like(parameter)
        state["step"] += 1
        corrected = [1 - beta ** int(state["step"]) for beta in betas]
        step = AdamStep(lr * math.sqrt(corrected[1]) / corrected[0], 1 - betas[0], 1 - betas[1], epsilon)
        move = _on_cpu if parameter.device.type == "cpu" else _elsewhere
        move(parameter, state["first"], state["second"], step)


def _on_cpu(parameter: torch.Tensor, first: torch.Tensor, second: torch.Tensor, step: AdamStep) -> None:
    assert parameter.grad is not None
    table = AdamTable(*(part.detach().numpy() for part in (parameter, first, second)))
    ids, rows = parameter.grad._indices()[0], parameter.grad._values()  # ids may repeat: coalescing would take longer
    adam_rows(table, ids.contiguous().numpy(), rows.contiguous().numpy(), step, torch.get_num_threads())


def _elsewhere(parameter: torch.Tensor, first: torch.Tensor, second: torch.Tensor, step: AdamStep) -> None:
    assert parameter.grad is not None
    gradient = parameter.grad.coalesce()
    ids, rows = gradient.indices()[0], gradient.values()
    first[ids] = torch.lerp(first[ids], rows, step.first_share)
    second[ids] = torch.lerp(second[ids], rows * rows, step.second_share)
    parameter[ids] -= step.size * first[ids] / (second[ids].sqrt() + step.epsilon)
