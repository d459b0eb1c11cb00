"""Damaged model folders by fixed seeds: two thousand of them; `make fuzz` runs more, with sanitizers."""

from pathlib import Path

import pytest
from tests.fuzz.folders import damaged, failure_of, make_models, outcomes, read_folder
from tests.fuzz.mutations import places
from tests.fuzz.sandbox import Outcome

from xclearn import algorithms
from xclearn.inference.components import COMPONENTS
from xclearn.text.vectorisers import VECTORISERS

SEEDS = range(2000)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fuzz") / "models"
    make_models(path)
    return path


def test_every_algorithm_is_among_the_models(models):
    made = {read_folder(path).content["about"]["algorithm"] for path in models.iterdir()}
    assert made == set(algorithms.algorithm_names())


def test_every_component_and_vectoriser_is_among_the_models(models):
    found = [(at, key) for path in models.iterdir() for at, key in places(read_folder(path).content)]
    components = {COMPONENTS.get(at[key]) for at, key in found if key == "component"}
    assert set(COMPONENTS.values()) - components == set()
    assert set(VECTORISERS) - {at[key] for at, key in found if key == "vectoriser" and "state" in at} == set()


def test_no_damaged_folder_does_more_than_answer_or_refuse(models):
    found = list(outcomes(models, SEEDS))
    assert [seed for seed, _, _ in found] == list(SEEDS)
    assert [(seed, of, outcome) for seed, of, outcome in found if failure_of(outcome)] == []
    accepted = sum(outcome.kind == "done" for _, _, outcome in found)
    assert 0.05 < accepted / len(SEEDS) < 0.5  # else nothing was damaged, or nothing was asked


def test_a_seed_makes_the_same_folder_again(models, tmp_path):
    sound = {path.name: read_folder(path) for path in models.iterdir()}
    for seed in range(20):
        written = []
        for folder in ("one", "two"):
            path = tmp_path / f"{folder}{seed}"
            path.mkdir()
            damaged(seed, sound, path)
            written.append({file.name: file.read_bytes() for file in path.iterdir()})
        assert written[0] == written[1]


def test_an_outcome_that_counts_as_failure():
    assert [failure_of(Outcome(kind)) for kind in ("done", "refused", "foreign", "crash", "hang")] == [
        *("", "", "foreign", "crash", "hang")
    ]
    assert failure_of(Outcome("done", peak_mib=2049)) == "memory"
