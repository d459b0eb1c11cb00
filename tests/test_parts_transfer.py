"""The bound on how far features move (Theorem 1 of the DeepXML paper), and each kind of block against its formula."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from xclearn.inference.components import Bag, Relu
from xclearn.parts.encoders import BagEncoder
from xclearn.parts.transfer import TransferBlock, TransferEncoder

DIM = 12


def block(kind: str, limit: float = 1.0, *, seed: int = 0, scale: float = 1.0) -> TransferBlock:
    """With a random matrix, as after training."""
    made = TransferBlock(DIM, 0.0, kind, limit).eval()
    made.weight.data = scale * torch.randn(DIM, DIM, generator=torch.Generator().manual_seed(seed))
    return made


def norm(matrix: torch.Tensor) -> float:
    return float(np.linalg.norm(matrix.detach().numpy(), 2))


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


@given(
    seed=st.integers(0, 2**31),
    limit=st.floats(0.01, 1),
    kind=st.sampled_from(["spectral", "capped", "fine_tune"]),
    n_documents=st.integers(1, 6),
)
def test_theorem_1(seed, limit, kind, n_documents):
    """‖x̂ − v‖ ≤ λ‖v‖, and the cosine with a label's centre lies within the bounds that λ sets."""
    rng = np.random.default_rng(seed)
    intermediate = np.maximum(rng.normal(size=(n_documents, DIM)), 0).astype(np.float32) + 0.01
    with torch.no_grad():
        final = block(kind, limit, seed=seed % 1000)(torch.from_numpy(intermediate)).numpy()
    moved, norms = np.linalg.norm(final - intermediate, axis=1), np.linalg.norm(intermediate, axis=1)
    assert (moved <= limit * norms * (1 + 1e-4)).all()
    epsilon = (1 + limit * np.sqrt(n_documents)) ** 2 - 1
    before, after = (cosine(rows[0], rows.mean(axis=0)) for rows in (intermediate, final))
    assert before / (1 + epsilon) <= after + 1e-5
    assert after <= before + epsilon + 1e-5


@pytest.mark.parametrize("limit", [0.25, 1.0])
@pytest.mark.parametrize("scale", [0.001, 10.0])
def test_the_norm_is_the_limit_or_below_it(limit, scale):
    """Spectral is always at the limit; capped leaves a small matrix as it is."""
    spectral, capped = block("spectral", limit, scale=scale), block("capped", limit, scale=scale)
    assert norm(spectral.matrix()) == pytest.approx(limit, rel=1e-4)
    assert norm(capped.matrix()) == pytest.approx(min(norm(capped.weight), limit), rel=1e-4)


def test_power_iteration_in_training_comes_to_the_exact_norm():
    made = block("spectral").train()
    for _ in range(100):
        estimate = made._norm()
    assert float(estimate.detach()) == pytest.approx(norm(made.weight), rel=1e-3)


@pytest.mark.parametrize("kind", ["spectral", "capped", "free", "fully_connected", "fine_tune"])
def test_what_is_served_is_what_was_trained(kind):
    base = BagEncoder(20, DIM, 0.0, torch.Generator().manual_seed(1), sparse=False)
    encoder = TransferEncoder(base, block(kind, 0.7)).eval()
    if encoder.block.bias is not None:
        encoder.block.bias.data.normal_(generator=torch.Generator().manual_seed(2))
    features = np.random.default_rng(3).random((5, 20)).astype(np.float32)
    served = encoder.served()
    assert isinstance(served, Bag)
    assert isinstance(served.layers[0], Relu)
    with torch.no_grad():
        expected = encoder(torch.from_numpy(features)).numpy()
    np.testing.assert_allclose(served.encode(features), expected, atol=1e-5)


def test_blocks_start_at_twice_the_features_and_a_connected_one_at_the_features():
    vectors = torch.rand(3, DIM)
    for kind, factor in {"spectral": 2.0, "capped": 1.5, "free": 2.0, "fully_connected": 1.0}.items():
        with torch.no_grad():
            moved = TransferBlock(DIM, 0.0, kind, 0.5 if kind == "capped" else 1.0).eval()(vectors)
        torch.testing.assert_close(moved, factor * vectors)


@pytest.mark.parametrize("kind", ["spectral", "capped", "free", "fully_connected"])
def test_every_kind_learns(kind):
    made = TransferBlock(DIM, 0.0, kind, 0.5).train()
    made(torch.rand(4, DIM)).square().sum().backward()
    assert made.weight.grad is not None
    assert float(made.weight.grad.abs().sum()) > 0
