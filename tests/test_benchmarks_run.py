"""What the benchmarks share: a part of a data set against plain Python, and whose settings `--set` means."""

import argparse
import sys
from pathlib import Path

import numpy as np
from planted import planted

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.accuracy.astec import interval
from benchmarks.accuracy.run import part_of, settings_for


def test_a_part_has_the_labels_of_its_documents_and_what_test_asks_about_these():
    data = planted(n_labels=40, train=3)
    part = part_of(data, 30)
    assert part.train.relevance.shape == (30, part.n_labels)
    whole = {
        text: {data.labels.names[label] for label in data.train.relevance[i].indices}
        for i, text in enumerate(data.train.documents)
    }
    for i, text in enumerate(part.train.documents):
        assert {part.labels.names[label] for label in part.train.relevance[i].indices} == whole[text]
    assert (np.diff(part.train.relevance.tocsc().indptr) > 0).all()
    assert part.labels.texts == [data.labels.texts[data.labels.names.index(name)] for name in part.labels.names]
    kept, test = set(part.labels.names), data.split("test")
    asked = [
        {data.labels.names[label] for label in test.relevance[i].indices} & kept for i in range(len(test.documents))
    ]
    found = [{part.labels.names[label] for label in row.indices} for row in part.split("test").relevance]
    assert found == [names for names in asked if names]


def test_no_number_is_the_whole():
    data = planted(n_labels=10)
    assert part_of(data, 0) is data


def test_a_setting_goes_to_the_algorithms_that_have_it_or_to_the_one_that_is_named():
    said = argparse.Namespace(set=["embedding_dim=8", "lightdxml:label_lr=0.05", "beam=3", "first.encoder_lr=1"])
    assert settings_for("astec", said) == ["embedding_dim=8"]
    assert settings_for("lightdxml", said) == ["embedding_dim=8", "label_lr=0.05"]
    assert settings_for("elias", said) == ["embedding_dim=8", "beam=3", "first.encoder_lr=1"]


def test_an_interval_of_three_values_by_hand():
    """1, 2, 3: a standard deviation of 1, t = 4.303 with two degrees of freedom."""
    assert interval([1.0, 2.0, 3.0]).split() == ["2.00", "±", f"{4.3027 / 3**0.5:.2f}"]


def test_one_value_has_no_interval():
    assert interval([2.5]).split() == ["2.50", "±", "nan"]
