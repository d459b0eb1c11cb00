"""Training against all, sampled and shortlisted outputs; the shortlister's recall and beam; clusters on the device."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch.nn import functional as F

from xclearn.algorithms.eclare.over_graph import cluster_apart, graph_negatives, smoothed
from xclearn.config import AUTO
from xclearn.errors import ConfigError
from xclearn.inference.components import ClusterBeam
from xclearn.inference.graph import GameBeam, Graph
from xclearn.labels.lists import padded_rows
from xclearn.parts import label_clusters
from xclearn.parts.label_clusters import (
    cluster_relevance,
    cluster_rows,
    cluster_texts,
    membership,
)
from xclearn.parts.rows import SparseRows
from xclearn.parts.text_network import Blocks, OutputTexts, TextNetwork
from xclearn.parts.text_training import (
    ClusterOutputs,
    ClusterShortlister,
    FixedLabels,
    TextTask,
    make_clusters,
)

N, V, D, LABELS, PRIOR = 12, 40, 8, 30, -1.5
CPU = torch.device("cpu")
RNG = np.random.default_rng(0)
DOCUMENTS, LABEL_TEXTS = (sp.random(rows, V, 0.2, format="csr", dtype=np.float32, rng=RNG) for rows in (N, LABELS))
RELEVANCE = (sp.random(N, LABELS, 0.1, format="csr", rng=RNG) > 0).astype(np.float32).tocsr()
RELEVANCE.sort_indices()


@pytest.fixture
def task() -> TextTask:
    table = torch.randn(V, D, generator=torch.Generator().manual_seed(0))
    texts = OutputTexts(SparseRows.of(LABEL_TEXTS, CPU))
    network = TextNetwork(table, [texts], Blocks(0.0, False), use_text=True, refinement=None, sparse=False)
    documents, positives = SparseRows.of(DOCUMENTS, CPU), SparseRows.of(RELEVANCE, CPU)
    return TextTask(network.eval(), documents, positives, PRIOR, torch.float32)


def logits(task: TextTask) -> torch.Tensor:
    weight, bias = task.network.classifiers()
    return task.network.encode(task.documents.take(torch.arange(N))) @ weight.T + bias + PRIOR


def test_against_all_is_the_cross_entropy_with_every_label(task):
    expected = F.binary_cross_entropy_with_logits(logits(task), torch.tensor(RELEVANCE.toarray()), reduction="sum") / N
    assert task.against_all(torch.arange(N), 0).item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_sample_that_happens_to_hold_every_label_gives_the_same_as_all(task):
    sampled = task.against_sample(torch.arange(N), 0, 10_000, torch.Generator().manual_seed(0))
    assert sampled.item() == pytest.approx(task.against_all(torch.arange(N), 0).item(), rel=1e-5)


@pytest.mark.parametrize("add_positives", [True, False])
def test_a_shortlist_counts_its_own_labels_and_the_missed_relevant_ones_only_if_asked(task, add_positives):
    shortlist = torch.tensor(np.stack([RNG.permutation(LABELS)[:5] for _ in range(N)]))
    shortlist[3, 2:] = -1
    mask = torch.zeros(N, LABELS, dtype=torch.bool)
    for row, labels in enumerate(shortlist):
        mask[row, labels[labels >= 0]] = True
    target = torch.tensor(RELEVANCE.toarray())
    mask |= target.bool() & add_positives
    losses = F.binary_cross_entropy_with_logits(logits(task), target, reduction="none")
    expected = losses[mask].sum() / N
    found = task.against_shortlist(torch.arange(N), shortlist, add_positives=add_positives)
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)


def test_best_is_the_brute_force_order(task):
    ids, scores = task.best(task.documents, torch.arange(N), 4)
    expected = logits(task).topk(4, dim=1)
    assert torch.equal(ids, expected.indices)
    assert torch.allclose(scores, expected.values, atol=1e-5)


def cluster_task(task: TextTask) -> tuple[np.ndarray, ClusterOutputs, TextTask]:
    cluster_of_label = np.arange(LABELS) % 8
    clusters = make_clusters(cluster_of_label, RELEVANCE, LABEL_TEXTS, CPU)
    assert (clusters.members.toarray() == (np.arange(len(clusters.labels))[:, None] == cluster_of_label)).all()
    network = TextNetwork(
        task.network.table.detach(), [clusters.texts], Blocks(0.0, False), use_text=True, refinement=None,
        sparse=False,
    ).eval()  # fmt: skip
    return cluster_of_label, clusters, TextTask(network, task.documents, clusters.positives, PRIOR, torch.float32)


def test_the_beam_is_the_smallest_that_reaches_the_recall(task):
    cluster_of_label, clusters, finder = cluster_task(task)
    order = finder.best(finder.documents, torch.arange(N), 8)[0].numpy()
    wanted = [(row, cluster_of_label[label]) for row, label in np.argwhere(RELEVANCE.toarray())]
    wanted = set(wanted)
    recall = [sum(cluster in order[row, :beam] for row, cluster in wanted) / len(wanted) for beam in range(1, 9)]
    smallest = next(beam for beam, reached in enumerate(recall, 1) if reached >= 0.7)
    found = ClusterShortlister(finder, clusters, AUTO, 0.7)
    assert (found.beam, found.recall) == (smallest, pytest.approx(recall[smallest - 1]))
    fixed = ClusterShortlister(finder, clusters, 3, 0.7)
    assert (fixed.beam, fixed.recall) == (3, pytest.approx(recall[2]))
    listed = fixed.labels_of(torch.tensor([5]))
    expected = {label for label in range(LABELS) if cluster_of_label[label] in order[5, :3]}
    assert {label for label in listed.flatten().tolist() if label >= 0} == expected


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_a_graph_of_clusters_brings_in_clusters_that_the_beam_missed(task, share):
    """Each cluster passes its chance on to the next one and keeps none."""
    cluster_of_label, clusters, finder = cluster_task(task)
    ring = sp.csr_matrix(np.roll(np.eye(8, dtype=np.float32), 1, axis=1))
    found = ClusterShortlister(finder, clusters, 2, 0.7, Graph.of(ring), share)
    best = finder.best(finder.documents, torch.arange(N), 2)[0].numpy()
    for row in range(N):
        wanted = {(int(cluster) + 1) % 8 for cluster in best[row]} | (set(best[row].tolist()) if share < 1 else set())
        listed = found.labels_of(torch.tensor([row])).flatten()
        assert {int(cluster_of_label[label]) for label in listed[listed >= 0]} == wanted
    plain = ClusterShortlister(finder, clusters, 2, 0.7)
    assert isinstance(found.served("x"), GameBeam)
    assert isinstance(plain.served("x"), ClusterBeam)
    assert share == 1 or found.recall >= plain.recall


def test_neighbours_of_shortlisted_labels_are_trained_too(task):
    _, clusters, finder = cluster_task(task)
    near = torch.full((LABELS, 2), -1)
    near[:, 0] = (torch.arange(LABELS) + 1) % LABELS
    plain, more = (ClusterShortlister(finder, clusters, 1, 0.7, neighbours=each) for each in (None, near))
    for row in range(N):
        own, both = (
            {int(i) for i in each.labels_of(torch.tensor([row])).flatten() if i >= 0} for each in (plain, more)
        )
        assert both == own | {(label + 1) % LABELS for label in own}


def test_fixed_negatives_are_rows_of_their_table():
    table = torch.tensor([[1, 2], [3, -1]], dtype=torch.int32)
    assert FixedLabels(table).labels_of(torch.tensor([1, 0])).tolist() == [[3, -1], [1, 2]]


def test_negatives_of_the_graph_are_the_labels_bound_strongest_to_a_documents_own():
    """Labels 0 and 1 both lead to 3: together more strongly than 0 leads to 2."""
    graph = sp.csr_matrix(np.array([[1, 0, 3, 2], [0, 1, 0, 2], [0, 0, 1, 0], [0, 0, 0, 1]], dtype=np.float32))
    relevance = sp.csr_matrix(np.array([[1, 1, 0, 0], [0, 0, 1, 0]], dtype=np.float32))
    found = graph_negatives(relevance, graph, CPU, 2).labels_of(torch.arange(2))
    assert found.tolist() == [[3, 2], [2, -1]]


def test_part_lengths_are_the_norms_of_what_the_classifiers_sum(task):
    lengths = task.part_lengths()
    assert lengths.shape == (LABELS, 1)
    np.testing.assert_allclose(lengths[:, 0], np.linalg.norm(task.classifiers()[0], axis=1), rtol=1e-5)


def test_labels_set_apart_get_clusters_of_their_own_of_about_the_same_size():
    apart = np.arange(40) % 5 == 0
    found = cluster_apart(torch.randn(40, 6, generator=torch.Generator().manual_seed(0)), apart, 8, seed=0)
    assert set(found[~apart]) == set(range(8))
    assert set(found[apart]) == {8, 9}  # 8 labels in clusters of 4, as the others
    assert np.bincount(found).tolist() == [4] * 10
    same = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
    assert np.array_equal(cluster_apart(same, np.zeros(40, dtype=bool), 8, seed=0), cluster_rows(same, 8, seed=0))


def test_smoothing_by_hand():
    graph = sp.csr_matrix(np.array([[1.0, 0.5], [0, 1]], dtype=np.float32))
    vectors = torch.tensor([[3.0, 0], [0, 2]])
    assert smoothed(vectors, graph).tolist() == [[1, 0.5], [0, 1]]


def test_cluster_texts_relevance_and_rows_by_hand():
    members = membership(np.array([0, 1, 0], dtype=np.int32), 2)
    texts = cluster_texts(members, sp.csr_matrix(np.array([[3.0, 0], [0, 2], [0, 4]], dtype=np.float32)))
    assert np.allclose(texts.toarray(), [[0.6, 0.8], [0, 1]])
    relevance = sp.csr_matrix(np.array([[1.0, 0, 1], [0, 0, 0], [0, 1, 0]], dtype=np.float32))
    assert np.array_equal(cluster_relevance(relevance, members).toarray(), [[1, 0], [0, 0], [0, 1]])
    assert np.array_equal(padded_rows(members), [[0, 2], [1, -1]])


@pytest.mark.parametrize("n_rows", [64, 61])
def test_the_device_path_finds_planted_clusters_of_equal_size(n_rows):
    """Runs the torch path on the CPU: it needs no GPU to be right."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.nn.functional.normalize(torch.randn(8, 16, generator=generator), dim=1)
    truth = torch.arange(n_rows) % 8
    rows = centres[truth] + 0.05 * torch.randn(n_rows, 16, generator=generator)
    found = label_clusters._cluster_on_device(rows, 8, seed=1)
    assert np.bincount(found, minlength=8).max() <= 8
    again = label_clusters._cluster_on_device(rows, 8, seed=1)
    assert np.array_equal(found, again)
    if n_rows == 64:  # with no filling rows the planted clusters come back whole
        assert len({(int(a), int(b)) for a, b in zip(truth, found, strict=True)}) <= 12
    assert cluster_rows(rows, 8, seed=1).shape == (n_rows,)


@pytest.mark.parametrize("n_clusters", [3, 12, 128])
def test_a_number_of_clusters_that_cannot_be_is_refused_by_name(n_clusters):
    with pytest.raises(ConfigError, match=r"n_clusters: the number of clusters is invalid; got \d+; allowed: a power"):
        cluster_rows(torch.randn(64, 4), n_clusters, seed=0)
