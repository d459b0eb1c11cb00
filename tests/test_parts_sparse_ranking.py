"""Which documents are the examples of a label's ranker."""

import numpy as np
import scipy.sparse as sp

from xclearn.parts import sparse_ranking
from xclearn.parts.sparse_ranking import ranking_problems

SHORTLIST = np.array([[0, 2], [2, -1], [1, 0]])
RELEVANCE = sp.csr_matrix(np.array([[1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]], dtype=np.float32))


def test_examples_are_the_documents_whose_shortlist_holds_the_label_and_its_own():
    (level,) = ranking_problems(SHORTLIST, RELEVANCE)
    assert level.children.tolist() == [0, 1, 2, 3, 4]
    assert (level.groups.toarray() > 0).tolist() == [
        [True, False, True],
        [True, False, True],
        [True, True, True],
        [False, False, True],
    ]
    assert (level.positives != sp.csr_matrix(RELEVANCE.T)).nnz == 0


def test_problems_in_parts_are_the_same(monkeypatch):
    (whole,) = ranking_problems(SHORTLIST, RELEVANCE)
    monkeypatch.setattr(sparse_ranking, "_AT_ONCE", 3)
    parts = list(ranking_problems(SHORTLIST, RELEVANCE))
    assert [part.positives.shape[0] for part in parts] == [3, 1]
    assert (sp.vstack([part.groups for part in parts]) != whole.groups).nnz == 0
