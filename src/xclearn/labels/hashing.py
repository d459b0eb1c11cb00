"""Labels in random buckets, by a hash function drawn from a 2-universal family.

Knows nothing about what buckets are for.
"""

from __future__ import annotations

import numpy as np

_PRIME = (1 << 31) - 1  # above any number of labels; products stay within 64 bits


def hash_labels(n_labels: int, n_buckets: int, seed: int) -> np.ndarray:
    """The bucket of each label (L,) int32: ((a · label + b) mod p) mod buckets, with a and b drawn by the seed.

    Two labels share a bucket with a chance of about 1 / buckets.
    """
    rng = np.random.default_rng(seed)
    factor, offset = rng.integers(1, _PRIME), rng.integers(_PRIME)
    return ((factor * np.arange(n_labels, dtype=np.int64) + offset) % _PRIME % n_buckets).astype(np.int32)
