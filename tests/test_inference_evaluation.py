"""Evaluation of the model worked out by hand."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
from handmade import dataset, model, servable

from xclearn.data import Dataset, LabelSet, Split
from xclearn.data.dataset import RowNumbers
from xclearn.data.splits import as_test
from xclearn.errors import DataError
from xclearn.inference import Model, Predictor, evaluate
from xclearn.inference.components import Classifier
from xclearn.inference.evaluation import label_counts, label_weights


def test_by_hand():
    """Ranked: blue sky leaf berry night; green leaf sky berry night; red (berry void) sky leaf night.

    Relevant: blue sky; green leaf, berry; red night. Hits at 1: sky, leaf. At 3: sky; leaf, berry; night.
    """
    report = evaluate(Predictor(model()), dataset())
    assert report.ids[:, :4].tolist() == [[0, 1, 2, 3], [1, 0, 2, 3], [0, 1, 3, -1]]
    values = report.values
    assert values["P@1"] == pytest.approx(100 * 2 / 3)
    assert values["P@3"] == pytest.approx(100 * (1 + 2 + 1) / 9)
    assert values["P@5"] == pytest.approx(100 * 4 / 15)
    assert values["R@10"] == pytest.approx(100)
    assert values["C@10"] == pytest.approx(100)
    assert values["nDCG@1"] == pytest.approx(100 * 2 / 3)


def test_propensities_come_from_the_whole_of_train():
    data = dataset()
    assert label_counts(data).tolist() == [3, 1, 1, 1]
    a, b = data.propensity
    scale = (np.log(3) - 1) * (b + 1) ** a
    expected = 1 + scale * (np.array([3, 1, 1, 1]) + b) ** -a
    np.testing.assert_allclose(label_weights(data), expected, rtol=1e-6)
    report = evaluate(Predictor(model()), data)
    best = expected[[0, 1, 3]].sum()  # the heaviest of each document; leaf and berry weigh the same
    assert report.values["PSP@1"] == pytest.approx(100 * expected[[0, 1]].sum() / best)


def test_other_splits():
    report = evaluate(Predictor(model()), dataset(), split="train")
    assert report.values["P@1"] == pytest.approx(100 * 3 / 3)  # blue sky, green leaf, red berry
    with pytest.raises(DataError, match="no such split; got 'dev'; allowed: train, test"):
        evaluate(Predictor(model()), dataset(), split="dev")


def test_filter_rules():
    """Filtered in predictions only, berry stays a right answer of red that cannot be found."""
    data = dataset()
    relevance = data.test.relevance.toarray()
    relevance[2, 2] = 1
    test = dataclasses.replace(data.test, relevance=type(data.test.relevance)(relevance))
    data = dataclasses.replace(data, test=test)
    both, predictions = (
        evaluate(Predictor(model()), data, filter_rule=rule).values for rule in ("both", "predictions")
    )
    assert both["R@10"] == pytest.approx(100)
    assert predictions["R@10"] == pytest.approx(100 * (1 + 1 + 0.5) / 3)


def test_labels_are_matched_by_name():
    """The same set with its labels in another order, and with one more that no document has, measures the same."""
    data, order = dataset(), [3, 1, 0, 2]
    names = [data.labels.names[label] for label in order]

    def moved(split: Split) -> Split:
        wider = sp.csr_matrix(np.pad(split.relevance.toarray()[:, order], ((0, 0), (0, 1))))
        pairs = [(row, order.index(label)) for row, label in split.filter_pairs.tolist()]
        return dataclasses.replace(split, relevance=wider, filter_pairs=np.array(pairs, dtype=np.int64).reshape(-1, 2))

    other = Dataset("moved", moved(data.train), LabelSet([*names, "more"]), test=moved(data.test))
    report = evaluate(Predictor(model()), other)
    assert report.values == pytest.approx(evaluate(Predictor(model()), data).values)
    assert report.unknown_labels == {}


def test_labels_that_the_model_does_not_know_are_misses():
    """A file that is all test: recall falls from 5 of 5 pairs to 1, 2/3 and 1/2 of the documents' pairs."""
    test = dataset().test
    relevance = sp.csr_matrix(np.hstack([test.relevance.toarray(), [[0, 0], [0, 1], [1, 1]]]), dtype=np.float32)
    names = [*dataset().labels.names, "dusk", "dawn"]
    data = as_test(Dataset("new", Split(test.documents, relevance, test.filter_pairs), LabelSet(names)))
    report = evaluate(Predictor(model()), data)
    assert list(report.unknown_labels.items()) == [("dawn", 2), ("dusk", 1)]
    assert report.values["R@10"] == pytest.approx(100 * np.mean([1, 2 / 3, 1 / 3]))
    assert report.values["P@1"] == pytest.approx(evaluate(Predictor(model()), dataset()).values["P@1"])
    assert not [name for name in report.values | report.terms if name.startswith("PS")]


def test_labels_without_names_are_not_matched():
    data = dataset()
    other = dataclasses.replace(data, labels=LabelSet(RowNumbers(4)))
    with pytest.raises(DataError, match="colours: the model and the data have different labels"):
        evaluate(Predictor(model()), other)


def test_void_labels_take_no_place_in_the_list():
    """The right label stands 101st; the first is void, so that it must be found among the first 100."""
    n_labels = 102
    weight, bias = np.zeros((n_labels, 3), np.float32), -np.arange(n_labels, dtype=np.float32)
    labels = LabelSet([str(label) for label in range(n_labels)])
    relevance = sp.csr_matrix((np.ones(1, np.float32), ([0], [100])), shape=(1, n_labels))
    split = Split(["blue"], relevance, filter_pairs=np.array([[0, 0]]))
    made = Model(servable(scorers=[Classifier("document", weight, bias)]), labels, {})
    assert evaluate(Predictor(made), Dataset("long", split, labels, split)).values["R@100"] == 100
