"""What a stage of rows is made of: its part of the schedule, optimisers, rates; what a re-ranker is trained on."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from planted import planted
from torch import nn

from xclearn.algorithms.astec.surrogates import ProjectionTask
from xclearn.config import AUTO
from xclearn.inference.shortlists import TwoLevelMix
from xclearn.parts.encoder_settings import BagSettings
from xclearn.parts.encoders import BagEncoder
from xclearn.parts.row_training import Negatives, RowTask
from xclearn.parts.rows import DenseRows, SparseRows
from xclearn.parts.transfer import TransferBlock, TransferEncoder
from xclearn.text import Words
from xclearn.training.checkpoint import Checkpoint
from xclearn.training.prepare import prepare
from xclearn.training.row_stages import ROW_LR, RowStages, reranker_mix, reranker_task
from xclearn.training.run import Run
from xclearn.training.stage import Stopping, one_cycle

CPU = torch.device("cpu")
N, L, DIM = 12, 30, 6


def stages(**others: object) -> RowStages:
    made = {"dim": DIM, "batch_size": 4, "warm_up": 0.2, "stopping": Stopping(patience=3), "device": "cpu"}
    return RowStages(**made | others)


def task(encoder: nn.Module, negatives: Negatives | None = None) -> RowTask:
    """The vectors are the documents; rows are random."""
    generator = torch.Generator().manual_seed(0)
    classifier = stages().classifier(L, 0.01, 0.1)
    classifier.weight[:, : DIM + 1] = torch.randn(L, DIM + 1, generator=generator)
    relevance = sp.csr_matrix((torch.rand(N, L, generator=generator) < 0.1).float().numpy())
    documents = DenseRows(torch.randn(N, DIM, generator=generator))
    return RowTask(encoder, classifier, documents, SparseRows.of(relevance, CPU), negatives or Negatives())


def bag() -> BagEncoder:
    return BagEncoder(9, DIM, 0.0, torch.Generator().manual_seed(0), sparse=True)


def test_stages_one_after_the_other_run_through_one_cycle():
    done = np.linspace(0, 1, 11)
    shares = [(0.0, 0.3), (0.3, 1.0)]
    found = [[stages().stage("s", task(bag()), 0.1, 1, share).schedule(d) for d in done] for share in shares]
    expected = [[one_cycle(0.2)(begin + d * (end - begin)) for d in done] for begin, end in shares]
    np.testing.assert_allclose(found, expected)
    assert found[0][0] == found[1][-1] == 0


def test_a_stage_is_patient_only_with_a_score():
    made = stages(), task(bag())
    assert made[0].stage("s", made[1], 0.1, 1).patience is None
    assert made[0].stage("s", made[1], 0.1, 1, score=lambda: 0.0).patience == 3


@pytest.mark.parametrize("kind", ["encoder", "block", "projection"])
def test_optimisers_hold_every_value_but_the_rows_once(kind):
    encoder = TransferEncoder(bag(), TransferBlock(DIM, 0.0, "free", 1.0))
    made = task(encoder if kind == "encoder" else encoder.block)
    if kind == "projection":
        made = ProjectionTask(encoder, nn.Linear(DIM, 2), made.documents, torch.zeros(N, 2))
    optimisers = stages().stage("s", made, 0.1, 1).optimisers
    held = [values for each in optimisers for group in each.param_groups for values in group["params"]]
    rows = set() if kind == "projection" else {id(values) for values in made.classifier.parameters()}
    expected = {id(values) for values in made.module.parameters()} - rows
    assert len(held) == len(expected)
    assert {id(values) for values in held} == expected
    assert {group["lr"] for each in optimisers for group in each.param_groups} == {0.1}


@pytest.mark.parametrize(
    ("settings", "loss", "rate"),
    [
        ({}, "bce_sum", 0.7),
        ({"label_optimiser": "adam"}, "bce_sum", 0.02),
        ({}, "squared_hinge", ROW_LR),
        ({"label_optimiser": "adam"}, "squared_hinge", 0.02),
        ({"label_lr": 0.3}, "squared_hinge", 0.3),
    ],
)
def test_rows_have_the_rate_of_their_optimiser_unless_one_is_set(settings, loss, rate):
    assert stages(**settings).classifier(L, 0.02, 0.7, loss).update.lr == rate


@pytest.mark.parametrize(("kind", "device", "lazy"), [("texts", "cpu", 1), ("texts", "cuda", 0), ("dense", "cpu", 0)])
def test_an_encoder_has_a_sparse_gradient_on_a_cpu_where_documents_have_few_features(kind, device, lazy):
    data, run = prepare(planted(kind, n_labels=4), Words(), None, 0), Run(CPU, 0, Checkpoint(None), lambda _: None)
    made, other = (stages(device=device).encoder(BagSettings(), Words(), data, run, member) for member in (0, 1))
    assert len(made.lazy_parameters()) == lazy
    assert made.token_embeddings.shape == (data.size.n_features, DIM)
    assert (made.token_embeddings != other.token_embeddings).any()


def test_without_stopping_there_is_no_score():
    made = stages(stopping=None)
    assert made.served_score(lambda: None, None) is None


@pytest.mark.parametrize("listed", [True, False])
def test_a_re_ranker_is_trained_on_the_labels_that_come_first(listed):
    """Among a document's own list where it has one; against sorting the logits."""
    lists = torch.from_numpy(np.random.default_rng(0).permuted(np.tile(np.arange(L), (N, 1)), axis=1)[:, :9])
    first = task(nn.Identity(), Negatives(shortlist=lists.int() if listed else None))
    encoder, run = bag(), Run(CPU, 0, Checkpoint(None), lambda _: None)
    made = reranker_task("first", first, encoder, first.classifier, first.documents, (4, 3), run)
    rows = first.classifier.weight
    logits = (first.documents.values @ rows[:, :DIM].T + rows[:, DIM]).numpy()
    among = lists.numpy() if listed else np.tile(np.arange(L), (N, 1))
    order = np.argsort(-np.take_along_axis(logits, among, axis=1), axis=1)[:, :4]
    assert (made.negatives.shortlist.numpy() == np.take_along_axis(among, order, axis=1)).all()
    assert made.negatives.drawn == 3
    assert made.encoder is encoder


def test_a_re_ranker_of_more_labels_than_there_are_is_trained_on_all():
    first = task(nn.Identity())
    run = Run(CPU, 0, Checkpoint(None), lambda _: None)
    made = reranker_task("first", first, bag(), first.classifier, first.documents, (10 * L, 0), run)
    assert (np.sort(made.negatives.shortlist.numpy(), axis=1) == np.arange(L)).all()


def test_the_mix_of_one_scorer_and_of_two():
    assert dataclasses.astuple(reranker_mix(1, 0.6, AUTO, "row_max")) == ([1.0], 1.0, True)
    assert dataclasses.astuple(reranker_mix(2, 0.6, 0.0, "plain")) == (pytest.approx([0.4, 0.6]), 0.0, False)
    assert reranker_mix(2, 0.6, 0.3, "two_levels") == TwoLevelMix(0.3, 0.6)
