"""The hold-out of a trial: disjoint, whole, the same for a seed; and the score with scores passed over a graph."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from planted import planted

from xclearn.algorithms.eclare.trial import GROUP, MOST_OF_SMALL, Gain, best_choice, parted, report_with_game
from xclearn.data.topk import TopK
from xclearn.inference.graph import Graph
from xclearn.metrics import evaluate_predictions
from xclearn.metrics.report import Report
from xclearn.parts.rows import SparseRows, feature_rows
from xclearn.parts.text_network import Blocks, OutputTexts, TextNetwork
from xclearn.parts.text_training import TextTask
from xclearn.text import Words
from xclearn.training.checkpoint import Checkpoint
from xclearn.training.prepare import prepare
from xclearn.training.run import Run

CPU = torch.device("cpu")


def run_of(seed: int = 0) -> Run:
    return Run(CPU, seed, Checkpoint(None), lambda _: None)


def rows_of(features) -> list[bytes]:
    return sorted(row.tobytes() for row in features.toarray())


@pytest.mark.parametrize("kind", ["texts", "dense"])
def test_a_part_and_its_hold_out_are_train_once(kind):
    data = prepare(planted(kind), Words(), None, 0)
    part = parted(data, run_of())
    n_documents, n_out = data.relevance.shape[0], len(part.held_out)
    assert 0 < n_out <= MOST_OF_SMALL * n_documents + 2 * GROUP
    assert part.relevance.shape[0] == n_documents - n_out
    both = sp.vstack([sp.csr_matrix(part.features), sp.csr_matrix(part.held_out_features)])
    assert rows_of(both) == rows_of(sp.csr_matrix(data.features))
    assert part.relevance.nnz + part.held_out.relevance.nnz == data.relevance.nnz
    again, other = parted(data, run_of()), parted(data, run_of(1))
    assert (again.held_out.relevance != part.held_out.relevance).nnz == 0
    assert (other.held_out.relevance != part.held_out.relevance).nnz > 0


def test_documents_that_resemble_each_other_leave_together():
    """64 families of 32 documents, each with tokens of its own."""
    family = np.repeat(np.arange(64), 32)
    features = sp.csr_matrix(np.eye(64, dtype=np.float32)[family])
    data = dataclasses.replace(prepare(planted("sparse"), Words(), None, 0), features=features, relevance=features)
    for seed in range(3):
        part = parted(data, run_of(seed))
        inside, outside = (set(rows.indices) for rows in (part.relevance, part.held_out.relevance))
        print(f"seed {seed}: families held out {sorted(outside)}, torn {sorted(inside & outside)}")
        assert len(inside & outside) <= 2  # a group ends where its size says, not where a family does
        assert outside


def test_a_graph_that_leads_to_the_right_labels_scores_and_one_that_leads_away_does_not():
    """Label texts are those of the next label: without the graph every answer is wrong by one."""
    data = parted(prepare(planted("sparse", n_labels=12), Words(), None, 0), run_of())
    shifted = sp.csr_matrix(np.roll(data.label_features.toarray(), -1, axis=0))
    texts = OutputTexts(SparseRows.of(shifted, CPU))
    network = TextNetwork(
        torch.eye(data.features.shape[1]), [texts], Blocks(0.0, False), use_text=True, refinement=None,
        sparse=False,
    ).eval()  # fmt: skip
    task = TextTask(network, feature_rows(data.features, CPU), SparseRows.of(data.relevance, CPU), 0.0, torch.float32)
    right, away = (Graph.of(sp.csr_matrix(np.roll(np.eye(12, dtype=np.float32), by, axis=1))) for by in (1, 2))
    plain, passed, lost = (
        report_with_game(task, data, graph, share, run_of()).values["P@1"]
        for graph, share in ((right, 0.0), (right, 1.0), (away, 1.0))
    )
    print(f"without {plain:.0f}, over the graph {passed:.0f}, over another {lost:.0f}")
    assert passed == 100
    assert max(plain, lost) < 50


# The choice

METRICS = ("P@1", "PSP@1")
ONE, TWO = (0, 0.0), (1, 0.25)


def report(right: np.ndarray) -> Report:
    """Of documents with a label each, every fourth a rare one: whether their first answer is right (n,)."""
    label = (np.arange(len(right)) % 4 == 0).astype(int)  # label 1 is rare
    relevance = sp.csr_matrix((np.ones(len(right), np.float32), (np.arange(len(right)), label)))
    ids = np.where(right, label, 1 - label)[:, None]
    return evaluate_predictions(TopK(ids, np.ones(ids.shape)), relevance, np.array([1.0, 8.0]), recall_ks=(10,))


def some(right: np.ndarray, n: int, *, rare: bool = False, now: bool = True) -> np.ndarray:
    """The same with `n` more documents right, or wrong, of common or rare labels."""
    places = np.flatnonzero((right != now) & ((np.arange(len(right)) % 4 == 0) == rare))[:n]
    changed = right.copy()
    changed[places] = now
    return changed


BEFORE = np.random.default_rng(0).random(400) < 0.4
SHUFFLED = some(BEFORE, 14) & (some(BEFORE, 10, now=False) | ~BEFORE)


@pytest.mark.parametrize(
    ("other", "chosen"),
    [
        (some(BEFORE, 4), TWO),  # a point on the same documents: two standard errors paired, less than half an unpaired
        (SHUFFLED, ONE),  # as much, but by chance: others are right now
        (some(some(BEFORE, 20), 8, rare=True, now=False), ONE),  # more precise, but at the cost of rare labels
        (some(BEFORE, 6, now=False), ONE),
        (BEFORE, ONE),
    ],
    ids=["a gain", "noise", "rare labels lost", "a loss", "the same"],
)
def test_a_choice_is_taken_when_it_is_ahead_on_the_same_documents(other, chosen):
    gain = Gain.over(report(BEFORE), report(other), METRICS)
    print(gain)
    assert best_choice({ONE: report(BEFORE), TWO: report(other)}, METRICS, run_of()) == chosen


def test_means_and_errors_are_those_of_the_paired_differences():
    other = some(BEFORE, 10)
    gain = Gain.over(report(BEFORE), report(other), ("P@1",))
    differences = 100 * (other.astype(float) - BEFORE)
    assert gain.mean == pytest.approx(report(other).values["P@1"] - report(BEFORE).values["P@1"])
    assert gain.error == pytest.approx(differences.std() / np.sqrt(len(differences)))


def test_what_was_chosen_is_said_with_the_reason_and_a_resumed_run_stays_with_it(tmp_path):
    events, checkpoint = [], Checkpoint(tmp_path / "run")
    checkpoint.open("one", resume=False)
    run = Run(CPU, 0, checkpoint, events.append)
    better, worse = some(BEFORE, 12), some(BEFORE, 12, now=False)
    assert best_choice({ONE: report(BEFORE), TWO: report(better)}, METRICS, run) == TWO
    assert [event["event"] for event in events] == ["choice", "note"]
    assert "order 1, game 0.25; on 400 held-out texts order 1, game 0.25 gains P@1 +3.00" in events[1]["label_graph"]
    assert best_choice({ONE: report(BEFORE), TWO: report(worse)}, METRICS, run) == TWO
    assert best_choice({ONE: report(BEFORE), TWO: report(worse)}, METRICS, run_of()) == ONE
    left_out: list[dict[str, Any]] = []
    best_choice({ONE: report(BEFORE), TWO: report(worse)}, METRICS, Run(CPU, 0, Checkpoint(None), left_out.append))
    assert left_out[1]["label_graph"].startswith("left out; on 400 held-out texts order 1, game 0.25 gains P@1 -3.00")
