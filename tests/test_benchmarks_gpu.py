"""What the benchmark of a GPU builds on: its checks notice a wrong step, and its sets can be learnt."""

import pytest
import torch
from benchmarks.speed import gpu_checks
from benchmarks.speed.planted import SHAPES, Planted, Shape, as_dataset, planted, relevant_share

from xclearn import OneVsAll
from xclearn.parts import losses

SHAPE = Shape(documents=600, labels=60, words=300, length=6, relevant=3)


@pytest.mark.parametrize("check", gpu_checks.CHECKS, ids=lambda check: check.__name__)
def test_steps_are_those_of_plain_float64(check):
    error, allowed = check("cpu")
    assert error <= allowed


def test_the_check_notices_a_wrong_gradient(monkeypatch):
    right = losses.block_gradient
    monkeypatch.setattr(losses, "block_gradient", lambda *args: (lambda s, loss: (1.1 * s, loss))(*right(*args)))
    error, allowed = gpu_checks.loss_over_all_outputs("cpu")
    assert error > allowed


@pytest.fixture(scope="module")
def made() -> Planted:
    return planted(SHAPE, "cpu")


def test_sets_have_the_counts_of_their_shape(made):
    assert made.documents.columns.shape == (600 * 6,)
    assert made.relevance.columns.shape == (600 * 3,)
    assert (len(made.texts), made.texts.n_columns) == (60, 300)
    rows = made.documents.columns.view(600, 6)
    assert (rows.diff(dim=1) > 0).all(), "no word comes twice in a text"
    assert all(shape.documents >= shape.relevant for shape in SHAPES.values())


def test_words_lead_to_labels(made):
    torch.manual_seed(0)
    data = as_dataset("planted", made)
    found = OneVsAll(epochs=20, embedding_dim=32).fit(data).predict(data.test.documents, 3)
    assert relevant_share(found.ids, data.test.relevance) > 50  # by chance 5
