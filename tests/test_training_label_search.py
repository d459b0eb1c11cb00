"""Labels near documents are those of brute force, from the mean of their documents or given places, and are kept."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch.nn import functional as F

from xclearn.search.shortlists import Centres
from xclearn.training.checkpoint import Checkpoint
from xclearn.training.label_search import LabelSearch
from xclearn.training.run import Run

CPU = torch.device("cpu")
N, L, DIM, SIZE = 20, 9, 5, 4
VECTORS = torch.rand(N, DIM, generator=torch.Generator().manual_seed(1))
RELEVANCE = sp.csr_matrix((np.ones(N, np.float32), (np.arange(N), np.arange(N) % L)), shape=(N, L))


def search(checkpoint: Checkpoint | None = None) -> LabelSearch:
    return LabelSearch(RELEVANCE, Run(CPU, 0, checkpoint or Checkpoint(None), lambda _: None), SIZE, None)


def nearest(places: torch.Tensor) -> np.ndarray:
    scores = F.normalize(VECTORS, dim=1) @ F.normalize(places, dim=1).T
    return np.argsort(-scores.numpy(), axis=1)[:, :SIZE]


@pytest.mark.parametrize("placed", [False, True])
def test_the_nearest_labels_lie_at_their_documents_mean_unless_they_are_placed(placed):
    means = torch.from_numpy(RELEVANCE.toarray()).T @ VECTORS
    elsewhere = torch.rand(L, DIM, generator=torch.Generator().manual_seed(2))
    centres = Centres(F.normalize(elsewhere, dim=1), torch.arange(L)) if placed else None
    found = search().lists("lists", VECTORS, centres=centres)
    assert (found == nearest(elsewhere if placed else means)).all()
    assert (found == nearest(means if placed else elsewhere)).mean() < 0.9


def test_lists_are_kept_by_name_and_inputs(tmp_path):
    first = search(Checkpoint(tmp_path)).lists("lists", VECTORS)
    others = VECTORS.flip(0)
    assert (search(Checkpoint(tmp_path)).lists("lists", others) == first).all()
    assert (search(Checkpoint(tmp_path)).lists("lists", others, inputs="others") != first).any()
    assert (search(Checkpoint(tmp_path)).lists("others", others) != first).any()
