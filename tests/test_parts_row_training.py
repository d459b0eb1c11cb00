"""What a task trains a batch against, each loss against autograd, and the lists that come out of a trained task."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import nn
from torch.nn import functional as F

from xclearn.algorithms.astec.surrogates import ProjectionTask, surrogate_task
from xclearn.parts.encoders import BagEncoder
from xclearn.parts.row_training import (
    Negatives,
    RowTask,
    encoded,
    row_classifier,
    unigram_chance,
)
from xclearn.parts.rows import DenseRows, SparseRows

CPU = torch.device("cpu")
N, L, DIM, LR = 12, 30, 6, 0.05


def task(loss: str = "bce_sum", negatives: Negatives | None = None) -> RowTask:
    """The vectors are the documents; rows are random."""
    generator = torch.Generator().manual_seed(0)
    relevance = (torch.rand(N, L, generator=generator) < 0.1).float().numpy()
    classifier = row_classifier(L, DIM, LR, "sgd", loss, CPU)
    classifier.weight[:, : DIM + 1] = torch.randn(L, DIM + 1, generator=generator)
    documents = DenseRows(torch.randn(N, DIM, generator=generator))
    return RowTask(
        nn.Identity(), classifier, documents, SparseRows.of(sp.csr_matrix(relevance), CPU), negatives or Negatives()
    )


def relevance_of(made: RowTask) -> torch.Tensor:
    rows = made.positives
    dense = sp.csr_matrix((rows.values.numpy(), rows.columns.numpy(), rows.indptr.numpy()), shape=(N, L)).toarray()
    return torch.from_numpy(dense).double()


def by_autograd(made: RowTask, loss: str, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss of all documents on `labels`, and the rows after a step of SGD."""
    rows = made.classifier.weight[:, : DIM + 1].double().requires_grad_()
    logits = made.documents.values.double() @ rows[:, :DIM].T + rows[:, DIM] + made.classifier.prior
    logits, targets = logits[:, labels], relevance_of(made)[:, labels]
    if loss == "squared_hinge":
        total = F.relu(1 - (2 * targets - 1) * logits).square().sum() / N
    elif loss == "bce_mean":
        total = F.binary_cross_entropy_with_logits(logits, targets)
    else:
        total = F.binary_cross_entropy_with_logits(logits, targets, reduction="sum") / N
    (gradient,) = torch.autograd.grad(total, rows)
    return total.detach(), (rows - LR * N * gradient).detach()


@pytest.mark.parametrize("loss", ["bce_sum", "bce_mean", "squared_hinge"])
def test_each_loss_against_all_labels_is_that_of_autograd(loss):
    made = task(loss)
    expected, rows = by_autograd(made, loss, torch.arange(L))
    value = made.loss(torch.arange(N), 0, torch.Generator())
    torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(made.classifier.weight[:, : DIM + 1].double(), rows, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("loss", ["bce_sum", "bce_mean", "squared_hinge"])
def test_lists_of_all_labels_train_as_all_labels_do(loss):
    every = torch.arange(L, dtype=torch.int32).expand(N, -1)
    made = task(loss, Negatives(shortlist=every))
    expected, rows = by_autograd(made, loss, torch.arange(L))
    value = made.loss(torch.arange(N), 0, torch.Generator())
    torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(made.classifier.weight[:, : DIM + 1].double(), rows, rtol=1e-4, atol=1e-5)


def test_only_listed_relevant_and_drawn_labels_are_trained():
    lists = torch.full((N, 2), -1, dtype=torch.int32)
    lists[:, 0] = 3
    made = task(negatives=Negatives(shortlist=lists))
    before = made.classifier.weight.clone()
    made.loss(torch.arange(N), 0, torch.Generator())
    moved = set(torch.nonzero((made.classifier.weight != before).any(dim=1))[:, 0].tolist())
    assert moved == {3, *made.positives.columns.tolist()}


def test_drawn_labels_are_shared_by_the_batch():
    made = task(negatives=Negatives(drawn=4))
    before = made.classifier.weight.clone()
    made.loss(torch.arange(2), 0, torch.Generator().manual_seed(0))
    drawn = set(Negatives(drawn=4).draw(L, (4,), torch.Generator().manual_seed(0)).tolist())
    moved = set(torch.nonzero((made.classifier.weight != before).any(dim=1))[:, 0].tolist())
    assert moved == drawn | set(made.positives.take(torch.arange(2)).columns.tolist())


@pytest.mark.parametrize(("power", "expected"), [(0.0, [0.25, 0.25, 0.25, 0.25]), (0.5, [1 / 6, 2 / 6, 0, 3 / 6])])
def test_labels_are_drawn_by_a_power_of_their_count(power, expected):
    counts = np.array([1, 4, 0, 9]) if power else np.array([1, 4, 2, 9])
    chance = unigram_chance(counts, power, CPU)
    drawn = Negatives(chance=chance).draw(4, (20_000,), torch.Generator().manual_seed(1))
    shares = np.bincount(drawn.numpy(), minlength=4) / len(drawn)
    np.testing.assert_allclose(shares, expected, atol=0.015)


def test_the_best_of_all_and_of_lists_are_those_of_sorted_logits():
    made = task()
    rows = made.classifier.weight
    logits = made.documents.values @ rows[:, :DIM].T + rows[:, DIM]
    assert (made.best_of(None, 5) == logits.topk(5, dim=1).indices).all()
    lists = torch.argsort(torch.rand(N, L, generator=torch.Generator().manual_seed(2)), dim=1)[:, :8].int()
    lists[:, 6:] = -1
    found = made.best_of(lists, 3)
    expected = [max(row[:6].tolist(), key=lambda label: logits[i, label]) for i, row in enumerate(lists)]
    assert found[:, 0].tolist() == expected
    assert (found >= 0).all()


def test_a_projection_is_learnt():
    generator = torch.Generator().manual_seed(0)
    encoder = BagEncoder(10, DIM, 0.0, generator, sparse=False)
    documents = DenseRows(torch.rand(40, 10, generator=generator))
    targets = documents.values[:, :2] * 3
    made = ProjectionTask(encoder, nn.Linear(DIM, 2), documents, targets)
    optimiser = torch.optim.Adam(made.module.parameters(), lr=0.02)
    losses = []
    for step in range(200):
        loss = made.loss(torch.arange(40), step, generator)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.1 * losses[0]


def test_targets_say_which_task_it_is():
    encoder = BagEncoder(10, DIM, 0.0, torch.Generator().manual_seed(0), sparse=False)
    given = encoder, row_classifier(4, DIM, LR, "sgd", "bce_sum", CPU), DenseRows(torch.rand(2, 10)), 3, CPU
    made = surrogate_task({"indptr": np.array([0, 1, 3]), "indices": np.array([3, 0, 2], np.int32)}, *given)
    assert isinstance(made, RowTask)
    assert made.positives.take(torch.tensor([1])).columns.tolist() == [0, 2]
    assert (made.positives.n_columns, made.negatives.drawn) == (4, 3)
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    made = surrogate_task({"values": values}, *given)
    assert isinstance(made, ProjectionTask)
    assert made.head(torch.zeros(2, DIM)).shape == made.targets.shape
    assert (made.targets.numpy() == values).all()


def test_encoding_uses_no_dropout():
    encoder = BagEncoder(10, DIM, 0.9, torch.Generator().manual_seed(0), sparse=False).train()
    documents = DenseRows(torch.rand(5, 10))
    assert (encoded(encoder, documents, CPU) == encoded(encoder, documents, CPU)).all()
