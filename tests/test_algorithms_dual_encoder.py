"""Every choice trains end to end; texts alone rank labels; rows hold to texts; what bad input gets."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from planted import planted, relevant_first

from xclearn import config, load
from xclearn.algorithms.dual_encoder import DualEncoder
from xclearn.algorithms.dual_encoder.frequency_mix import _pair_scores
from xclearn.algorithms.dual_encoder.tasks import ExactRowTask
from xclearn.data import Dataset
from xclearn.errors import DataError
from xclearn.inference.native import NativePredictor, native_predictor
from xclearn.parts.label_rows import LabelRows
from xclearn.parts.rows import SparseRows
from xclearn.text import Subwords
from xclearn.training.checkpoint import Checkpoint
from xclearn.training.loop import train
from xclearn.training.prepare import Size, prepare
from xclearn.training.run import Run

N_LABELS = 24
SHORT = {"epochs": 15, "row_epochs": 3, "batch_size": 16, "embedding_dim": 32, "n_negatives": 12}
CHOICES: dict[str, dict[str, Any]] = {
    "usual": {},
    "text alone": {"row_epochs": 0},
    "rows against all labels": {"row_negatives": "all"},
    "all labels": {"n_negatives": N_LABELS},
    "hard labels": {"hard_negatives": 2, "hard_size": 8, "refresh_every": 5},
    "label texts as documents": {"label_documents": True},
    "averaged weights": {"average": 0.4},
    "stopping": {"stopping": {"patience": 5, "hold_out": 0.2}},
    "word pieces": {"vectoriser": "word_piece"},
}


def made(**settings: Any) -> DualEncoder:
    return config.build(DualEncoder, {**SHORT, **settings}, "dual_encoder")


@pytest.fixture(scope="module")
def data() -> Dataset:
    return planted(n_labels=N_LABELS, train=10, test=5)


@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
def test_a_choice_trains_end_to_end(data, choice, tmp_path):
    fitted = made(**choice).fit(data, device="cpu", seed=1)
    found = fitted.predict(data.test.documents)
    print(f"P@1 {relevant_first(data, found.ids):.3f}; chance {1.3 / N_LABELS:.3f}")
    assert relevant_first(data, found.ids) > 0.8
    fitted.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict(data.test.documents).ids, found.ids)


def test_a_label_without_documents_is_found_by_its_text(data):
    """No document of train has the last label; its text holds a word that its test documents have."""
    train = data.train.take(np.flatnonzero(np.asarray(data.train.relevance[:, -1].todense()).ravel() == 0))
    fitted = made().fit(dataclasses.replace(data, train=train), device="cpu")
    asked = np.flatnonzero(np.asarray(data.test.relevance[:, -1].todense()).ravel())
    found = fitted.predict([data.test.documents[row] for row in asked], k=3).ids
    assert (found == N_LABELS - 1).any(axis=1).mean() > 0.5


def test_the_native_core_serves_it(data):
    fitted = made().fit(data, device="cpu")
    native = native_predictor(fitted.model.servable)
    assert isinstance(native, NativePredictor)
    found, expected = (each.predict(data.test.documents, 5) for each in (native, fitted.model.servable))
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-5)


def test_scores_on_the_hold_out_are_probabilities():
    """What is answered with a score of p is right in about p of the cases."""
    data = planted(n_labels=N_LABELS, train=40, test=20)
    fitted = made(stopping={"patience": 5, "hold_out": 0.3}, epochs=4).fit(data, device="cpu")
    ids, scores = fitted.predict(data.test.documents, k=N_LABELS)
    right = np.take_along_axis(data.test.relevance.toarray(), ids, axis=1)
    print(f"mean score {scores.mean():.4f}, right {right.mean():.4f}")
    assert scores.mean() == pytest.approx(right.mean(), rel=0.3)


def test_one_thread_and_two_give_the_same_bits(data):
    before, rows = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            rows.append(made(epochs=3).fit(data, device="cpu").model.servable.scorers[0].weight)
    finally:
        torch.set_num_threads(before)
    assert rows[0].tobytes() == rows[1].tobytes()


def test_labels_without_texts_are_refused(data):
    nameless = dataclasses.replace(data, labels=dataclasses.replace(data.labels, texts=None))
    with pytest.raises(DataError, match="needs label texts, but the data has none"):
        made().fit(nameless, device="cpu")


def exact_task(n_labels: int = 7, dim: int = 5, lr: float = 0.1) -> ExactRowTask:
    generator = torch.Generator().manual_seed(0)
    texts, vectors = (torch.nn.functional.normalize(torch.randn(n, dim, generator=generator)) for n in (n_labels, 12))
    relevance = sp.random(12, n_labels, density=0.3, format="csr", random_state=0, dtype=np.float32)
    relevance.data[:] = 1
    positives = SparseRows.of(relevance, torch.device("cpu"))
    counts = torch.from_numpy(np.asarray(relevance.sum(axis=0)).ravel())
    return ExactRowTask.starting_at(LabelRows(0, n_labels), texts, counts, 2.0, vectors, positives, 20.0, lr)


def test_rows_against_all_labels_start_at_their_texts_with_as_many_labels_likely_as_relevant():
    task = exact_task()
    changes = task.changes()
    assert changes.rows.abs().max() < 1e-6
    logits = task.classifier.logits(task.vectors, torch.arange(7).expand(12, 7))
    assert float(logits.sigmoid().sum() / 12) == pytest.approx(len(task.positives.columns) / 12, rel=1e-3)


def test_a_step_against_all_labels_is_that_of_the_formula():
    """w ← w − lr Σ (σ(s x·w + b) − y) x in the space where both sides are multiplied by the root of s."""
    task = exact_task(lr=0.05)
    rows = torch.tensor([2, 5, 11])
    weight = task.classifier.weight[:, :5].double().clone()
    bias = task.classifier.prior
    x = task.vectors[rows].double()
    truth = torch.zeros(3, 7, dtype=torch.float64)
    gathered = task.positives.take(rows)
    truth[gathered.owner, gathered.columns] = 1
    error = (x @ weight.T + bias).sigmoid() - truth  # (n, L)
    task.loss(rows, 0, torch.Generator())
    moved = task.classifier.weight[:, :5] - weight
    expected = -0.05 * error.T @ x
    print(f"largest difference {float((moved - expected).abs().max()):.2e}")
    torch.testing.assert_close(moved.double(), expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(task.classifier.weight[:, 5].double(), -0.05 * error.sum(dim=0), atol=1e-5, rtol=1e-4)


def test_what_documents_change_counts_by_how_many_there_are():
    task = exact_task(lr=0.5)
    task.loss(torch.arange(12), 0, torch.Generator())
    free = task.classifier.weight[:, 5]
    held = task.counts / (task.counts + 2.0)
    torch.testing.assert_close(task.changes().biases, held * free)
    assert (task.changes().biases[task.counts > 0] != 0).all()


def test_near_labels_are_found_again_only_when_it_is_time_and_kept(data):
    """One stage trains the encoder, and a resumed run takes the lists that were found before."""
    fitted = made(hard_negatives=2, hard_size=4, refresh_every=3, epochs=7).fit(data, device="cpu")
    assert fitted.predict(data.test.documents).ids.shape == (len(data.test), 5)
    never = made(hard_negatives=2, hard_size=4, refresh_every=7, epochs=7).fit(data, device="cpu")
    assert (fitted.model.servable.scorers[0].weight != never.model.servable.scorers[0].weight).any()


def test_a_blend_can_ask_for_label_texts_alone(data):
    """The view is the ranking of a dual encoder without rows, from the same training."""
    prepared = prepare(data, Subwords(), None, 0)
    run = Run(torch.device("cpu"), 0, Checkpoint.of(None), lambda _: None)
    chosen = made()._resolve(prepared.size, "cpu")
    for stage in chosen._stages(prepared, run):
        train(stage, run)
    served = chosen._servable(prepared)
    view = chosen._views(prepared)["texts"].servable
    alone = made(row_epochs=0)._resolve(prepared.size, "cpu")
    for stage in alone._stages(prepared, run):
        train(stage, run)
    expected = alone._servable(prepared).predict(data.test.documents, N_LABELS).ids
    np.testing.assert_array_equal(view.predict(data.test.documents, N_LABELS).ids, expected)
    assert (served.predict(data.test.documents, N_LABELS).ids != expected).any()


@pytest.mark.parametrize(
    ("n_documents", "batch", "epochs", "negatives"),
    [(500, 64, 80, 128), (4_000, 250, 40, 500), (16_000, 1_000, 30, 2_000), (100_000, 1_024, 10, 2_048)],
)
def test_small_sets_take_as_many_steps_in_smaller_ones(n_documents, batch, epochs, negatives):
    size = Size(n_documents, 10_000, 20_000, 13 * n_documents, 3 * n_documents, 130_000)
    resolved = DualEncoder()._resolve(size, "cpu")
    assert (resolved.batch_size, resolved.epochs, resolved.n_negatives) == (batch, epochs, negatives)


def test_the_plan_grows_with_what_a_step_holds():
    size = Size(10_000, 5_000, 8_000, 100_000, 30_000, 25_000)
    resolved = made(batch_size=512)._resolve(size, "cpu")
    wider = dataclasses.replace(resolved, n_negatives=5_000)
    drawn = dataclasses.replace(resolved, row_negatives="drawn")
    encoder, rows = resolved._plan(size, "cpu").stages
    assert (encoder.name, rows.name) == ("encoder", "rows")
    assert wider._plan(size, "cpu").stages[0].working > encoder.working
    assert rows.flops_per_epoch > drawn._plan(size, "cpu").stages[1].flops_per_epoch
    assert rows.path == "exact: all 5,000 labels"
    half = dataclasses.replace(size, n_processes=2)
    assert resolved._plan(half, "cpu").stages[1].flops_per_epoch == rows.flops_per_epoch / 2


def test_pairs_are_scored_some_at_a_time_as_at_once():
    rng = np.random.default_rng(0)
    vectors, rows = rng.standard_normal((5, 4), dtype=np.float32), rng.standard_normal((7, 4), dtype=np.float32)
    document, label = rng.integers(5, size=40_000), rng.integers(7, size=40_000)  # more than are scored at once
    found = _pair_scores(vectors, rows, document, label)
    np.testing.assert_allclose(found, (vectors @ rows.T)[document, label], rtol=1e-4, atol=1e-6)
    assert _pair_scores(vectors, rows, document[:0], label[:0]).shape == (0,)
