"""The label encoder against its formula, its loss against NumPy, and the means of labels."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from xclearn.algorithms.lightdxml.label_encoder import LabelEncoder, LabelTask, label_means
from xclearn.parts.rows import SparseRows

N, L, DIM = 9, 7, 6


def encoder(hidden_dim: int = 2 * DIM, *, relu: bool = False, seed: int = 0) -> LabelEncoder:
    return LabelEncoder(DIM, hidden_dim, torch.Generator().manual_seed(seed), relu=relu)


def random_relevance(seed: int = 0) -> sp.csr_matrix:
    """Label 3 has no documents."""
    dense = np.random.default_rng(seed).random((N, L)) < 0.4
    dense[:, 3] = False
    return sp.csr_matrix(dense.astype(np.float32))


def rows_of(relevance: sp.csr_matrix) -> SparseRows:
    return SparseRows.of(relevance, torch.device("cpu"))


def test_two_linear_layers_are_one():
    """Equation 4 of the paper: W₂ (W₁ μ + b₁) + b₂, and its ReLU where asked for."""
    means = torch.randn(L, DIM, generator=torch.Generator().manual_seed(1))
    for relu in (False, True):
        made = encoder(relu=relu)
        for values in made.parameters():
            values.data = torch.randn(values.shape, generator=torch.Generator().manual_seed(values.numel()))
        first, first_bias, second, second_bias = (values.detach().numpy() for values in made.parameters())
        expected = means.numpy() @ (second @ first).T + second @ first_bias + second_bias
        found = made(means).detach().numpy()
        np.testing.assert_allclose(found, np.maximum(expected, 0) if relu else expected, rtol=1e-4, atol=1e-5)
        assert (found < 0).any() != relu


@pytest.mark.parametrize("hidden_dim", [DIM, 4 * DIM])
def test_labels_start_at_their_means(hidden_dim):
    means = torch.rand(L, DIM, generator=torch.Generator().manual_seed(1))
    np.testing.assert_allclose(encoder(hidden_dim, relu=True)(means).detach(), means, atol=1e-5)


def test_a_narrow_encoder_starts_as_a_projection():
    made = encoder(2)
    means = torch.rand(L, DIM, generator=torch.Generator().manual_seed(1))
    once = made(means)
    assert not torch.allclose(once, means, atol=1e-2)
    np.testing.assert_allclose(made(once).detach(), once.detach(), atol=1e-5)


def test_another_generator_gives_another_start():
    assert (encoder(seed=0).inner.weight != encoder(seed=1).inner.weight).any()


def test_the_mean_of_a_labels_documents():
    relevance, vectors = random_relevance(), np.random.default_rng(1).normal(size=(N, DIM)).astype(np.float32)
    found = label_means(torch.from_numpy(vectors), rows_of(relevance)).numpy()
    for label in range(L):
        own = vectors[relevance[:, [label]].toarray()[:, 0] > 0]
        np.testing.assert_allclose(found[label], own.mean(axis=0) if len(own) else 0, atol=1e-6)
    assert (found[3] == 0).all()


def test_documents_without_labels_are_in_no_mean_and_in_no_pair():
    relevance = random_relevance().tolil()
    relevance[4] = 0
    relevance = sp.csr_matrix(relevance)
    vectors = torch.rand(N, DIM, generator=torch.Generator().manual_seed(1))
    moved = vectors.clone()
    moved[4] = 1e3
    tasks = [
        LabelTask(encoder(), each, label_means(each, rows_of(relevance)), rows_of(relevance))
        for each in (vectors, moved)
    ]
    pairs = torch.arange(relevance.nnz)
    losses = [float(task.loss(pairs, 0, torch.Generator()).detach()) for task in tasks]
    assert losses[0] == losses[1]


def test_the_loss_is_the_mean_of_log_1_plus_squared_distance():
    relevance, vectors = random_relevance(), torch.rand(N, DIM, generator=torch.Generator().manual_seed(1))
    task = LabelTask(encoder(), vectors, label_means(vectors, rows_of(relevance)), rows_of(relevance))
    documents, labels = relevance.nonzero()
    places = task.embeddings().numpy()
    distances = np.linalg.norm(vectors.numpy()[documents] - places[labels], axis=1)
    order = torch.from_numpy(np.random.default_rng(2).permutation(relevance.nnz)[:8])
    found = float(task.loss(order, 0, torch.Generator()).detach())
    assert found == pytest.approx(np.log(1 + distances[order.numpy()] ** 2).mean(), rel=1e-5)


def test_training_moves_labels_nearer_to_their_documents():
    """The best single place under log(1 + d²) is not the mean: outliers count less."""
    relevance = sp.csr_matrix(np.ones((N, 1), dtype=np.float32))
    vectors = torch.zeros(N, DIM)
    vectors[:2] = 5.0  # two of nine documents lie far away
    task = LabelTask(encoder(), vectors, label_means(vectors, rows_of(relevance)), rows_of(relevance))
    optimiser = torch.optim.Adam(task.encoder.parameters(), lr=0.01)
    before = float(task.embeddings().norm())
    for _ in range(300):
        optimiser.zero_grad()
        task.loss(torch.arange(N), 0, torch.Generator()).backward()
        optimiser.step()
    assert float(task.embeddings().norm()) < 0.3 * before
