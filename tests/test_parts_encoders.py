"""The encoder against its served NumPy form and against itself on other forms of the same features."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from handmade import expect_fits

from xclearn.parts.encoders import BagEncoder, encoder_optimisers
from xclearn.parts.rows import SparseRows, feature_rows

N, V, DIM = 9, 30, 12
CPU = torch.device("cpu")


@pytest.fixture
def features() -> sp.csr_matrix:
    matrix = sp.random(N, V, density=0.2, format="csr", dtype=np.float32, rng=np.random.default_rng(0))
    matrix.data[matrix.indptr[4] : matrix.indptr[5]] = 0  # an empty document
    matrix.eliminate_zeros()
    return matrix


def encoder(*, dropout: float = 0.0, sparse: bool = False, n_layers: int = 0) -> BagEncoder:
    return BagEncoder(V, DIM, dropout, torch.Generator().manual_seed(0), sparse=sparse, n_layers=n_layers)


def rows_of(features: sp.csr_matrix) -> SparseRows:
    return SparseRows.of(features, CPU)


def test_sparse_and_dense_features_give_the_same(features):
    made = encoder()
    sparse = made(rows_of(features).take(torch.arange(N)))
    dense = made(feature_rows(features.toarray(), CPU).take(torch.arange(N)))
    torch.testing.assert_close(sparse, dense)


def test_the_table_starts_within_its_bounds():
    bound = math.sqrt(6 / DIM) / 2
    largest = encoder().token_embeddings.abs().max().item()
    assert 0.9 * bound < largest <= bound


def test_the_same_generator_gives_the_same_table():
    tables = [BagEncoder(V, DIM, 0.0, torch.Generator().manual_seed(s), sparse=False) for s in (1, 1, 2)]
    first, same, other = (made.token_embeddings for made in tables)
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


def test_sparse_gradient_holds_the_batchs_tokens_and_equals_the_dense_one(features):
    batch = rows_of(features).take(torch.tensor([0, 3, 4]))
    gradients = []
    for sparse in (True, False):
        made = encoder(sparse=sparse)
        made(batch).square().sum().backward()
        gradients.append(made.token_embeddings.grad)
    assert gradients[0].is_sparse
    assert set(gradients[0].coalesce().indices()[0].tolist()) == set(batch.columns.tolist())
    torch.testing.assert_close(gradients[0].to_dense(), gradients[1])


def test_dropout_is_on_in_training_only(features):
    made, batch = encoder(dropout=0.5), rows_of(features).take(torch.arange(N))
    torch.manual_seed(0)
    assert not torch.equal(made.train()(batch), made(batch))
    assert torch.equal(made.eval()(batch), made(batch))
    kept = encoder(dropout=0.5).train()
    bag, dropped = kept.eval()(batch), kept.train()(batch)
    there = dropped != 0
    torch.testing.assert_close(dropped[there], 2 * bag[there])  # what stays is scaled by 1 / (1 − p)
    assert 0 < there.sum() < (bag != 0).sum()


def test_an_empty_batch_gives_no_vectors(features):
    assert encoder()(rows_of(features).take(torch.arange(0))).shape == (0, DIM)


@pytest.mark.parametrize("n_layers", [0, 1, 3])
def test_an_encoder_and_its_served_form_are_the_formula(features, n_layers):
    made = encoder(dropout=0.5, n_layers=n_layers).eval()
    with torch.no_grad():
        for layer in made.layers:
            layer.bias.normal_(generator=torch.Generator().manual_seed(1))
    expected = np.maximum(features.toarray() @ made.token_embeddings.detach().numpy(), 0)
    for layer in made.layers:
        expected = np.maximum(expected @ layer.weight.detach().numpy().T + layer.bias.detach().numpy(), 0)
    vectors = made(rows_of(features).take(torch.arange(N))).detach().numpy()
    served = made.served()
    expect_fits(served)
    assert (served.dim, served.n_features) == (DIM, V)
    for found in (vectors, served.encode(features), served.encode(features.toarray())):
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("n_layers", [0, 2])
def test_the_optimisers_hold_every_parameter_once(features, sparse, n_layers):
    made = encoder(sparse=sparse, n_layers=n_layers)
    optimisers = encoder_optimisers(made, 0.01)
    held = [value for optimiser in optimisers for group in optimiser.param_groups for value in group["params"]]
    assert sorted(map(id, held)) == sorted(map(id, made.parameters()))
    before = [value.clone() for value in made.parameters()]
    made(rows_of(features).take(torch.arange(N))).sum().backward()
    for optimiser in optimisers:
        optimiser.step()
    assert all(not torch.equal(old, new) for old, new in zip(before, made.parameters(), strict=True))
