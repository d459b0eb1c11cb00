"""Exact search against brute force, approximate search by its recall, and what is said where faiss is missing."""

import sys

import numpy as np
import pytest
import torch

from xclearn.errors import MissingExtra
from xclearn.search import nearest
from xclearn.search.nearest import ExactSearch, FaissSearch, build_search, recall

QUERIES, VECTORS = (
    torch.nn.functional.normalize(torch.randn(n, 16, generator=torch.Generator().manual_seed(n)), dim=1)
    for n in (40, 3000)
)


def brute_force(k: int) -> tuple[np.ndarray, np.ndarray]:
    products = QUERIES.numpy() @ VECTORS.numpy().T
    ids = np.argsort(-products, axis=1, kind="stable")[:, :k]
    return ids, np.take_along_axis(products, ids, axis=1)


@pytest.mark.parametrize("at_once", [1 << 25, 40 * 700, 1], ids=["one block", "several", "as small as k"])
def test_exact_search_is_brute_force(monkeypatch, at_once):
    monkeypatch.setitem(nearest._SCORES_AT_ONCE, "cpu", at_once)
    monkeypatch.setitem(nearest._QUERIES_AT_ONCE, "cpu", 17)
    ids, scores = ExactSearch(VECTORS).search(QUERIES, 20)
    assert (ids.numpy() == brute_force(20)[0]).all()
    np.testing.assert_allclose(scores.numpy(), brute_force(20)[1], atol=1e-6)


def test_k_beyond_the_vectors_gives_all_of_them():
    ids, scores = ExactSearch(VECTORS[:3]).search(QUERIES, 20)
    assert ids.shape == scores.shape == (40, 3)
    assert (ids.sort(dim=1).values == torch.arange(3)).all()


def test_no_query_gets_no_answer():
    ids, scores = ExactSearch(VECTORS).search(QUERIES[:0], 5)
    assert ids.shape == scores.shape == (0, 5)


@pytest.mark.parametrize("method", ["hnsw", "ivf"])
def test_an_index_recalls_nearly_what_exact_search_finds(method):
    index = build_search(VECTORS, method)
    assert isinstance(index, FaissSearch)
    ids, scores = index.search(QUERIES, 20)
    found = recall(ids, ExactSearch(VECTORS).search(QUERIES, 20)[0])
    print(f"{method}: recall@20 {found:.3f}")
    assert found > 0.95
    torch.testing.assert_close(scores, (QUERIES[:, None] * VECTORS[ids]).sum(2), atol=1e-5, rtol=0)


def test_recall_of_a_hand_made_example():
    found, wanted = torch.tensor([[4, 1, -1], [0, 2, 9]]), torch.tensor([[1, 2], [2, -1]])
    assert recall(found, wanted) == pytest.approx(2 / 3)


def test_many_vectors_on_a_cpu_get_an_index_and_few_do_not(monkeypatch):
    assert isinstance(build_search(VECTORS), ExactSearch)
    monkeypatch.setattr(nearest, "_EXACT_CPU", 1000)
    assert isinstance(build_search(VECTORS), FaissSearch)


def test_without_faiss_exact_search_is_used_and_said(monkeypatch):
    monkeypatch.setattr(nearest, "_EXACT_CPU", 1000)
    monkeypatch.setitem(sys.modules, "faiss", None)  # as if it were not installed
    said: dict[str, str] = {}
    assert isinstance(build_search(VECTORS, on_fallback=said.update), ExactSearch)
    assert said == {"method": "exact", "reason": "faiss is not installed; pip install 'xclearn[ann]' makes it faster"}
    with pytest.raises(MissingExtra, match=r"faiss, which is not installed. Run pip install 'xclearn\[ann\]'"):
        build_search(VECTORS, "hnsw")
