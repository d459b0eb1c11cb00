"""The hold-out of a trial: disjoint, whole, the same for a seed; and the score with scores passed over a graph."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from planted import planted

from xclearn.algorithms.eclare.trial import GROUP, HELD_OUT, best_choice, parted, score_with_game
from xclearn.inference.graph import Graph
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
    assert 0 < n_out <= max(2 * GROUP, HELD_OUT * n_documents)
    assert part.relevance.shape[0] == n_documents - n_out
    both = sp.vstack([sp.csr_matrix(part.features), sp.csr_matrix(part.held_out_features)])
    assert rows_of(both) == rows_of(sp.csr_matrix(data.features))
    assert part.relevance.nnz + part.held_out.relevance.nnz == data.relevance.nnz
    again, other = parted(data, run_of()), parted(data, run_of(1))
    assert (again.held_out.relevance != part.held_out.relevance).nnz == 0
    assert (other.held_out.relevance != part.held_out.relevance).nnz > 0


def test_documents_that_resemble_each_other_leave_together():
    """40 families of 32 documents, each with tokens of its own."""
    family = np.repeat(np.arange(40), 32)
    features = sp.csr_matrix(np.eye(40, dtype=np.float32)[family])
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
        score_with_game(task, data, graph, share, "P@1", run_of())
        for graph, share in ((right, 0.0), (right, 1.0), (away, 1.0))
    )
    print(f"without {plain:.0f}, over the graph {passed:.0f}, over another {lost:.0f}")
    assert passed == 100
    assert max(plain, lost) < 50


def test_the_best_choice_is_said_and_a_resumed_run_stays_with_it(tmp_path):
    events, checkpoint = [], Checkpoint(tmp_path / "run")
    checkpoint.open("one", resume=False)
    run = Run(CPU, 0, checkpoint, events.append)
    scores = {(0, 0.0): 40.0, (0, 0.25): 41.0, (1, 0.0): 41.0}
    assert best_choice(scores, 1000, run) == (0, 0.25)
    said = {"0, 0": 40.0, "0, 0.25": 41.0, "1, 0": 41.0}
    assert events == [{"event": "choice", "order": 0, "game": 0.25, "scores": said}]
    assert best_choice({(1, 0.5): 50.0}, 1000, run) == (0, 0.25)


@pytest.mark.parametrize(("best", "chosen"), [(41.2, (0, 0.0)), (41.3, (1, 0.1))])
def test_the_graph_must_be_ahead_by_more_than_chance(best, chosen):
    """Of 400 documents with a mean of 40: half a standard error is ½ · √(40 · 60 / 400) = 1.22."""
    assert best_choice({(0, 0.0): 40.0, (0, 0.1): 40.9, (1, 0.1): best}, 400, run_of()) == chosen
