"""What DECAF's and ECLARE's stages read, when they stop, and what they cost: counted by hand."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from planted import planted

from xclearn.algorithms.decaf import Decaf
from xclearn.algorithms.eclare.over_graph import cost_over_graph
from xclearn.parts.rows import SparseRows
from xclearn.parts.text_network import Blocks, OutputTexts, TextNetwork
from xclearn.text import Words
from xclearn.training.prepare import Size, prepare
from xclearn.training.scoring import task_score
from xclearn.training.stage import Stopping
from xclearn.training.text_algorithm import ClassifierCost, Material

CPU = torch.device("cpu")
MANY = Size(n_documents=100, n_labels=100, n_features=30, n_feature_entries=900, n_relevant=200, n_label_entries=400)


def algorithm(ranker: str = "exact", **settings: object) -> Decaf:
    """With every automatic setting that a plan reads."""
    made = {"ranker": ranker, "batch_size": 10, "n_negatives": 50, "embedding_dim": 8, "n_clusters": 34, "beam": 2}
    return Decaf(**made | {"surrogate_epochs": 1, "ranker_epochs": 1} | settings)


def network(material: Material) -> TextNetwork:
    texts, table = OutputTexts(SparseRows.of(material.features, CPU)), torch.ones(material.features.shape[1], 4)
    return TextNetwork(table, [texts], Blocks(0.0, False), use_text=True, refinement=None, sparse=False)


def test_labels_that_are_only_names_say_nothing():
    data = prepare(planted("sparse", n_labels=6), Words(), None, 0)
    named = Material.of(dataclasses.replace(data, label_features=None), CPU).features
    told = Material.of(data, CPU).features
    assert (named.shape, named.dtype, named.nnz) == (told.shape, np.float32, 0)
    assert told.nnz == 6


def test_a_task_is_on_labels_or_on_other_outputs_and_starts_at_their_base_rate():
    data = prepare(planted("sparse", n_labels=6), Words(), None, 0)
    material = Material.of(data, CPU)
    other = SparseRows.of(data.relevance[:, :3].tocsr(), CPU)
    own, of_other = material.task(network(material)), material.task(network(material), other)
    assert (own.positives, of_other.positives) == (material.labels, other)
    assert own.prior == pytest.approx(-math.log(7))
    assert of_other.prior == pytest.approx(-math.log(4))


def test_only_a_stage_with_a_score_has_patience():
    stopping = Stopping(metric="P@1", patience=3)
    data = prepare(planted("sparse", n_labels=6), Words(), stopping, 0)
    task = Material.of(data, CPU).task(network(Material.of(data, CPU)))
    score = task_score(task, data, stopping)
    assert 0 <= score() <= 100
    assert task_score(task, data, None) is None
    made = algorithm("exact", stopping=stopping)
    patience = [made._stage("one", task, 1, 0.1, None, each).patience for each in (score, None)]
    assert patience == [3, None]


@pytest.mark.parametrize(("ranker", "scored"), [("exact", 100), ("sampled", 70), ("shortlist", 80)])
def test_labels_that_a_step_trains(ranker, scored):
    """Ten documents have 20 relevant labels; a beam of 2 clusters of 3 labels lists 60."""
    assert algorithm(ranker)._scored(MANY) == scored


@pytest.mark.parametrize(("order", "texts"), [(0, 1), (1, 6), (2, 31), (3, 131)])
def test_texts_read_over_a_graph(order, texts):
    """A label has 2 documents of 2 labels each, so 4 neighbours, and 4 · 4 in two steps; no step brings in over 100."""
    cost = cost_over_graph(MANY, 10, order, attention=False, detached=False)
    assert cost == ClassifierCost(2 + order, texts, texts, 32 * 100 * 11)
    few = cost_over_graph(MANY, 2, order, attention=True, detached=True)
    assert (few.parts, few.trained, few.texts) == (2 + 2 * order, 1, sum(min(3**i, 100) for i in range(order + 1)))


def test_of_rare_labels_only_those_with_documents_have_neighbours():
    """Half of the labels have a document; it has half a label, so theirs is half a neighbour."""
    rare = dataclasses.replace(MANY, n_relevant=50)
    cost = cost_over_graph(rare, 10, 1, attention=False, detached=False)
    assert (cost.trained, cost.texts) == (1 + 1.5, 1 + 1.25)


def test_a_plan_has_the_modules_that_are_trained_and_the_texts_that_are_held():
    settings = {"surrogate_epochs": 0, "ranker_epochs": 4, "n_members": 2}
    cost = ClassifierCost(texts=2.0, graph=5)
    plans = {
        ranker: algorithm(ranker, **settings)._text_plan(MANY, "cpu", 70, cost) for ranker in ("sampled", "shortlist")
    }
    assert [(stage.name, stage.epochs) for stage in plans["sampled"].stages] == [("ranker-0", 4), ("ranker-1", 4)]
    rows, texts = 8 * (900 + 200) + 16 * 100, 56 * 400 * 2
    assert [plans[ranker].data for ranker in plans] == [rows + texts + 5, rows + 2 * texts + 5]


def test_parts_and_texts_make_a_stage_dearer_and_only_later_modules_hold_refinements():
    made = algorithm("sampled")
    first, later = made._text_plan(MANY, "cpu", 70, ClassifierCost()).stages
    assert later.parameters - first.parameters == 4 * 100 * 8
    dear = made._text_plan(MANY, "cpu", 70, ClassifierCost(parts=3, trained=2.0)).stages[0]
    assert dear.working - first.working == 48 * 70 * 8 + 8 * 8 * 70 * 4  # a part more; 4 more tokens for each label
    assert dear.flops_per_epoch / first.flops_per_epoch == pytest.approx((1 + 3 * 8 / 10) / (1 + 2 * 8 / 10))


def test_the_best_epoch_is_kept_beside_the_network_where_a_hold_out_decides():
    """Of the last module only: 30 token vectors and 100 refinements of length 8."""
    (_, plain), (_, stopped) = (
        algorithm("exact", stopping=stopping)._text_plan(MANY, "cpu", 100, ClassifierCost()).stages
        for stopping in (None, Stopping())
    )
    assert stopped.working - plain.working == 4 * 8 * (30 + 100)
