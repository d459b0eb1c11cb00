"""The memory that a part of a network declares: values, optimiser state, and the gradient of a step.

Plans add these up before anything is allocated. Knows nothing about stages or devices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final


@final
@dataclass(frozen=True, kw_only=True)
class Weights:
    """Values trained by one optimiser."""

    values: int
    optimiser: Literal["adam", "sgd", "none"] = "adam"
    touched: float | None = None  # values that have a gradient in a step; None: all
    in_module: bool = False  # optimiser state is part of the module, so it is kept with the best epoch
    copies: int = 0  # half-precision copies for products on a GPU

    @property
    def held(self) -> int:
        """Bytes of the values."""
        return (4 + 2 * self.copies) * self.values

    @property
    def state(self) -> int:
        """Bytes of the optimiser's moments."""
        return 8 * self.values if self.optimiser == "adam" else 0

    @property
    def gradient(self) -> float:
        """Bytes of the gradient of a step."""
        return 4 * (self.values if self.touched is None else self.touched)

    @property
    def moved(self) -> float:
        """Bytes that a step reads and writes: the gradient, the values, and the optimiser's moments."""
        passes = {"adam": 8, "sgd": 4, "none": 0}[self.optimiser]
        return passes * self.gradient

    @property
    def best(self) -> int:
        """Bytes of a copy of the module's state."""
        return 4 * self.values + (self.state if self.in_module else 0)
