"""A running mean of weights over the steps of a stage, which can be swapped with the weights.

The mean is stored in buffers, so it is part of a module's checkpoint. Knows nothing about what the weights do or when a
stage begins.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import final

import torch
from torch import nn


@final
class WeightAverage(nn.Module):
    """The mean of some parameters, taken at every `every`-th step from step `start` on."""

    count: torch.Tensor

    def __init__(self, weights: Sequence[nn.Parameter], start: int, every: int) -> None:
        super().__init__()
        self._weights = tuple(weights)
        self._start = start
        self._every = every  # a tuple, so that they are not registered in this module
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        for i, weight in enumerate(weights):
            self.register_buffer(f"mean_{i}", weight.detach().clone())

    @torch.no_grad()
    def see(self, step: int) -> None:
        """Update the mean at the beginning of a step."""
        if step < self._start or (step - self._start) % self._every:
            return
        self.count += 1
        for mean, weight in self._pairs():
            mean.lerp_(weight, 1 / int(self.count))

    @torch.no_grad()
    def exchange(self) -> None:
        """Swap weights and means; does nothing before the first mean."""
        if self.count:
            for mean, weight in self._pairs():
                kept = mean.clone()
                mean.copy_(weight)
                weight.copy_(kept)

    @contextlib.contextmanager
    def exchanged(self) -> Iterator[None]:
        """Use the means instead of the weights inside the block."""
        self.exchange()
        try:
            yield
        finally:
            self.exchange()

    def _pairs(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        return ((self.get_buffer(f"mean_{i}"), weight) for i, weight in enumerate(self._weights))
