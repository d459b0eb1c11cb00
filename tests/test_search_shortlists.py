"""Each source of shortlists against brute force or a planted answer, and how two are merged."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch.nn import functional as F

from xclearn.config import AUTO
from xclearn.parts.transfer import TransferBlock
from xclearn.search.shortlists import Centres, Shortlister, label_centres, merged

N_LABELS, PER_LABEL, DIM = 40, 6, 16


@pytest.fixture(scope="module")
def clouds() -> tuple[torch.Tensor, sp.csr_matrix]:
    """Documents of each label lie about a direction of its own; every third has the next label too."""
    rng = np.random.default_rng(4)
    own = np.abs(rng.normal(size=(N_LABELS, DIM))) ** 2
    first = np.repeat(np.arange(N_LABELS), PER_LABEL)
    vectors = own[first] + 0.1 * np.abs(rng.normal(size=(len(first), DIM)))
    second = np.where(np.arange(len(first)) % 3 == 0, (first + 1) % N_LABELS, first)
    rows = np.repeat(np.arange(len(first)), 2)
    ones = np.ones(len(rows), np.float32)
    relevance = sp.csr_matrix((ones, (rows, np.column_stack([first, second]).ravel())), shape=(len(first), N_LABELS))
    relevance.data[:] = 1
    return torch.from_numpy(vectors.astype(np.float32)), relevance


def lists(clouds, source: str, size: int = 8, method: str | None = None) -> np.ndarray:
    vectors, relevance = clouds
    centres = label_centres(vectors, relevance, n_extra=0, head=1, seed=0)
    made = Shortlister(source=source, size=size, method=method, seed=0, on_fallback=print)
    return made.lists(vectors, relevance, centres)


def recalled(clouds, found: np.ndarray) -> float:
    relevance = clouds[1].toarray() > 0
    listed = np.zeros_like(relevance)
    rows, places = np.nonzero(found >= 0)
    listed[rows, found[rows, places]] = True
    return float((relevance & listed).sum() / relevance.sum())


def by_hand_centroids(clouds) -> np.ndarray:
    """Cosines (N, L) of documents with the means of labels."""
    vectors, relevance = clouds[0].double().numpy(), clouds[1].toarray()
    means = (relevance.T @ vectors) / relevance.sum(axis=0)[:, None]
    return (vectors / np.linalg.norm(vectors, axis=1)[:, None]) @ (means / np.linalg.norm(means, axis=1)[:, None]).T


def test_centroid_lists_are_brute_force(clouds):
    expected = np.argsort(-by_hand_centroids(clouds), axis=1)[:, :8]
    assert (lists(clouds, "centroids") == expected).all()


def test_document_lists_count_the_labels_of_similar_documents(clouds):
    """With fewer documents than neighbours each label's score is the summed similarity of all that have it."""
    vectors, relevance = clouds[0][:60], clouds[1][:60]
    unit = F.normalize(vectors.double(), dim=1).numpy()
    expected = (unit @ unit.T) @ relevance.toarray()
    found = lists((vectors, relevance), "documents", size=3)
    best = np.take_along_axis(expected, found.astype(np.int64), axis=1)
    np.testing.assert_allclose(best, -np.sort(-expected, axis=1)[:, :3], rtol=1e-5)


@pytest.mark.parametrize(
    ("source", "least"),
    [("centroids", 0.9), ("documents", 0.8), ("both", 0.9), ("cluster", 0.95), ("tree", 0.95), ("hash", 0.85)],
)
def test_lists_hold_the_relevant_labels(clouds, source, least):
    """A random list of 8 of 40 would hold a fifth; a document's second label need not lie near to it."""
    found = lists(clouds, source)
    print(f"{source}: recall {recalled(clouds, found):.3f}")
    assert found.shape[1] <= 8
    assert found.dtype == np.int32
    assert all(len(np.unique(row[row >= 0])) == (row >= 0).sum() for row in found)
    assert recalled(clouds, found) >= least


def test_a_list_beyond_the_labels_holds_all_of_them(clouds):
    assert (np.sort(lists(clouds, "centroids", size=500), axis=1) == np.arange(N_LABELS)).all()


def test_merging_weighs_and_unites():
    one = (np.array([[0, 1, -1]]), np.array([[1.0, 0.5, 0.0]], np.float32), 0.5)
    other = (np.array([[2, 1, 0]]), np.array([[1.0, 0.9, 0.1]], np.float32), 0.5)
    ids, scores = merged([one, other], n_labels=4, k=4)
    assert ids.tolist() == [[1, 0, 2, -1]]
    np.testing.assert_allclose(scores[0, :3], [0.7, 0.55, 0.5], rtol=1e-6)


def test_a_head_label_of_two_clouds_is_near_to_both_with_centres_of_its_own():
    """Its mean lies between the clouds, where another label is."""
    clouds = torch.eye(3)[torch.tensor([0] * 10 + [1] * 10 + [2] * 4)] + 0.01
    between = torch.tensor([[1.0, 1.0, 0.1]]).expand(4, -1)
    vectors = torch.cat([clouds, between])
    label = np.array([0] * 20 + [1] * 4 + [2] * 4)
    relevance = sp.csr_matrix((np.ones(28, np.float32), (np.arange(28), label)), shape=(28, 4))
    few, many = (label_centres(vectors, relevance, n_extra=n, head=20, seed=0) for n in (0, 2))
    assert few.labels.tolist() == [0, 1, 2]  # the fourth label has no document
    assert many.labels.tolist() == [0, 0, 0, 1, 2]
    query = {"document": np.array([[1.0, 0.0, 0.0]], np.float32)}
    cosines = [centres.served("document", 3).find(query) for centres in (few, many)]
    nearest = [dict(zip(ids[0].tolist(), scores[0].tolist(), strict=True)) for ids, scores in cosines]
    assert nearest[0][0] < 0.8 < 0.99 < nearest[1][0]


def test_a_label_is_listed_once_though_it_has_several_centres():
    centres = Centres(F.normalize(torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]), dim=1), torch.tensor([0, 0, 1]))
    made = Shortlister(source="centroids", size=2, method=AUTO, seed=0, on_fallback=print)
    found = made.lists(torch.tensor([[1.0, 0.0]]), sp.csr_matrix(np.ones((1, 2), np.float32)), centres)
    assert found.tolist() == [[0, 1]]


def test_final_features_have_nearly_the_lists_of_intermediate_ones(clouds):
    """The paper reports an overlap of 87 % and more; here the block is random, at half the norm."""
    vectors, relevance = clouds
    block = TransferBlock(DIM, 0.0, "spectral", 0.5).eval()
    block.weight.data = torch.randn(DIM, DIM, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        final = block(vectors)
    before, after = (lists((each, relevance), "centroids", size=10) for each in (vectors, final))
    overlap = np.mean([len(np.intersect1d(a, b)) / 10 for a, b in zip(before, after, strict=True)])
    print(f"overlap {overlap:.3f}; by chance {10 / N_LABELS:.3f}")
    assert overlap > 0.7
