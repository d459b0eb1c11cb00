"""What a results file says about probabilities, against counting by hand."""

import numpy as np
import pytest
import scipy.sparse as sp
from benchmarks.accuracy.believed import at_threshold, believed, by_band
from planted import planted

from xclearn import algorithms
from xclearn.inference import evaluate
from xclearn.metrics import Report


def report() -> Report:
    """Two documents: 0.9 right, 0.8 wrong; 0.9 right and nothing else above 0.5."""
    ids = np.array([[0, 1, 2], [2, 0, 1]])
    scores = np.array([[0.9, 0.8, 0.1], [0.9, 0.4, 0.1]], dtype=np.float32)
    hit = np.array([[True, False, False], [True, False, False]])
    return Report({}, {}, ids, scores, hit, sp.csr_matrix(np.array([[1, 0, 0], [0, 0, 1]])))


def test_a_threshold_by_hand():
    precision, error, covered = at_threshold(report(), 0.5)
    assert precision == pytest.approx(2 / 3)
    assert error == pytest.approx(np.sqrt((1 - 4 / 3) ** 2 + (1 - 2 / 3) ** 2) / 3)
    assert covered == 1.0
    assert at_threshold(report(), 0.95) == (0.0, 0.0, 0.0)


def test_bands_by_hand():
    told = by_band(report(), np.array([1.0, 3.0, 3.0]))
    assert told == "1 document: 2 said 0.650 right 0.500; 2 to 5 documents: 4 said 0.475 right 0.250"


def test_only_probabilities_are_looked_at():
    data = planted(train=20)
    plain = algorithms.find("label_tree")().fit(data, device="cpu")
    assert believed(plain.model.servable, evaluate(plain, data)) == {}
    sure = algorithms.find("label_tree")(calibrate=True).fit(data, device="cpu")
    found = believed(sure.model.servable, evaluate(sure, data))
    assert {"ece_5", "reliability", "precision_0.9", "covered_0.9"} <= found.keys()
