"""Balanced 2-means: the NumPy oracle against the recipe in floating point, the native kernel against the oracle."""

import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles import clustering as oracle

from xclearn import kernels
from xclearn.errors import ConfigError, DataError

MASK = (1 << 64) - 1


def random_csr(n, n_columns, entries_a_row, seed):
    rng = np.random.default_rng(seed)
    columns = rng.integers(0, n_columns, n * entries_a_row)
    rows = np.repeat(np.arange(n), entries_a_row)
    values = rng.random(len(rows), dtype=np.float32) + np.float32(0.1)
    return sp.csr_matrix((values, (rows, columns)), shape=(n, n_columns))


def arguments(matrix):
    return matrix.indptr.astype(np.int64), matrix.indices, matrix.data, matrix.shape[1]


def splitmix64(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def split_by_recipe(rows, random):
    """One balanced split of unit rows in float64, as the papers describe it: 1 for the second half."""
    n = len(rows)
    first, second = splitmix64(random) % n, splitmix64(random + 1) % (n - 1)
    centroids = rows[[first, second + (second >= first)]]
    objective = -np.inf
    for _ in range(20):
        similarity = rows @ centroids.T  # (n, 2)
        order = np.argsort(similarity[:, 1] - similarity[:, 0], kind="stable")
        halves = np.array_split(order, 2)
        centroids = np.stack([rows[half].mean(axis=0) for half in halves])
        centroids /= np.linalg.norm(centroids, axis=1, keepdims=True)
        risen = sum((rows[half] @ centroids[side]).sum() for side, half in enumerate(halves)) / n
        if risen - objective < 1e-4:
            break
        objective = risen
    return np.isin(np.arange(n), halves[1]).astype(np.int64)


def clusters_by_recipe(rows, n_clusters, seed):
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cluster_of_row = np.zeros(len(rows), dtype=np.int64)
    for level in range(n_clusters.bit_length() - 1):
        level_seed = splitmix64(splitmix64(seed) ^ level)
        deeper = 2 * cluster_of_row
        for cluster in range(1 << level):
            members = np.flatnonzero(cluster_of_row == cluster)
            if len(members) > 1:
                deeper[members] += split_by_recipe(rows[members], splitmix64(level_seed ^ cluster))
        cluster_of_row = deeper
    return cluster_of_row


@pytest.mark.parametrize("seed", range(5))
def test_reference_follows_the_recipe_on_dense_rows(seed):
    rows = np.random.default_rng(seed).standard_normal((203, 12)).astype(np.float32)
    found = oracle.balanced_clusters_dense(rows, 32, seed, 1)
    expected = clusters_by_recipe(rows.astype(np.float64), 32, seed)
    assert (found != expected).sum() == 0


@pytest.mark.parametrize("seed", range(5))
def test_reference_follows_the_recipe_on_sparse_rows(seed):
    matrix = random_csr(203, 60, 7, seed)
    found = oracle.balanced_clusters_csr(*arguments(matrix), 32, seed, 1)
    expected = clusters_by_recipe(matrix.toarray().astype(np.float64), 32, seed)
    assert (found != expected).sum() == 0


@pytest.mark.parametrize(
    ("n", "n_columns", "n_clusters"), [(3000, 500, 1024), (2111, 40, 8), (5, 3, 8), (1, 1, 4), (0, 5, 2)]
)
def test_native_equals_reference_on_sparse_rows(n, n_columns, n_clusters):
    matrix = random_csr(n, n_columns, 9, seed=n)
    native = kernels.balanced_clusters_csr(*arguments(matrix), n_clusters, 11, 2)
    expected = oracle.balanced_clusters_csr(*arguments(matrix), n_clusters, 11, 1)
    assert (native != expected).sum() == 0


@pytest.mark.parametrize(("n", "n_columns", "n_clusters"), [(1500, 33, 512), (64, 300, 64), (7, 2, 8)])
def test_native_equals_reference_on_dense_rows(n, n_columns, n_clusters):
    rows = np.random.default_rng(n).standard_normal((n, n_columns)).astype(np.float32)
    native = kernels.balanced_clusters_dense(rows, n_clusters, 11, 2)
    assert (native != oracle.balanced_clusters_dense(rows, n_clusters, 11, 1)).sum() == 0


@given(
    rows=st.lists(st.lists(st.integers(-2, 2), min_size=3, max_size=3), min_size=1, max_size=40),
    levels=st.integers(0, 5),
    seed=st.integers(0, MASK),
)
def test_native_equals_reference_on_duplicates_and_zero_rows(rows, levels, seed):
    """Small integers: equal rows, opposite rows and zero rows, that is ties and zero norms, are the rule."""
    dense = np.array(rows, dtype=np.float32)
    native = kernels.balanced_clusters_dense(dense, 1 << levels, seed, 2)
    assert (native != oracle.balanced_clusters_dense(dense, 1 << levels, seed, 1)).sum() == 0
    sparse = kernels.balanced_clusters_csr(*arguments(sp.csr_matrix(dense)), 1 << levels, seed, 2)
    assert (native != sparse).sum() == 0


@given(n=st.integers(0, 70), levels=st.integers(0, 6), seed=st.integers(0, MASK))
def test_every_split_is_balanced(n, levels, seed):
    rows = np.random.default_rng(n).standard_normal((n, 4)).astype(np.float32)
    clusters = kernels.balanced_clusters_dense(rows, 1 << levels, seed)
    assert clusters.dtype == np.int32
    for level in range(levels):
        size = np.bincount(clusters >> (levels - level - 1), minlength=2 << level)
        assert set(size[0::2] - size[1::2]) <= {0, 1}


@pytest.mark.parametrize("n_groups", [2, 4])
@pytest.mark.parametrize("seed", range(10))
def test_planted_groups_are_found(n_groups, seed):
    """Groups in a hierarchy, each a noisy direction beside its sibling's, in shuffled order."""
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.repeat(np.arange(n_groups), 25))
    rows = rng.normal(0, 0.05, (len(group), 8)).astype(np.float32)
    rows[np.arange(len(group)), group] += 0.5
    rows[np.arange(len(group)), 4 + group // 2] += 1
    clusters = kernels.balanced_clusters_dense(rows, n_groups, seed)
    assert len(set(zip(group, clusters, strict=True))) == n_groups


def test_threads_do_not_change_the_answer():
    matrix = random_csr(20_000, 300, 6, seed=1)
    answers = [kernels.balanced_clusters_csr(*arguments(matrix), 64, 5, threads) for threads in (1, 2, 3, 8)]
    assert [(answer != answers[0]).sum() for answer in answers] == [0, 0, 0, 0]


def test_scale_of_a_row_does_not_change_the_answer():
    rows = np.random.default_rng(3).standard_normal((200, 6)).astype(np.float32)
    scaled = rows * (2.0 ** np.arange(-100, 100))[:, None].astype(np.float32)
    np.testing.assert_array_equal(
        kernels.balanced_clusters_dense(rows, 16, 0), kernels.balanced_clusters_dense(scaled, 16, 0)
    )


def test_seed_decides():
    rows = np.random.default_rng(2).standard_normal((500, 10)).astype(np.float32)
    first, again, other = (kernels.balanced_clusters_dense(rows, 16, seed) for seed in (4, 4, 5))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_inputs_stay_as_they_were():
    matrix = random_csr(100, 20, 4, seed=0)
    before = matrix.copy()
    kernels.balanced_clusters_csr(*arguments(matrix), 8, 0)
    assert (matrix != before).nnz == 0


@pytest.mark.parametrize("n_clusters", [0, -2, 3, 100])
def test_n_clusters_is_a_power_of_two(n_clusters):
    with pytest.raises(ConfigError, match=f"power of two; got {n_clusters}"):
        kernels.balanced_clusters_dense(np.ones((200, 2), np.float32), n_clusters, 0)


@pytest.mark.parametrize("setting", [{"seed": -1}, {"seed": 1 << 64}, {"n_threads": 0}])
def test_setting_out_of_range_is_named(setting):
    with pytest.raises(ConfigError, match=next(iter(setting))):
        kernels.balanced_clusters_dense(np.ones((4, 2), np.float32), 2, **{"seed": 0, **setting})


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.ones((4, 2)), "rows has the wrong dimensions or type; got '2 of float64'"),
        (np.ones(4, np.float32), "rows has the wrong dimensions or type; got '1 of float32'"),
        (np.full((4, 2), np.nan, np.float32), "finite"),
    ],
)
def test_broken_rows_are_named(rows, message):
    with pytest.raises(DataError, match=message):
        kernels.balanced_clusters_dense(rows, 2, 0)


def test_column_beyond_the_matrix_is_named():
    matrix = random_csr(4, 10, 3, seed=0)
    with pytest.raises(DataError, match="column out of range"):
        kernels.balanced_clusters_csr(matrix.indptr, matrix.indices, matrix.data, 2, 2, 0)


def test_a_missing_extension_is_one_clear_error():
    program = "import sys; sys.modules['xclearn.kernels._native'] = None; from xclearn.cli.main import main; main()"
    arguments = [sys.executable, "-c", program, "inspect", "nowhere"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("Error: the native core xclearn.kernels._native cannot be imported; got ")
    assert "C++20 compiler" in done.stderr
    assert "Traceback" not in done.stderr
