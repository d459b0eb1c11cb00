"""Random walks: the kernel and its NumPy oracle against a plain loop, and counts against their limits."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles import walks as oracle

from xclearn.kernels.walks import random_walks

FORMS = [oracle.random_walks, random_walks]
MASK = (1 << 64) - 1


def relevance_of(seed=0, n=60, n_labels=25, density=0.06):
    matrix = sp.csr_matrix((sp.random(n, n_labels, density, rng=np.random.default_rng(seed)) > 0).astype(np.float32))
    matrix.sort_indices()
    return matrix


def splitmix64(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def plain_walk(relevance, label, steps, restart, seed):
    """The definition, in Python's own integers."""
    random, at, counts = splitmix64(splitmix64(seed) ^ label), label, np.zeros(relevance.shape[1])
    for step in range(steps):
        draws = [splitmix64((random + 3 * step + i) & MASK) for i in range(3)]
        at = label if (draws[0] >> 11) * 2.0**-53 < restart else at
        documents = relevance[:, [at]].nonzero()[0]
        labels = relevance[[documents[(draws[1] >> 32) * len(documents) >> 32]]].nonzero()[1]
        at = labels[(draws[2] >> 32) * len(labels) >> 32]
        counts[at] += 1
    return counts


@pytest.mark.parametrize("walk", FORMS)
def test_a_walk_is_the_plain_loop(walk):
    relevance = relevance_of()
    found = walk(relevance, 40, 0.3, 25, 7).toarray()
    for label in np.flatnonzero(np.diff(sp.csc_matrix(relevance).indptr))[:6]:
        expected = plain_walk(relevance, int(label), 40, 0.3, 7)
        expected[label] = max(1, expected[label])
        np.testing.assert_array_equal(found[label], expected)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**63), st.floats(0, 1), st.integers(1, 30), st.integers(1, 6), st.integers(1, 4))
def test_the_backends_and_any_number_of_threads_agree(seed, restart, steps, top, n_threads):
    relevance = relevance_of(seed % 97)
    native = random_walks(relevance, steps, restart, top, seed, n_threads)
    other = oracle.random_walks(relevance, steps, restart, top, seed)
    for part in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(native, part), getattr(other, part))


def test_many_labels_are_the_same_on_one_and_on_three_threads():
    """More labels than one task takes."""
    relevance = relevance_of(n=3000, n_labels=1500, density=0.002)
    one, three = (random_walks(relevance, 50, 0.5, 10, 3, n_threads) for n_threads in (1, 3))
    assert (one != three).nnz == 0
    assert one.nnz > 1500


@pytest.mark.parametrize("walk", FORMS)
def test_only_the_most_visited_are_kept_and_always_the_label_itself(walk):
    relevance = relevance_of()
    everything, best = (walk(relevance, 200, 0.1, top, 0).toarray() for top in (25, 3))
    for label in range(25):
        others = np.delete(np.arange(25), label)
        expected = sorted(others[everything[label, others] > 0], key=lambda m: (-everything[label, m], m))[:3]
        assert sorted([*expected, label]) == np.flatnonzero(best[label]).tolist()
        assert best[label, label] >= 1


@pytest.mark.parametrize("walk", FORMS)
def test_a_label_without_documents_has_only_itself(walk):
    relevance = sp.csr_matrix(np.array([[1, 1, 0], [1, 0, 0]], dtype=np.float32))
    found = walk(relevance, 100, 0.5, 5, 0).toarray()
    assert found[2].tolist() == [0, 0, 1]
    assert found[:2, :2].sum(axis=1).tolist() == [100, 100]
    assert walk(sp.csr_matrix((4, 0), dtype=np.float32), 5, 0.5, 2, 0).shape == (0, 0)


def test_counts_tend_to_the_chances_of_the_chain():
    """Restart 1: every step is from the label to a document of its to a label of that."""
    relevance = sp.csr_matrix(np.array([[1, 1, 0], [1, 0, 1], [1, 1, 1]], dtype=np.float32))
    expected = np.array([[1 / 2 + 1 / 2 + 1 / 3, 1 / 2 + 1 / 3, 1 / 2 + 1 / 3]]) / 3  # from label 0, by hand
    found = random_walks(relevance, 20_000, 1.0, 3, 1).toarray()[0] / 20_000
    print(f"found {found.round(3)}, expected {expected[0].round(3)}")
    np.testing.assert_allclose(found, expected[0], atol=0.015)
