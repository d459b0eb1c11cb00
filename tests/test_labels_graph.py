"""Label graphs: by hand, by brute force, and what bad input gets."""

import numpy as np
import pytest
import scipy.sparse as sp

from xclearn import config
from xclearn.errors import ConfigError, DataError, PlanError
from xclearn.labels import graph as graphs
from xclearn.labels.graph import Cooccurrence, EdgeList, LabelGraph, PageRank, RandomWalk

NAMES = ["ant", "bee", "cat", "dog"]
SMALL = sp.csr_matrix(np.array([[1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 1, 0]], dtype=np.float32))


def random_relevance(seed=0, n=200, n_labels=40, density=0.05):
    return sp.csr_matrix((sp.random(n, n_labels, density, rng=np.random.default_rng(seed)) > 0).astype(np.float32))


def test_cooccurrence_by_hand():
    found = graphs.cooccurrence_graph(SMALL, top=5).toarray()
    assert found.tolist() == [[3, 2, 2, 0], [2, 2, 1, 0], [2, 1, 2, 0], [0, 0, 0, 1]]
    assert graphs.cooccurrence_graph(SMALL, top=1).toarray()[0].tolist() == [3, 2, 0, 0]  # a tie: the smaller id


def test_cooccurrence_in_blocks_is_the_whole_product(monkeypatch):
    monkeypatch.setattr(graphs, "_LABELS_AT_ONCE", 7)
    relevance = random_relevance()
    expected = (relevance.T @ relevance).toarray()
    np.fill_diagonal(expected, np.maximum(1, expected.diagonal()))
    np.testing.assert_array_equal(graphs.cooccurrence_graph(relevance, top=40).toarray(), expected)


def test_head_labels_are_bound_to_themselves_alone():
    """Label 0 has three documents."""
    for graph in (
        graphs.cooccurrence_graph(SMALL, top=5, head=2),
        graphs.random_walk_graph(SMALL, steps=300, restart=0.5, top=5, seed=0, head=2),
        graphs.pagerank_graph(SMALL, restart=0.3, top=5, head=2),
    ):
        found = graph.toarray()
        assert np.flatnonzero(found[0]).tolist() == np.flatnonzero(found[:, 0]).tolist() == [0]
        assert found[1, 2] > 0


def test_pagerank_is_the_sum_over_the_powers_of_the_chain():
    relevance, restart = random_relevance(), 0.4
    by_label = relevance.T.toarray()
    counts = np.maximum(by_label.sum(axis=1, keepdims=True), 1)
    degrees = np.maximum(relevance.sum(axis=1), 1)
    chain = (by_label / counts) @ (relevance.toarray() / np.asarray(degrees))
    expected = sum(restart * (1 - restart) ** hop * np.linalg.matrix_power(chain, hop + 1) for hop in range(80))
    found = graphs.pagerank_graph(relevance, restart=restart, top=40).toarray()
    connected = by_label.sum(axis=1) > 0
    np.testing.assert_allclose(found[connected], expected[connected], atol=2e-3)


def test_visits_of_a_long_walk_tend_to_the_pagerank():
    relevance = random_relevance(n_labels=10, density=0.2)
    walks = graphs.random_walk_graph(relevance, steps=40_000, restart=0.3, top=10, seed=0).toarray() / 40_000
    ranks = graphs.pagerank_graph(relevance, restart=0.3, top=10).toarray()
    print(f"largest difference {np.abs(walks - ranks).max():.4f}")
    np.testing.assert_allclose(walks, ranks, atol=0.02)


def test_two_sided_normalisation_by_hand():
    found = graphs.two_sided(sp.csr_matrix(np.array([[2.0, 2], [0, 1]], dtype=np.float32))).toarray()
    np.testing.assert_allclose(found, [[2 / np.sqrt(4 * 2), 2 / np.sqrt(4 * 3)], [0, 1 / np.sqrt(1 * 3)]], rtol=1e-6)


def test_perron_normalisation_is_symmetric_and_on_an_undirected_graph_the_usual_one():
    directed = graphs.random_walk_graph(random_relevance(), steps=100, restart=0.3, top=5, seed=0)
    found = graphs.perron(directed).toarray()
    np.testing.assert_allclose(found, found.T, atol=1e-6)
    weights = np.array([[2.0, 1, 0], [1, 1, 3], [0, 3, 2]])
    expected = weights / np.sqrt(np.outer(weights.sum(1), weights.sum(1)))  # its Perron vector is its degrees
    np.testing.assert_allclose(graphs.perron(sp.csr_matrix(weights)).toarray(), expected, atol=0.03)


def test_rows_of_shares_sum_to_one():
    found = graphs.row_shares(graphs.cooccurrence_graph(random_relevance(), top=5))
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-6)


def test_strongest_edges_keep_the_label_itself_and_break_ties_by_id():
    weights = np.array([[0.1, 5, 7, 5], [0, 1, 0, 0], [9, 8, 7, 6], [1, 1, 1, 1]], dtype=np.float32)
    found = graphs.strongest_edges(sp.csr_matrix(weights), 2).toarray()
    np.testing.assert_array_equal(found, np.float32([[0.1, 5, 7, 0], [0, 1, 0, 0], [9, 8, 7, 0], [1, 1, 0, 1]]))


def test_edges_between_unlike_vectors_are_pruned():
    weights = sp.csr_matrix(np.ones((3, 3), dtype=np.float32))
    vectors = np.array([[1.0, 0], [2, 0.1], [-1, 0]])
    assert graphs.prune_by_vectors(weights, vectors, 0.0).toarray().tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]


def test_the_graph_of_clusters_sums_the_weights_between_their_labels():
    members = sp.csr_matrix(np.array([[1, 1, 0, 0], [0, 0, 1, 1]], dtype=np.float32))
    graph = sp.csr_matrix(np.array([[1, 2, 3, 0], [0, 1, 0, 4], [5, 0, 1, 0], [0, 0, 0, 1]], dtype=np.float32))
    assert graphs.cluster_graph(graph, members, 5).toarray().tolist() == [[4, 7], [5, 2]]


def test_the_papers_cluster_graph_is_the_mean_weight_between_labels_of_two_clusters():
    """MᵀGM with columns of M that sum to one, by hand: cluster 0 has two labels, cluster 1 three."""
    members = sp.csr_matrix(np.array([[1, 1, 0, 0, 0], [0, 0, 1, 1, 1]], dtype=np.float32))
    graph = sp.csr_matrix(np.arange(25, dtype=np.float32).reshape(5, 5) / 10)
    expected = [[0.3, 0.55], [1.55, 1.8]]
    np.testing.assert_allclose(graphs.mean_cluster_graph(graph, members).toarray(), expected, rtol=1e-5)


def test_neighbours_come_strongest_first_without_the_label():
    graph = sp.csr_matrix(np.array([[9.0, 2, 5, 2], *np.eye(4)[1:].tolist()]))
    ids, weights = graphs.neighbours(graph, 0)
    assert (ids.tolist(), weights.tolist()) == ([2, 1, 3], [5, 2, 2])
    assert [part.tolist() for part in graphs.neighbours(graph, 1)] == [[], []]  # a label without neighbours


def test_the_description_counts_by_hand():
    graph = sp.csr_matrix(np.array([[1, 1, 0], [1, 1, 1], [0, 0, 1]], dtype=np.float32))
    expected = {"labels": 3, "edges": 3, "edges_per_label": 1.0, "labels_without_neighbour": 1}
    assert graphs.describe(graph) == expected | {"pairs_bound_both_ways": 1}


# What a user brings


def test_edges_are_read_by_name_summed_and_written_again(tmp_path):
    path = tmp_path / "edges.tsv"
    path.write_text("ant\tbee\t0.5\nant\tbee\t1.5\nbee\tbee\t3\n", encoding="utf-8")
    found = graphs.read_edges(path, NAMES)
    assert found.toarray().tolist() == [[1, 2, 0, 0], [0, 3, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    names = ["a,b", 'say "c"', "d\te", "ü"]
    graphs.write_edges(tmp_path / "written.csv", found, names)
    assert (graphs.read_edges(tmp_path / "written.csv", names) != found).nnz == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ant\tbee\t-1\n", r"the weight from 'ant' to 'bee' is invalid; got -1.0; allowed: ≥ 0"),
        ("ant\tbee\tnan\n", "is invalid; got nan"),
        ("ant\tbee\tinf\n", "is invalid; got inf"),
        ("ant\tbee\tmuch\n", r"edges.tsv:1: the weight is not a number; got 'much'"),
        ("ant\tbee\t1\nant\tbee\n", r"edges.tsv:2: a line must be label, label, weight"),
        ("ant\tbee\t1\nant\rbee\t1\n", r"edges.tsv:2: not readable as a table"),
        ("ant\teel\t1\nfox\tbee\t1\neel\tant\t1\n", r"2 names are not labels, such as 'eel', 'fox'.* Leave them out"),
    ],
)
def test_bad_edges_are_named(tmp_path, text, message):
    (tmp_path / "edges.tsv").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        graphs.read_edges(tmp_path / "edges.tsv", NAMES)


def test_a_missing_file_is_named():
    with pytest.raises(DataError, match="no such file"):
        graphs.read_edges("nowhere.tsv", NAMES)


def test_a_graph_too_dense_for_memory_is_refused_with_what_would_fit():
    room = 24 * 40 * 5
    with pytest.raises(PlanError, match=r"10 edges for each of 40 labels'\. Set edges = 4, or reduce"):
        graphs.random_walk_graph(random_relevance(), steps=50, restart=0.5, top=10, seed=0, memory=room)
    graphs.random_walk_graph(random_relevance(), steps=50, restart=0.5, top=4, seed=0, memory=room)
    with pytest.raises(PlanError, match="Set edges = 1, or reduce"):
        graphs.edges_graph([(one, other, 1.0) for one in NAMES for other in NAMES], NAMES, memory=24 * 4 * 2)
    with pytest.raises(PlanError, match="more memory"):
        graphs.cooccurrence_graph(SMALL, top=1, memory=1)


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"restart": 1.5}, {"top": 0}])
def test_a_walk_that_cannot_be_is_refused(wrong):
    with pytest.raises(ConfigError, match="random walk settings are out of range"):
        graphs.random_walk_graph(SMALL, **{"steps": 5, "restart": 0.5, "top": 2, "seed": 0} | wrong)


# Settings


@pytest.mark.parametrize(
    "source", [RandomWalk(), Cooccurrence(), PageRank(), EdgeList()], ids=lambda s: type(s).__name__
)
@pytest.mark.parametrize("normalisation", ["two_sided", "perron", "rows"])
def test_every_source_and_normalisation_can_be_named_and_gives_a_graph_with_loops(source, normalisation, tmp_path):
    values = {"source": {"kind": config.kind_of(type(source))}, "edges": 2, "normalisation": normalisation}
    if isinstance(source, EdgeList):
        (tmp_path / "edges.tsv").write_text("bee\tcat\t2\nbee\tant\t9\n")
        values["source"]["path"] = str(tmp_path / "edges.tsv")
    chosen = config.build(LabelGraph, values | {"head": 2})
    graph = chosen.normalise(chosen.build(SMALL, NAMES, 0))
    assert (graph.diagonal() > 0).all()
    assert graph.dtype == np.float32
    assert graph[1, 2] > 0
    assert graph[1, 0] == 0  # of the head
