"""The label index against plain searches and hand-computed scores, its gradients, and where its edges come from."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from handmade import expect_fits
from torch.nn import functional as F

from xclearn.algorithms.elias.learned_edges import (
    EdgeIndex,
    IndexedNetwork,
    PairClassifier,
    edges_from_matches,
    path_losses,
    random_edges,
)
from xclearn.inference.components import ClusterBeam, Product
from xclearn.inference.servable import Servable
from xclearn.labels.lists import padded_rows
from xclearn.parts.encoders import BagEncoder
from xclearn.parts.label_clusters import membership
from xclearn.parts.row_training import row_classifier
from xclearn.parts.rows import Gathered, SparseRows
from xclearn.text import vectoriser_for
from xclearn.text.settings import Words

SCALES = {"cluster_scale": 3.0, "edge_scale": 4.0}


def index_of(labels: list[list[int]] | np.ndarray, edges, n_labels: int, dim: int = 4, seed: int = 0) -> EdgeIndex:
    torch.manual_seed(seed)
    weights = None if edges is None else torch.as_tensor(edges, dtype=torch.float32)
    return EdgeIndex(dim, torch.as_tensor(np.array(labels)), weights, n_labels=n_labels, **SCALES)


def random_index(seed: int, n_clusters: int = 6, n_edges: int = 5, n_labels: int = 15) -> EdgeIndex:
    labels = random_edges((n_clusters, n_edges), n_labels, seed)
    return index_of(labels, np.random.default_rng(seed).normal(size=labels.shape), n_labels, seed=seed)


def gathered(rows: list[list[int]]) -> Gathered:
    owner = torch.tensor([i for i, row in enumerate(rows) for _ in row], dtype=torch.int64)
    columns = torch.tensor(list(itertools.chain(*rows)), dtype=torch.int64)
    return Gathered(owner, columns, torch.ones(len(columns)), torch.zeros(len(rows)))


def search(index: EdgeIndex, x: torch.Tensor, beam: int, size: int, positives=None, most=None):
    chances, strengths = index.chances(x), index.strengths()
    paths = index.paths(chances, strengths, beam, size, positives, most)
    return paths, index.reach(chances, strengths, paths)


def plain_scores(index: EdgeIndex, x: np.ndarray, explored: list[int]) -> dict[int, float]:
    """The best path to every label below some clusters, in float64, for one document."""
    logits = index.clusters.weight.detach().double().numpy() @ x + index.clusters.bias.detach().double().numpy()
    chances = np.exp(logits - logits.max())
    chances = np.minimum(1, index.cluster_scale * chances / chances.sum())
    best: dict[int, float] = {}
    for cluster in explored:
        there = index.labels[cluster].numpy() >= 0
        weights = np.exp(index.edges[cluster].detach().double().numpy()) * there
        edges = np.minimum(1, index.edge_scale * weights / weights.sum())
        for label, edge in zip(index.labels[cluster].tolist(), edges, strict=True):
            if label >= 0:
                best[label] = max(best.get(label, 0), chances[cluster] * edge)
    return best


def test_scores_by_hand():
    """Clusters of chance min(1, 3 · ¾) and min(1, 3 · ¼); edges of chance min(1, 4 · ½) and min(1, 4 · ⅛ …)."""
    index = index_of([[0, 1], [1, 2]], [[0, 0], [np.log(7), 0]], n_labels=3, dim=1)
    index.clusters.weight.data[:] = torch.tensor([[np.log(3)], [0]])
    index.clusters.bias.data.zero_()
    paths, reach = search(index, torch.ones(1, 1), beam=2, size=3)
    assert paths.label.tolist() == [0, 1, 2]
    assert paths.cluster.tolist() == [0, 0, 1]
    np.testing.assert_allclose(reach.exp().detach(), [1, 1, 0.75 * 0.5], rtol=1e-6)


@pytest.mark.parametrize("seed", range(10))
def test_the_best_labels_are_those_of_a_plain_search(seed):
    index, beam, size = random_index(seed), 3, 6
    x = torch.randn(7, 4, generator=torch.Generator().manual_seed(seed))
    paths, reach = search(index, x, beam, size)
    clusters = index.beam(index.chances(x), beam)
    for document in range(len(x)):
        expected = plain_scores(index, x[document].double().numpy(), clusters[document].tolist())
        own = paths.owner == document
        found = dict(zip(paths.label[own].tolist(), reach[own].exp().tolist(), strict=True))
        assert sorted(found.values()) == pytest.approx(sorted(expected.values())[-size:], rel=1e-5)
        assert found == pytest.approx({label: expected[label] for label in found}, rel=1e-5)


@pytest.mark.parametrize("seed", range(10))
def test_native_and_torch_find_the_same_paths(seed):
    index = random_index(seed)
    if seed % 2:
        index.edges = None  # fixed edges: all scores of a cluster are ties
    if seed % 4 == 3:
        index = index_of([[7, 0, 3, 1], [4, 9, -1, 2], [14, 5, 8, 6], [10, 13, 12, 11]], None, 15)  # a partition
    assert index.one_path == (seed % 4 == 3)
    x = torch.randn(9, 4, generator=torch.Generator().manual_seed(seed))
    positives = gathered([[seed, 3 + seed % 2], [], [14], *[[]] * 6]) if seed % 3 else None
    with torch.no_grad():
        chances, strengths = index.chances(x), index.strengths()
        pairs = index._explored(chances, strengths, 3, positives, None)
        arguments = pairs, chances, strengths.clamp(max=0), 4, positives
        native, plain = index._native_paths(*arguments), index._torch_paths(*arguments)
    assert [part.tolist() for part in native] == [part.tolist() for part in plain]


def test_every_relevant_label_that_an_edge_leads_to_is_found():
    """However unlikely its cluster, and though the shortlist is as short as the relevant labels are many."""
    index = random_index(0)
    reachable = set(index.labels.flatten().tolist()) - {-1}
    positives = [[label for label in row if label in reachable] for row in ([0, 5, 9], [14], [], [1, 2, 3, 4])]
    x = 10 * torch.randn(4, 4, generator=torch.Generator().manual_seed(1))
    paths, _ = search(index, x, beam=1, size=4, positives=gathered(positives))
    found = [sorted(paths.label[(paths.owner == row) & paths.target].tolist()) for row in range(4)]
    assert found == positives
    unguided, _ = search(index, x, beam=1, size=4)
    assert not unguided.target.any()
    assert {(0, 0), (0, 5), (0, 9)} - set(zip(unguided.owner.tolist(), unguided.label.tolist(), strict=True))


def test_a_label_without_an_edge_is_not_found():
    index = index_of([[0, 1], [1, -1]], [[0, 0], [0, 0]], n_labels=3)
    paths, _ = search(index, torch.randn(1, 4), beam=2, size=3, positives=gathered([[2, 1]]))
    assert paths.label.tolist() == [0, 1]
    assert paths.target.tolist() == [False, True]


def test_parents_are_the_strongest_edges():
    index = random_index(3)
    strengths = index.strengths().detach()
    dense = np.full((len(index.labels), index.n_labels), -np.inf)
    for cluster, (labels, row) in enumerate(zip(index.labels.tolist(), strengths.tolist(), strict=True)):
        for label, strength in zip(labels, row, strict=True):
            if label >= 0:
                dense[cluster, label] = strength
    expected = np.where(np.isneginf(dense).all(axis=0), -1, dense.argmax(axis=0))
    assert index.parents(strengths).tolist() == expected.tolist()


def test_as_many_clusters_as_asked_for_are_explored_by_their_chances():
    labels = np.arange(40).reshape(20, 2)
    index = index_of(labels, np.zeros(labels.shape), n_labels=40)
    index.clusters.bias.data[7] = 50.0  # certain
    x, positives = torch.zeros(30, 4), gathered([list(range(0, 40, 4))] * 30)
    everything, _ = search(index, x, 3, 40, positives)
    most = (5, torch.Generator().manual_seed(0))
    some, _ = search(index, x, 3, 40, positives, most)
    for row in range(30):
        assert len(set(everything.cluster[everything.owner == row].tolist())) >= 10
        explored = set(some.cluster[some.owner == row].tolist())
        assert len(explored) == 5
        assert 7 in explored


# gradients


def test_a_gradient_reaches_an_edge_only_while_it_is_not_certain():
    """Edge scale 4: with shares .9 and .1 the first is certain, the second is 0.4."""
    index = index_of([[0, 1]], [[np.log(9), 0]], n_labels=2, dim=1)
    index.clusters.weight.data.zero_()
    for label, moves in ((0, False), (1, True)):
        index.edges.grad = None
        paths, reach = search(index, torch.ones(1, 1), beam=1, size=2)
        reach[paths.label == label].sum().backward()
        assert bool(index.edges.grad.abs().sum() > 0) is moves


def test_a_gradient_reaches_a_cluster_only_while_it_is_not_certain():
    index = index_of([[0], [1]], [[0], [0]], n_labels=2, dim=1)
    index.clusters.weight.data[:] = torch.tensor([[np.log(9)], [0]])
    index.clusters.bias.data.zero_()
    for label, moves in ((0, False), (1, True)):
        index.clusters.weight.grad = None
        paths, reach = search(index, torch.ones(1, 1), beam=2, size=2)
        reach[paths.label == label].sum().backward()
        assert bool(index.clusters.weight.grad.abs().sum() > 0) is moves


def test_losses_are_those_of_the_product():
    logits, reach = torch.randn(50, dtype=torch.float64), -2 * torch.rand(50, dtype=torch.float64)
    target = torch.arange(50) % 2 == 0
    expected = F.binary_cross_entropy(logits.sigmoid() * reach.exp(), target.double(), reduction="none")
    assert torch.allclose(path_losses(logits, reach, target), expected)


def test_losses_and_gradients_stay_finite():
    values = torch.tensor([-80.0, -1.0, 0.0, 1.0, 80.0])
    logits = values.repeat_interleave(3).requires_grad_()
    reach = torch.tensor([-200.0, -1e-9, 0.0]).repeat(5).requires_grad_()
    for target in (torch.ones(15, dtype=torch.bool), torch.zeros(15, dtype=torch.bool)):
        losses = path_losses(logits, reach, target)
        gradients = torch.autograd.grad(losses.sum(), (logits, reach))
        assert all(torch.isfinite(part).all() for part in (losses, *gradients))


# the partition, and what is served


def test_fixed_edges_are_a_partition():
    """The same labels as a cluster beam over the same clusters, each as likely as its cluster."""
    cluster_of_label = np.array([0, 1, 2, 3, 0, 1, 2, 3, 3])
    index = index_of(padded_rows(membership(cluster_of_label, 4)), None, n_labels=9)
    weight, bias = (values.detach().numpy() for values in index.clusters.parameters())
    order = np.argsort(cluster_of_label, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(cluster_of_label))])
    beam = ClusterBeam("v", weight, bias, order, offsets, 2)
    x = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    paths, reach = search(index, x, beam=2, size=9)
    ids, logits = beam.find({"v": x.numpy()})
    share = np.exp(logits) / np.exp(x.numpy() @ weight.T + bias).sum(axis=1, keepdims=True)
    for row in range(len(x)):
        own, there = paths.owner == row, ids[row] >= 0
        expected = dict(zip(ids[row][there].tolist(), np.minimum(1, 3.0 * share[row][there]).tolist(), strict=True))
        assert dict(zip(paths.label[own].tolist(), reach[own].exp().tolist(), strict=True)) == pytest.approx(expected)


@pytest.mark.parametrize("fixed", [False, True])
def test_what_is_served_ranks_as_the_network(fixed):
    texts = [f"word{i % 7} word{i % 5} word{i}" for i in range(40)]
    vectoriser = vectoriser_for(texts, Words(), None)
    features = vectoriser.transform(texts)
    encoder = BagEncoder(vectoriser.n_features, 4, 0.3, torch.Generator().manual_seed(0), sparse=True)
    index = random_index(1)
    if fixed:
        index.edges = None
    classifier = PairClassifier(15, 4, -1.5, sparse=True)
    torch.nn.init.normal_(classifier.weight)
    torch.nn.init.normal_(classifier.bias)
    network = IndexedNetwork(encoder, index, classifier).eval()
    rows = SparseRows.of(features, torch.device("cpu")).take(torch.arange(40))
    ids, scores = network.best(rows, 40, 8, 3, 10)
    served = Servable(
        vectoriser, {"v": encoder.served()}, index.served("v", 3, 10), [classifier.served("v")], Product()
    )
    expect_fits(served)
    found = served.predict(texts, 8)
    assert (found.ids == ids.numpy()).mean() > 0.95  # fixed edges have ties
    np.testing.assert_allclose(found.scores, scores.exp().numpy(), rtol=1e-4)
    assert np.isneginf(found.scores[found.ids < 0]).all()


def test_classifiers_apart_from_the_paths_rank_what_these_find():
    network_of = BagEncoder(20, 4, 0.0, torch.Generator().manual_seed(0), sparse=True)
    index, rows = random_index(1), row_classifier(15, 4, 0.1, "sgd", "bce_sum", torch.device("cpu"))
    torch.nn.init.normal_(rows.weight[:, :5], generator=torch.Generator().manual_seed(2))
    network = IndexedNetwork(network_of, index, rows).eval()
    features = SparseRows.of(
        sp.random(30, 20, 0.3, format="csr", random_state=0, dtype=np.float32), torch.device("cpu")
    )
    batch = features.take(torch.arange(30))
    x = network_of(batch).detach()
    found = {(o, c) for o, c in zip(*(each.tolist() for each in search(index, x, beam=3, size=10)[0][:2]), strict=True)}
    logits = (x @ rows.weight[:, :4].T + rows.weight[:, 4] + rows.prior).numpy()
    ids, scores = network.best(batch, 30, 8, 3, 10)
    for row in range(30):
        expected = sorted((c for o, c in found if o == row), key=lambda label: -logits[row, label])[:8]
        assert ids[row].tolist() == expected + [-1] * (8 - len(expected))
        chances = 1 / (1 + np.exp(-logits[row, expected]))
        np.testing.assert_allclose(scores[row, : len(expected)].exp(), chances, rtol=1e-4)


def test_wanted_labels_are_reached_by_the_best_of_all_paths():
    index, x = random_index(3), torch.randn(4, 4, generator=torch.Generator().manual_seed(1))
    index.labels[index.labels == 7] = -1  # no path leads there
    index = index_of(index.labels.numpy(), index.edges.detach(), 15, seed=3)
    rows = [[0, 7], [1, 2, 3], [], [14]]
    reached = index.reached(x, gathered(rows))
    scores = [plain_scores(index, each, list(range(6))) for each in x.double().numpy()]
    expected = [scores[row][label] for row, labels in enumerate(rows) for label in labels if label != 7]
    np.testing.assert_allclose(reached.exp().detach(), expected, rtol=1e-5)


def test_only_the_best_path_to_a_wanted_label_learns_and_only_while_it_is_not_certain():
    """Label 0 is reached best through cluster 0, whose chance is 3 · ¼; label 1 by cluster 1, which is certain."""
    index = index_of([[0, 2], [0, 1]], [[0.0, 0.0], [-9.0, 3.0]], n_labels=3, dim=1)
    index.clusters.weight.data[:] = torch.tensor([[0.0], [np.log(3)]])
    index.clusters.bias.data.zero_()
    index.reached(torch.ones(1, 1), gathered([[0, 1]])).sum().backward()
    weight, edges = index.clusters.weight.grad, index.edges.grad
    assert weight[0] > 0  # cluster 0 is pulled up, 1 only pushed down by the softmax
    assert torch.allclose(weight.sum(), torch.tensor(0.0), atol=1e-6)
    assert (edges == 0).all()  # the best edges of both are certain


# where edges come from


def test_edges_are_the_labels_matched_most():
    random = np.random.default_rng(0)
    relevance = sp.random(200, 30, 0.1, format="csr", random_state=1, dtype=np.float32)
    relevance.data[:] = 1
    dense = np.where(random.random((200, 6)) < 0.4, random.random((200, 6)), 0).astype(np.float32)
    labels, matches = edges_from_matches(relevance, sp.csr_matrix(dense), 8)
    counts = dense.T @ relevance.toarray()  # (C, L)
    assert labels.shape == matches.shape == (6, 8)
    for cluster, (row, own) in enumerate(zip(labels, matches, strict=True)):
        np.testing.assert_allclose(own, counts[cluster][row], rtol=1e-6)
        strongest = counts.argmax(axis=0) == cluster
        order = sorted(range(30), key=lambda label: (not strongest[label], -counts[cluster][label]))
        assert set(row.tolist()) == set(order[:8])


def test_a_weak_match_is_kept_beside_a_label_of_many_documents():
    relevance = np.zeros((4001, 2))
    relevance[:4000, 0] = relevance[4000, 1] = 1
    matches = np.zeros((4001, 1))
    matches[:4000], matches[4000] = 1, 1e-4
    labels, found = edges_from_matches(sp.csr_matrix(relevance), sp.csr_matrix(matches), 2)
    assert labels.tolist() == [[0, 1]]
    np.testing.assert_allclose(found, [[4000, 1e-4]], rtol=1e-6)


def test_a_cluster_without_matches_has_no_edges():
    labels, matches = edges_from_matches(sp.csr_matrix(np.eye(3)), sp.csr_matrix(np.eye(3)[:, :2]), 2)
    assert labels.tolist() == [[0, -1], [1, -1]]
    assert matches.tolist() == [[1, 0], [1, 0]]


def test_random_edges_are_even():
    labels = random_edges((16, 8), 30, 0)
    there = labels[labels >= 0]
    counts = np.bincount(there, minlength=30)
    assert counts.min() >= 3
    assert counts.max() <= 5
    assert all(len(set(row[row >= 0])) == (row >= 0).sum() for row in labels)
    assert (labels != random_edges((16, 8), 30, 1)).any()
