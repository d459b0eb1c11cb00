"""The native search of paths against a plain one; test_algorithms_elias_learned_edges.py compares it with torch."""

import numpy as np
import pytest

from xclearn.kernels.paths import Clusters, best_paths


def plain(query: Clusters, labels: np.ndarray, strengths: np.ndarray, k: int) -> list[tuple[int, int, int, int, bool]]:
    found = []
    for document in range(len(query.starts) - 1):
        wanted = set(query.wanted[query.wanted_starts[document] : query.wanted_starts[document + 1]].tolist())
        best: dict[int, tuple[float, int, int]] = {}
        for place in range(query.starts[document], query.starts[document + 1]):
            cluster = int(query.clusters[place])
            for slot, label in enumerate(labels[cluster].tolist()):
                score = query.scores[place] + strengths[cluster, slot]
                if label >= 0 and (label not in best or score > best[label][0]):
                    best[label] = (score, cluster, slot)
        order = sorted(best, key=lambda label: (label not in wanted, -best[label][0], label))[:k]
        found += [(document, label, *best[label][1:], label in wanted) for label in sorted(order)]
    return found


@pytest.mark.parametrize("seed", range(20))
def test_paths_are_those_of_a_plain_search(seed):
    """Few distinct scores, so that there are ties between paths and between labels."""
    random = np.random.default_rng(seed)
    n, n_clusters, n_slots, n_labels = random.integers(1, [40, 8, 6, 20])
    labels = np.full((n_clusters, n_slots), -1, dtype=np.int32)
    for row in labels:
        own = random.permutation(n_labels)[:n_slots]
        row[: len(own)] = own
    labels[random.random(labels.shape) < 0.2] = -1
    strengths = -random.integers(0, 3, labels.shape).astype(np.float32)
    explored = [random.permutation(n_clusters)[: random.integers(0, n_clusters + 1)] for _ in range(n)]
    wanted = [random.permutation(n_labels)[: random.integers(0, n_labels + 1)] for _ in range(n)]
    clusters = np.concatenate(explored).astype(np.int32)
    query = Clusters(
        np.cumsum([0, *map(len, explored)]),
        clusters,
        -random.integers(0, 3, len(clusters)).astype(np.float32),
        np.cumsum([0, *map(len, wanted)]),
        np.concatenate(wanted).astype(np.int32),
    )
    k = int(random.integers(1, n_labels + 1))
    for n_threads in (1, 3):
        found = best_paths(query, labels, strengths, int(n_labels), k, n_threads)
        assert list(zip(*(part.tolist() for part in found), strict=True)) == plain(query, labels, strengths, k)


def test_a_score_that_is_not_a_number_breaks_nothing():
    query = Clusters(
        np.array([0, 2]),
        np.array([0, 1], dtype=np.int32),
        np.array([np.nan, -1], dtype=np.float32),
        np.zeros(2, dtype=np.int64),
        np.empty(0, dtype=np.int32),
    )
    labels = np.arange(200, dtype=np.int32).reshape(2, 100)
    found = best_paths(query, labels, np.zeros((2, 100), dtype=np.float32), 200, 100, 1)
    assert found[1].tolist() == list(range(100, 200))
