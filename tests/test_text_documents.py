"""Kinds of documents are told apart, and what is none of them is refused with our error."""

import numpy as np
import pytest
import scipy.sparse as sp

from xclearn.errors import DataError
from xclearn.text.documents import DENSE, SPARSE, TEXTS, as_float32, documents_kind, require


def test_the_three_kinds():
    assert documents_kind(["a"]) == documents_kind(()) == TEXTS
    assert documents_kind(sp.csr_matrix((2, 3))) == documents_kind(sp.coo_array((2, 3))) == SPARSE
    assert documents_kind(np.zeros((2, 3))) == DENSE


@pytest.mark.parametrize("documents", ["one text", 7, None, iter(["a"]), {"a": 1}])
def test_what_is_no_kind_of_documents_is_refused(documents):
    with pytest.raises(DataError):
        documents_kind(documents)


@pytest.mark.parametrize(
    ("documents", "kind", "width", "says"),
    [
        (["a"], SPARSE, 3, "got 'texts'; allowed: sparse features"),
        (np.zeros((1, 3)), TEXTS, None, "got 'dense features'; allowed: texts"),
        (["a", None], TEXTS, None, r"documents\[1\]"),
        (np.zeros(3), DENSE, None, r"allowed: \(n, V\)"),
        (np.zeros((2, 0)), DENSE, None, "wrong shape"),
        (sp.csr_matrix((2, 4)), SPARSE, 3, r"got \(2, 4\); allowed: \(n, 3\)"),
        (np.array(["a", "b"]), DENSE, None, "not numbers"),
    ],
)
def test_the_refusal_says_what_came_and_what_is_allowed(documents, kind, width, says):
    with pytest.raises(DataError, match=says):
        require(documents, kind, width)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e39])
def test_values_that_32_bits_cannot_hold_are_refused(value):
    with pytest.raises(DataError, match="NaN"):
        as_float32(np.array([1.0, value]))
