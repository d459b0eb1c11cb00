"""Fused passes over label rows: the plain form against NumPy; tests/gpu holds the Triton form against the plain one."""

import numpy as np
import torch

from xclearn.parts.fused import descend


def test_descend_by_numpy():
    rng = np.random.default_rng(0)
    table, gradient = (rng.standard_normal((7, 5), dtype=np.float32) for _ in range(2))
    expected = table - np.float32(0.5) * gradient
    expected[:, 3] = table[:, 3]
    values, copy = torch.from_numpy(table.copy()), torch.zeros(7, 5, dtype=torch.bfloat16)
    descend(values, copy, torch.from_numpy(gradient), 0.5, 3)
    np.testing.assert_array_equal(values.numpy(), expected)
    assert torch.equal(copy, values.bfloat16())


def test_without_a_copy_the_table_alone_changes():
    values = torch.ones(2, 3)
    descend(values, None, torch.ones(2, 3, dtype=torch.bfloat16), 1.0, 0)
    assert values.tolist() == [[1, 0, 0], [1, 0, 0]]
