"""The fused step against plain autograd in double precision."""

from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch.nn import functional as F

from xclearn.parts import losses
from xclearn.parts.classifiers import LabelPairs, RowClassifier, row_width
from xclearn.parts.label_rows import LabelRows
from xclearn.parts.row_update import RowAdam, RowSgd
from xclearn.parts.rows import Gathered, SparseRows

N, L, DIM, PRIOR, LR = 6, 150, 10, -2.5, 0.05
BLOCKS = {"blocks of 64": 1, "of 128": 128 * N, "all at once": 1 << 22}
SHARD = LabelRows(5, 117)


@dataclass(frozen=True)
class Batch:
    x: torch.Tensor  # (N, DIM)
    relevance: torch.Tensor  # (N, L)

    @property
    def positives(self) -> Gathered:
        return SparseRows.of(sp.csr_matrix(self.relevance.numpy()), torch.device("cpu")).take(torch.arange(N))


@pytest.fixture
def batch() -> Batch:
    generator = torch.Generator().manual_seed(3)
    relevance = (torch.rand(N, L, generator=generator) < 0.05).float()
    relevance[2] = 0  # a document without labels
    return Batch(torch.randn(N, DIM, generator=generator), relevance)


def classifier(rows: LabelRows | None = None, kind: type = RowSgd) -> RowClassifier:
    """With random rows, the same for every test."""
    rows = rows or LabelRows(0, L)
    made = RowClassifier(rows, DIM, PRIOR, kind(len(rows), row_width(DIM), LR), torch.float32)
    every = torch.randn(L, DIM + 1, generator=torch.Generator().manual_seed(5))
    made.weight[:, : DIM + 1] = every[rows.start : rows.stop]
    return made


@dataclass(frozen=True)
class Expected:
    loss: torch.Tensor
    gradient: torch.Tensor  # of x
    weight: torch.Tensor  # after one step of SGD: vector and bias


def by_autograd(batch: Batch, weight: torch.Tensor, labels: torch.Tensor) -> Expected:
    """Sum over labels of binary cross-entropy, mean over documents; the learning rate is that of one document."""
    x = batch.x.double().requires_grad_()
    rows = weight[:, : DIM + 1].double().requires_grad_()
    logits = x @ rows[:, :DIM].T + rows[:, DIM] + PRIOR
    target = batch.relevance[:, labels].double()
    loss = F.binary_cross_entropy_with_logits(logits, target, reduction="sum") / N
    loss.backward()
    return Expected(loss.detach(), x.grad, rows.detach() - LR * N * rows.grad)


def assert_close(what: str, actual: torch.Tensor, expected: torch.Tensor) -> None:
    difference = ((actual.double() - expected).abs().max() / expected.abs().max()).item()
    print(f"{what}: largest difference {difference:.2e} of the largest value")
    assert difference < 1e-6


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
@pytest.mark.parametrize("rows", [LabelRows(0, L), SHARD], ids=["all rows", "a shard"])
def test_exact_step_equals_autograd(batch, monkeypatch, block, rows):
    monkeypatch.setitem(losses.SCORES_AT_ONCE, "cpu", block)
    made, x = classifier(rows), batch.x.clone().requires_grad_()
    expected = by_autograd(batch, made.weight.clone(), torch.arange(rows.start, rows.stop))
    loss = made.exact_loss(x, batch.positives, measure=True)
    loss.backward()
    assert_close("loss", loss.detach(), expected.loss)
    assert_close("gradient of x", x.grad, expected.gradient)
    assert_close("rows", made.weight[:, : DIM + 1], expected.weight)


def test_the_gradient_of_x_is_scaled_by_what_comes_after(batch):
    gradients = []
    for scale in (1, 3):
        x = batch.x.clone().requires_grad_()
        (scale * classifier().exact_loss(x, batch.positives, measure=True)).backward()
        gradients.append(x.grad)
    torch.testing.assert_close(gradients[1], 3 * gradients[0])


def test_measuring_the_loss_changes_nothing_else(batch):
    made, gradients = [classifier(), classifier()], []
    for each, measure in zip(made, (True, False), strict=True):
        x = batch.x.clone().requires_grad_()
        loss = each.exact_loss(x, batch.positives, measure=measure)
        loss.backward()
        gradients.append(x.grad)
        assert loss.isnan().item() is not measure
    assert torch.equal(*gradients)
    assert torch.equal(made[0].weight, made[1].weight)


@pytest.mark.parametrize("kind", [RowSgd, RowAdam])
def test_sampled_step_is_the_exact_step_on_these_labels_alone(batch, kind):
    wanted = torch.cat([batch.positives.columns, torch.tensor([0, 11, L - 1])]).unique()
    assert 3 < len(wanted) < L
    made, x = classifier(kind=kind), batch.x.clone().requires_grad_()
    before = made.weight.clone()
    loss = made.sampled_loss(x, batch.positives, wanted)
    loss.backward()
    expected = by_autograd(batch, before[wanted], wanted)
    assert_close("loss", loss.detach(), expected.loss)
    assert_close("gradient of x", x.grad, expected.gradient)
    if kind is RowSgd:
        assert_close("rows", made.weight[wanted, : DIM + 1], expected.weight)
    others = sorted(set(range(L)) - set(wanted.tolist()))
    assert torch.equal(made.weight[others], before[others])
    assert (made.weight[wanted] != before[wanted]).any(dim=1).all()


def test_sampling_every_label_is_exact(batch):
    sampled, exact = classifier(), classifier()
    sampled.sampled_loss(batch.x, batch.positives, torch.arange(L))
    exact.exact_loss(batch.x, batch.positives, measure=False)
    torch.testing.assert_close(sampled.weight, exact.weight)


@pytest.mark.parametrize("kind", [RowSgd, RowAdam])
def test_the_constant_and_the_padding_never_change(batch, kind):
    made = classifier(kind=kind)
    for _ in range(5):
        made.exact_loss(batch.x, batch.positives, measure=False)
        made.sampled_loss(batch.x, batch.positives, torch.arange(L))
    assert (made.weight[:, DIM + 1] == 1).all()
    assert (made.weight[:, DIM + 2 :] == 0).all()
    assert row_width(DIM) > DIM + 2  # there is padding to look at


def test_rows_start_at_zero_and_labels_at_the_prior():
    made = RowClassifier(LabelRows(0, L), DIM, PRIOR, RowSgd(L, row_width(DIM), LR), torch.float32)
    ids, logits = made.best(torch.randn(2, DIM), 3)
    torch.testing.assert_close(logits, torch.full((2, 3), PRIOR))
    assert ids.shape == (2, 3)


@pytest.mark.parametrize("dim", [1, 5, 6, 7, 14, 302])
def test_width_is_aligned_and_holds_bias_and_constant(dim):
    assert row_width(dim) % 8 == 0
    assert dim + 2 <= row_width(dim) < dim + 2 + 8


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
@pytest.mark.parametrize("k", [1, 5, L, 1000])
@pytest.mark.parametrize("rows", [LabelRows(0, L), SHARD], ids=["all rows", "a shard"])
def test_best_equals_sorting_all_logits(batch, monkeypatch, block, k, rows):
    monkeypatch.setitem(losses.SCORES_AT_ONCE, "cpu", block)
    made = classifier(rows)
    logits = (batch.x @ made.weight[:, :DIM].T + made.weight[:, DIM] + PRIOR).numpy()
    order = np.argsort(-logits, axis=1)[:, : min(k, len(rows))]
    ids, scores = made.best(batch.x, k)
    assert (ids.numpy() == order + rows.start).all()
    np.testing.assert_allclose(scores.numpy(), np.take_along_axis(logits, order, axis=1), atol=1e-5)


def test_served_scores_are_the_trained_ones(batch):
    made = classifier()
    served = made.served("document")
    ids, scores = made.best(batch.x, 4)
    logits = served.score_all(batch.x.numpy())
    np.testing.assert_allclose(np.take_along_axis(logits, ids.numpy(), axis=1), scores.numpy(), atol=1e-5)
    assert served.vector == "document"
    made.weight[:] = 0  # what is served is a copy
    assert served.weight.any()


def test_low_precision_copy_follows_the_rows(batch):
    """Products read bfloat16; the rows themselves stay float32, and loading refreshes the copy."""
    made = RowClassifier(LabelRows(0, L), DIM, PRIOR, RowSgd(L, row_width(DIM), LR), torch.bfloat16)
    made.load_state_dict(classifier().state_dict())
    assert torch.equal(made.shadow[:L], made.weight.bfloat16())
    before = made.weight.clone()
    x = batch.x.clone().requires_grad_()
    made.exact_loss(x, batch.positives, measure=True).backward()
    assert torch.equal(made.shadow[:L], made.weight.bfloat16())
    expected = by_autograd(batch, before, torch.arange(L))
    step, right = made.weight[:, : DIM + 1] - before[:, : DIM + 1], expected.weight - before[:, : DIM + 1]
    error = ((step - right).norm() / right.norm()).item()
    print(f"relative error of the step in bfloat16: {error:.2e}")
    assert error < 1e-2
    assert ((x.grad - expected.gradient).norm() / expected.gradient.norm()).item() < 1e-2
    assert "shadow" not in made.state_dict()


@pytest.mark.parametrize("backend", ["native", "torch"])
@pytest.mark.parametrize("loss", ["bce_sum", "bce_mean", "squared_hinge"])
@pytest.mark.parametrize("kind", [RowSgd, RowAdam])
def test_a_step_on_shortlists_equals_autograd(batch, monkeypatch, backend, loss, kind):
    """In the native core, which on a CPU is the default, and in torch, which a GPU uses."""
    if backend == "torch":
        monkeypatch.setattr(RowClassifier, "_native_pair_step", RowClassifier._torch_pair_step)
    generator = torch.Generator().manual_seed(5)
    made = RowClassifier(LabelRows(0, L), DIM, PRIOR, kind(L, row_width(DIM), LR), torch.float32, loss)
    made.weight[:, : DIM + 1].normal_(generator=generator)
    before = made.weight.clone()
    shortlist = torch.randint(-1, L, (N, 20), generator=generator)
    pairs = LabelPairs.of(shortlist, batch.positives)
    x = batch.x.clone().requires_grad_()
    found = made.shortlist_loss(x, pairs)
    found.backward()

    weight, inputs = before.double().requires_grad_(), batch.x.double().requires_grad_()
    logits = inputs @ weight[:, :DIM].T + weight[:, DIM] + PRIOR
    mask = torch.zeros(N, L, dtype=torch.bool)
    mask[pairs.owner, pairs.labels] = True
    target = batch.relevance.double()
    each = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    if loss == "squared_hinge":
        each = F.relu(1 - (2 * target - 1) * logits).square()
    total = each[mask].sum() / (len(pairs.labels) if loss == "bce_mean" else N)
    total.backward()
    assert_close("loss", found, total)
    assert_close("gradient", x.grad, inputs.grad)
    update, expected, rows = kind(L, row_width(DIM), LR), before.clone(), pairs.labels.unique()
    update.apply_(expected, rows, (weight.grad * N)[rows].float())
    assert_close("rows", made.weight, expected)


@pytest.mark.parametrize("kind", [RowSgd, RowAdam])
def test_a_step_on_shortlists_in_bfloat16_follows_full_precision(batch, kind):
    """As on a GPU, where the rows are read from their low-precision copy."""
    pairs = LabelPairs.of(torch.randint(-1, L, (N, 20), generator=torch.Generator().manual_seed(5)), batch.positives)
    found = []
    for compute in (torch.bfloat16, torch.float32):
        made = RowClassifier(LabelRows(0, L), DIM, PRIOR, kind(L, row_width(DIM), LR), compute)
        x = batch.x.clone().requires_grad_()
        for _ in range(2):  # the second step reads what the first one wrote
            made.shortlist_loss(x, pairs).backward()
        found.append((made.weight, x.grad))
    errors = [((low - full).norm() / full.norm()).item() for low, full in zip(*found, strict=True)]
    print(f"relative errors of rows and gradient: {errors}")
    assert max(errors) < 2e-2
