"""A loaded model as something to ask."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from handmade import LABELS, model

import xclearn
from xclearn.data import LabelSet
from xclearn.inference import Model, Predictor, save_model


def test_suggestions_have_names_scores_and_texts():
    predictor = Predictor(model(texts=["above", "on a tree", "sweet", "dark"]))
    (first, second), _ = predictor.suggest(["blue", ""], k=2)
    assert (first.label, first.text) == ("sky", "above")
    assert first.score == pytest.approx(1 / (1 + np.exp(-3)))
    assert (second.label, second.text, second.score) == ("leaf", "on a tree", 0.5)
    assert Predictor(model()).suggest(["blue"], k=1)[0][0].text is None


def test_label_features_are_no_text():
    made = model()
    predictor = Predictor(Model(made.servable, LabelSet(LABELS, np.eye(4)), made.about))
    assert predictor.suggest(["blue"], k=1)[0][0].text is None


def test_excluded_labels_are_not_predicted():
    assert Predictor(model()).predict(["blue"], 4, np.array([[0, 0]])).ids.tolist() == [[1, 2, 3, -1]]


@pytest.mark.parametrize("verify", [True, False])
def test_loading_predicts_the_same(tmp_path, verify):
    save_model(model(), tmp_path / "model")
    predictor = Predictor.load(tmp_path / "model", verify=verify)
    assert predictor.predict(["red", "blue"]).ids.tolist() == Predictor(model()).predict(["red", "blue"]).ids.tolist()
    assert list(predictor.labels.names) == LABELS
    assert predictor.about["algorithm"] == "by_hand"


def test_predicting_needs_no_torch(tmp_path):
    save_model(model(), tmp_path / "model")
    program = f"""
import sys
import xclearn
predictor = xclearn.load({str(tmp_path / "model")!r})
print(predictor.suggest(["red"], k=1)[0][0].label)
heavy = {{"torch", "sklearn", "pyarrow", "tokenizers", "rich", "typer"}} & set(sys.modules)
sys.exit(", ".join(sorted(heavy)))
"""
    environment = os.environ | {"PYTHONPATH": str(Path(xclearn.__file__).parents[1])}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr.strip()) == ("berry\n", "")
    assert ran.returncode == 0 or ran.stderr == "\n"
