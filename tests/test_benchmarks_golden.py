"""The golden job names every changed bit, id, score, default and schema; additions are features."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from xclearn import algorithms

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.golden.cases import VARIANTS, all_cases
from benchmarks.golden.compare import differences

CASE = "elias.default.texts"
RECORD = {
    "cases": {CASE: {"trained": {"done-first": ["a", "b"]}, "served": {"w": "float32 (2,) ab"}, "seconds": 1.0}},
    "settings": {"elias": {"beam": "int = auto"}},
    "commands": {"xc train": {"--seed": "0"}},
    "openapi": {"paths": {"/predict": {}}},
}
IDS = np.array([[3, 1, -1]])
SCORES = np.array([[0.9, 0.1, -np.inf]], dtype=np.float32)


def write(folder: Path, record: object = RECORD, ids: np.ndarray = IDS, scores: np.ndarray = SCORES) -> Path:
    (folder / CASE).mkdir(parents=True)
    (folder / "record.json").write_text(json.dumps(record))
    np.savez(folder / CASE / "predictions.npz", **{"loaded.ids": ids, "loaded.scores": scores})
    return folder


def changed(path: str, value: object) -> object:
    """The record with one value set, by its path."""
    record = json.loads(json.dumps(RECORD))
    *parents, last = path.split("/")
    inner = record
    for name in parents:
        inner = inner[name]
    inner[last] = value
    return record


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (f"cases/{CASE}/trained/done-first", ["a", "c"], "trained.done-first"),
        (f"cases/{CASE}/served/w", "float32 (2,) ac", "served.w"),
        (f"cases/{CASE}/served", {}, "served.w: gone"),
        ("settings/elias/beam", "int = 3", "settings.elias.beam"),
        ("commands/xc train", {}, "commands.xc train.--seed: gone"),
        ("openapi/paths", {}, "openapi.paths./predict: gone"),
    ],
)
def test_what_changed_or_went_is_named(tmp_path, path, value, said):
    (found,) = differences(write(tmp_path / "old"), write(tmp_path / "new", changed(path, value)))
    assert said in found


@pytest.mark.parametrize(
    ("path", "value"),
    [(f"cases/{CASE}/seconds", 2.0), ("settings/elias/new", "int = 1"), ("commands/xc new", {}), ("cases/blend", {})],
)
def test_time_and_additions_are_no_difference(tmp_path, path, value):
    assert list(differences(write(tmp_path / "old"), write(tmp_path / "new", changed(path, value)))) == []


@pytest.mark.parametrize(
    ("ids", "scores", "said"),
    [
        (np.array([[1, 3, -1]]), SCORES, "2 of 3 ids differ"),
        (IDS, SCORES + np.float32(1e-5), "a score differs by 1.00e-05"),
        (IDS, SCORES * np.float32(np.nan), "a score differs by nan"),
        (IDS[:, :2], SCORES[:, :2], "shape (1, 3) → (1, 2)"),
    ],
)
def test_other_predictions_are_named(tmp_path, ids, scores, said):
    (found,) = differences(write(tmp_path / "old"), write(tmp_path / "new", ids=ids, scores=scores))
    assert said in found


def test_scores_may_differ_by_rounding(tmp_path):
    assert list(differences(write(tmp_path / "old"), write(tmp_path / "new", scores=SCORES + np.float32(1e-7)))) == []


def test_every_algorithm_is_trained_and_every_variant_has_its_own_name():
    names = [case.name for case in all_cases([*algorithms.algorithm_names(), "new"])]
    assert len(names) == len(set(names)) >= 250
    assert set(VARIANTS) <= set(algorithms.algorithm_names())
    assert "new.default.dense" in names
