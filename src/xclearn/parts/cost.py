"""What a part of a network declares about its size: values, the optimiser's state, and the gradient of a step.

Plans add these up before anything is made. Knows nothing about stages or devices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final


@final
@dataclass(frozen=True, kw_only=True)
class Weights:
    """Values that one optimiser trains."""

    values: int
    optimiser: Literal["adam", "sgd", "none"] = "adam"
    touched: float | None = None  # values whose gradient a step holds; None: all
    in_module: bool = False  # the optimiser's state is saved with the module, and so kept with its best epoch
    copies: int = 0  # in half precision, for products on a GPU

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
