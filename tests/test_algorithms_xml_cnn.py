"""XML-CNN: it reads the order of words, counts what it cuts, and trains by each path."""

import numpy as np
import pytest
import scipy.sparse as sp
from planted import planted, relevant_first

from xclearn.algorithms.xml_cnn import XmlCnn
from xclearn.data import Dataset, LabelSet, Split
from xclearn.parts.encoder_settings import ConvolutionSettings
from xclearn.text import Sequences

SMALL = ConvolutionSettings(token_dim=16, n_filters=16)


def test_the_order_of_words_is_learnt():
    """Two labels have the same words in another order: a bag cannot tell them apart."""
    rng = np.random.default_rng(0)
    pairs = [(f"a{i}", f"b{i}") for i in range(4)]
    texts, labels = [], []
    for _ in range(240):
        pair, turned, filler = rng.integers(4), rng.integers(2), f"filler{rng.integers(5)}"
        texts.append(" ".join([filler, *(pairs[pair][::-1] if turned else pairs[pair])]))
        labels.append(2 * pair + turned)
    relevance = sp.csr_matrix(np.eye(8, dtype=np.float32)[labels])
    train, test = Split(texts[:200], relevance[:200]), Split(texts[200:], relevance[200:])
    data = Dataset("order", train, LabelSet([str(i) for i in range(8)]), test)
    algorithm = XmlCnn(epochs=30, encoder=SMALL, vectoriser=Sequences(unit="words", max_length=6))
    ids = algorithm.fit(data, device="cpu").predict(test.documents, 1).ids
    found = relevant_first(data, ids)
    print(f"P@1 {found:.3f}; a bag reaches about 0.5")
    assert found > 0.9


@pytest.mark.parametrize("settings", [{"exact_labels": 0, "n_negatives": 20}, {"exact_labels": 100}])
def test_the_sampled_and_the_exact_path_find_the_planted_labels(settings):
    data = planted()
    sequences = Sequences(unit="words", max_length=8)
    algorithm = XmlCnn(epochs=25, encoder=SMALL, vectoriser=sequences, **settings).fit(data, device="cpu")
    assert relevant_first(data, algorithm.predict(data.test.documents).ids) > 0.9


def test_texts_that_are_cut_are_counted_in_the_log_and_in_the_model():
    data, events = planted(train=2), []
    longer = sum(len(text.split()) > 5 for text in data.train.documents)
    algorithm = XmlCnn(epochs=1, encoder=SMALL, vectoriser=Sequences(unit="words", max_length=5))
    algorithm.fit(data, device="cpu", callback=events.append)
    assert 0 < longer < len(data.train)
    assert [event["texts_cut_at_max_length"] for event in events if event["event"] == "note"] == [longer]
    assert algorithm.model.about["training"]["texts_cut_at_max_length"] == longer
