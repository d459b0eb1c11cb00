"""What each surrogate task asks of a document, against a hand-made set."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from xclearn.algorithms.astec.surrogates import (
    bags_of,
    low_rank_targets,
    surrogate_targets,
    target_rows,
    usual_outputs,
)
from xclearn.errors import ConfigError
from xclearn.parts.frozen import latent_tokens, skip_gram_tokens

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def topics() -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Two topics with words of their own; labels 0 to 3 are of the first, 4 to 7 of the second."""
    rng = np.random.default_rng(0)
    label = np.arange(80) % 8
    words = np.zeros((80, 20), np.float32)
    for i, topic in enumerate(label // 4):
        words[i, 10 * topic + rng.integers(10, size=4)] = 1
    relevance = sp.csr_matrix((np.ones(80, np.float32), (np.arange(80), label)), shape=(80, 8))
    return relevance, sp.csr_matrix(words)


def outputs(kind: str, n: int, topics, seed: int = 0) -> np.ndarray:
    arrays = surrogate_targets(kind, n, *topics, seed, CPU)
    rows = target_rows(arrays, n, CPU)
    return sp.csr_matrix((rows.values, rows.columns, rows.indptr), shape=(len(rows), n)).toarray()


@pytest.mark.parametrize("kind", ["clusters", "correlated_clusters"])
def test_clusters_are_the_topics(kind, topics):
    found, label = outputs(kind, 2, topics), np.arange(80) % 8
    assert (found.sum(axis=1) == 1).all()
    assert len({(int(row.argmax()), topic) for row, topic in zip(found, label // 4, strict=True)}) == 2


def test_correlated_labels_are_put_together_though_their_words_differ():
    """Labels 0 and 1 share every document with 2 and 3, which have other words in documents of their own."""
    pairs = [(0, 2), (1, 3)] * 20
    words = np.eye(4, dtype=np.float32)[[0, 1] * 20]
    extra = np.eye(4, dtype=np.float32)[[2, 3] * 10]
    relevance = np.zeros((60, 4), np.float32)
    for i, pair in enumerate(pairs):
        relevance[i, list(pair)] = 1
    relevance[40:] = np.eye(4)[[3, 2] * 10]
    groups = surrogate_targets("correlated_clusters", 2, sp.csr_matrix(relevance), np.vstack([words, extra]), 0, CPU)
    first, second = (set(groups["indices"][groups["indptr"][i] : groups["indptr"][i + 1]].tolist()) for i in (0, 1))
    assert len(first) == len(second) == 1
    assert first != second


def test_selection_keeps_the_most_frequent_labels():
    relevance = sp.csr_matrix(np.array([[1, 0, 1], [1, 0, 0], [0, 1, 1], [0, 0, 1]], np.float32))
    arrays = surrogate_targets("selection", 2, relevance, relevance, 0, CPU)
    assert arrays["indices"].tolist() == [0, 1, 0, 1, 1]
    assert arrays["indptr"].tolist() == [0, 2, 3, 4, 5]


def test_buckets_join_labels_at_random_by_the_seed(topics):
    one, same, other = (outputs("hashing", 4, topics, seed) for seed in (1, 1, 2))
    assert (one == same).all()
    assert (one != other).any()
    label = np.arange(80) % 8
    assert all(len({row.tobytes() for row in one[label == each]}) == 1 for each in range(8))


def test_a_projection_keeps_what_labels_share(topics):
    targets = low_rank_targets(topics[0], 8, seed=0)
    assert targets.shape == (80, 8)
    distance = np.linalg.norm(targets[:, None] - targets[None], axis=2)
    same = (np.arange(80) % 8)[:, None] == (np.arange(80) % 8)[None]
    assert distance[same].max() < 1e-3 < distance[~same].min()


def test_word_vectors_bring_words_of_a_topic_together(topics):
    vectors = np.maximum(topics[1] @ latent_tokens(topics[1], 4, seed=0), 0)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosine, topic = unit @ unit.T, np.arange(80) % 8 // 4
    same = topic[:, None] == topic[None]
    print(f"within {cosine[same].mean():.3f}, across {cosine[~same].mean():.3f}")
    assert cosine[same].mean() > cosine[~same].mean() + 0.3


def test_skip_gram_tells_a_token_by_the_company_it_keeps():
    """Two words that never meet but share their neighbours are alike; words of another topic are not."""
    rng = np.random.default_rng(0)
    rows = np.zeros((400, 22), dtype=np.float32)
    for row in rows:
        topic = rng.integers(2)
        row[2 + 10 * topic + rng.permutation(10)[:4]] = 1
        row[rng.integers(2)] = topic == 0  # words 0 and 1 come with topic 0, one or the other
    table = skip_gram_tokens(sp.csr_matrix(rows), 8, seed=0)
    np.testing.assert_allclose(table[:, 4:], -table[:, :4])
    cosine = table[:, :4] @ table[:, :4].T
    print(f"the two {cosine[0, 1]:.2f}, their topic {cosine[0, 2:12].mean():.2f}, other {cosine[0, 12:].mean():.2f}")
    assert (rows[:, 0] * rows[:, 1]).sum() == 0
    assert cosine[0, 1] > 0.9
    assert cosine[0, 2:12].mean() > cosine[0, 12:].mean() + 0.5


def test_dense_features_have_no_skip_gram():
    with pytest.raises(ConfigError, match="dense features have no tokens"):
        skip_gram_tokens(np.eye(3, dtype=np.float32), 2, seed=0)


def test_a_wide_table_from_few_words_ends_in_zeros():
    table = latent_tokens(np.eye(3, dtype=np.float32), 10, seed=0)
    assert table.shape == (3, 10)
    assert np.abs(table[:, 6:]).max() == 0


@pytest.mark.parametrize(
    ("kind", "n_labels", "n"),
    [
        ("clusters", 1, 1),
        ("clusters", 3956, 1024),
        ("hashing", 10**6, 65_536),
        ("selection", 3956, 792),
        ("projection", 100, 100),
        ("projection", 3956, 256),
    ],
)
def test_usual_outputs_are_fewer_than_labels_and_a_power_of_two_for_clusters(kind, n_labels, n):
    assert usual_outputs(kind, n_labels) == n


def test_token_sequences_become_counts():
    counts = bags_of(np.array([[2, 0, 2], [1, -1, -1]], np.int32), 4)
    assert counts.toarray().tolist() == [[1, 0, 2, 0], [0, 1, 0, 0]]


@pytest.mark.parametrize(("kind", "n"), [("clusters", 16), ("clusters", 3), ("selection", 9)])
def test_more_outputs_than_labels_are_refused_by_the_name_of_the_setting(kind, n, topics):
    with pytest.raises(ConfigError, match=rf"n_clusters: .*got {n}; allowed: .*the 8 labels"):
        surrogate_targets(kind, n, *topics, 0, CPU)
