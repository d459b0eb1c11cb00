"""Training texts as evidence: which are kept, which are nearest, and what a damaged table gets."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from handmade import LABELS, model, servable

from xclearn.errors import ModelError
from xclearn.inference import load_model, save_model
from xclearn.inference.components import AllLabels
from xclearn.inference.servable import Ensemble
from xclearn.inference.sparse import SparseClassifier, SparseFeatures, TextMix
from xclearn.inference.train_texts import PER_LABEL, TrainTexts

TEXTS = ["blue", "green red", "red red blue", "nothing", "green"]
RELEVANCE = sp.csr_matrix(np.array([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]], np.float32))
KEPT = TrainTexts.of(TEXTS, RELEVANCE)


def test_only_texts_with_labels_are_kept():
    assert list(KEPT.texts) == TEXTS[:4]
    assert KEPT.offsets.tolist() == [0, 4, 5, 5, 5]
    assert KEPT.rows.tolist() == [0, 1, 2, 3, 1]


def test_a_frequent_label_keeps_its_first_texts():
    many = TrainTexts.of([f"t{i}" for i in range(200)], sp.csr_matrix(np.ones((200, 2), np.float32)))
    assert len(many.texts) == PER_LABEL
    assert many.offsets.tolist() == [0, PER_LABEL, 2 * PER_LABEL]


def test_the_nearest_by_hand():
    """The vector of a text has its colours' weights: red red blue is (1, 0, √2-like) against (1, 0, 0)."""
    found = KEPT.nearest(servable(), "blue", LABELS.index("sky"), 3)
    assert [near.text for near in found] == ["blue", "red red blue", "green red"]
    vectors = servable().encoders["document"].encode(servable().vectoriser.transform(["blue", "red red blue"]))
    expected = vectors[0] @ vectors[1] / np.prod(np.linalg.norm(vectors, axis=1))
    assert [near.cosine for near in found] == pytest.approx([1, float(expected), 0], abs=1e-6)


def test_a_label_without_texts_and_a_text_without_words():
    assert KEPT.nearest(servable(), "blue", LABELS.index("night"), 3) == []
    assert [near.cosine for near in KEPT.nearest(servable(), "", 0, 2)] == [0, 0]


def test_sparse_features_and_ensembles():
    scorer = SparseClassifier.of("text", sp.csr_matrix(np.eye(4, 3, dtype=np.float32)), np.zeros(4))
    fusion = TextMix("logistic", 0.0)
    sparse = servable(
        encoders={"text": SparseFeatures(3, True)}, candidates=AllLabels(), scorers=[scorer], fusion=fusion
    )
    sparse.check()
    for made in (sparse, Ensemble([sparse, sparse])):
        (first, second, _) = KEPT.nearest(made, "blue green", 0, 3)
        assert (first.text, second.text) == ("blue", "green red")
        assert first.cosine == pytest.approx(0.5**0.5, abs=1e-6)


def test_saved_and_loaded(tmp_path):
    save_model(replace(model(), train_texts=KEPT), tmp_path / "m")
    loaded = load_model(tmp_path / "m")
    assert loaded.train_texts.nearest(loaded.servable, "red", 1, 5) == KEPT.nearest(servable(), "red", 1, 5)
    save_model(loaded, tmp_path / "again")
    assert list(load_model(tmp_path / "again").train_texts.texts) == TEXTS[:4]
    save_model(model(), tmp_path / "without")
    assert load_model(tmp_path / "without").train_texts is None


@pytest.mark.parametrize(
    "damage",
    [
        {"offsets": KEPT.offsets[:-1]},
        {"offsets": KEPT.offsets + 1},
        {"rows": KEPT.rows + 1},
        {"rows": KEPT.rows.astype(np.int64)},
        {"rows": -KEPT.rows},
    ],
)
def test_a_damaged_table_is_refused(damage, tmp_path):
    save_model(replace(model(), train_texts=replace(KEPT, **damage)), tmp_path / "m")
    with pytest.raises(ModelError, match="train_texts"):
        load_model(tmp_path / "m")


def test_another_part_in_its_place_is_refused(tmp_path):
    save_model(replace(model(), train_texts=AllLabels()), tmp_path / "m")
    with pytest.raises(ModelError, match="lacks texts"):
        load_model(tmp_path / "m")
