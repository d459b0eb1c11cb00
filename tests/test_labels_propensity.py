"""Propensities: the formula by hand, a second library, and the edges where it stops making sense."""

import numpy as np
import pytest
from napkinxc.metrics import Jain_et_al_inverse_propensity
from scipy.sparse import random as random_sparse

from xclearn.errors import ConfigError, DataError
from xclearn.labels.propensity import inverse_propensity


def test_by_hand():
    # N = 20: ln 20 − 1 = 1.995732; a = 0.5, b = 1: (1 + 1)^0.5 = 1.414214; scale = 2.822391.
    # counts 0, 3, 8: (n + 1)^−0.5 = 1, 1/2, 1/3.
    weights = inverse_propensity(np.array([0, 3, 8]), 20, a=0.5, b=1.0)
    np.testing.assert_allclose(weights, [1 + 2.822391, 1 + 1.411196, 1 + 0.940797], atol=1e-5)
    assert weights.dtype == np.float64


@pytest.mark.parametrize(("a", "b"), [(0.55, 1.5), (0.6, 2.6), (0.5, 0.4)])
def test_same_as_napkinxc(a, b):
    relevance = random_sparse(300, 40, 0.05, format="csr", random_state=1)
    relevance.data[:] = 1
    counts = np.asarray(relevance.sum(axis=0)).ravel()
    np.testing.assert_allclose(inverse_propensity(counts, 300, a, b), Jain_et_al_inverse_propensity(relevance, a, b))


@pytest.mark.parametrize("n_documents", [1, 2, 3, 100])
def test_no_weight_is_below_one_however_few_documents(n_documents):
    counts = np.array([0, 1, n_documents])
    assert (inverse_propensity(counts, n_documents, 0.55, 1.5) >= 1).all()


@pytest.mark.parametrize(("a", "b"), [(-0.1, 1.5), (0.55, 0.0), (0.55, float("nan"))])
def test_constants_out_of_range_are_named(a, b):
    with pytest.raises(ConfigError, match="propensity constants"):
        inverse_propensity(np.array([1]), 10, a, b)


@pytest.mark.parametrize(("counts", "n_documents"), [([1], 0), ([1, -1], 10)])
def test_impossible_counts_are_refused(counts, n_documents):
    with pytest.raises(DataError, match="at least one training document"):
        inverse_propensity(np.array(counts), n_documents, 0.55, 1.5)
