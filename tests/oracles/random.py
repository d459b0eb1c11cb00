"""The random numbers of the native core."""

import numpy as np


def splitmix64(x: np.ndarray) -> np.ndarray:
    """SplitMix64, elementwise on uint64."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
