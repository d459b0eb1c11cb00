"""A slice of `make chaos`: what kills, a full disk and a second run at once leave behind."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from test_writing import NEEDS_PRELOADING

from xclearn import algorithms, config, load_dataset

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.chaos.planted import quick, write_data
from benchmarks.chaos.watched import preloaded

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What benchmarks/chaos/slice.py found to be wrong, in one process that forks for every trial."""
    folder = tmp_path_factory.mktemp("chaos")
    environment = preloaded(folder) | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.chaos.slice", str(folder)]
    ran = subprocess.run(command, env=environment, cwd=ROOT, check=True, stdout=subprocess.PIPE, encoding="utf-8")
    return json.loads(ran.stdout)


@NEEDS_PRELOADING
@pytest.mark.parametrize("part", ["killed", "refused", "doubled", "killed over an old model"])
def test_a_blow_leaves_the_old_model_or_the_new_one_and_the_next_run_its_bits(found: dict[str, Any], part: str) -> None:
    assert found[part]["trials"] >= 2
    assert found[part]["wrong"] == []


@pytest.mark.parametrize("name", algorithms.algorithm_names())
def test_quick_settings_train_every_algorithm(name: str, tmp_path: Path) -> None:
    """One that a later change refuses would end `make chaos`, `make determinism` and `make races`."""
    data = load_dataset(write_data(tmp_path / "data"))
    seen: dict[str, int] = {}
    settings = config.merge({}, quick(name, 2))
    fitted = config.build(algorithms.find(name), settings, name)
    fitted.fit(data, device="cpu", callback=lambda event: _count(event, seen))
    assert fitted.predict(list(data.train.documents)[:3], 2).ids.shape == (3, 2)
    assert set(seen.values()) <= {2}, seen


def _count(event: Mapping[str, Any], seen: dict[str, int]) -> None:
    """Epochs of each stage."""
    if event["event"] == "epoch":
        seen[event["stage"]] = seen.get(event["stage"], 0) + 1
