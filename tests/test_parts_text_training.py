"""Training against all, sampled and shortlisted outputs; the shortlister's recall and beam; clusters on the device."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch.nn import functional as F

from xclearn.errors import ConfigError
from xclearn.parts import label_clusters
from xclearn.parts.label_clusters import cluster_relevance, cluster_rows, cluster_texts, membership, padded_rows
from xclearn.parts.rows import SparseRows
from xclearn.parts.text_network import OutputTexts, TextNetwork
from xclearn.parts.text_training import Shortlister, TextTask, make_clusters

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
    network = TextNetwork(table, texts, dropout=0.0, spectral=False, use_text=True, refinement=None, sparse=False)
    documents, positives = SparseRows.of(DOCUMENTS, CPU), SparseRows.of(RELEVANCE, CPU)
    return TextTask(network.eval(), documents, positives, PRIOR, torch.float32)


def logits(task: TextTask) -> torch.Tensor:
    weight, bias = task.network.classifiers()
    return task.network.encode(task.documents.take(torch.arange(N))) @ weight.T + bias + PRIOR


def test_against_all_is_the_cross_entropy_with_every_label(task):
    expected = F.binary_cross_entropy_with_logits(logits(task), torch.tensor(RELEVANCE.toarray()), reduction="sum") / N
    assert task.against_all(torch.arange(N), 0).item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_sample_that_happens_to_hold_every_label_gives_the_same_as_all(task):
    sampled = task.against_sample(torch.arange(N), 10_000, torch.Generator().manual_seed(0))
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


def test_the_beam_is_the_smallest_that_reaches_the_recall(task):
    cluster_of_label = np.arange(LABELS) % 8
    clusters = make_clusters(cluster_of_label, RELEVANCE, LABEL_TEXTS, CPU)
    network = TextNetwork(
        task.network.table.detach(), clusters.texts, dropout=0.0, spectral=False, use_text=True, refinement=None,
        sparse=False,
    ).eval()  # fmt: skip
    finder = TextTask(network, task.documents, clusters.positives, PRIOR, torch.float32)
    order = finder.best(finder.documents, torch.arange(N), 8)[0].numpy()
    wanted = [(row, cluster_of_label[label]) for row, label in np.argwhere(RELEVANCE.toarray())]
    wanted = set(wanted)
    recall = [sum(cluster in order[row, :beam] for row, cluster in wanted) / len(wanted) for beam in range(1, 9)]
    smallest = next(beam for beam, reached in enumerate(recall, 1) if reached >= 0.7)
    found = Shortlister(finder, clusters, None, 0.7)
    assert (found.beam, found.recall) == (smallest, pytest.approx(recall[smallest - 1]))
    fixed = Shortlister(finder, clusters, 3, 0.7)
    assert (fixed.beam, fixed.recall) == (3, pytest.approx(recall[2]))
    listed = fixed.labels_of(torch.tensor([5]))
    expected = {label for label in range(LABELS) if cluster_of_label[label] in order[5, :3]}
    assert {label for label in listed.flatten().tolist() if label >= 0} == expected


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
    with pytest.raises(ConfigError, match=r"n_clusters: no such number of clusters; got \d+; allowed: a power of two"):
        cluster_rows(torch.randn(64, 4), n_clusters, seed=0)
