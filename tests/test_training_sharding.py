"""Two processes against one: the same model within rounding, half of the rows each; and what a killed one leaves.

All weights of both differ by at most `TOLERANCE` of the largest value: sums over labels are made in another order. A
text network magnifies what differs with every epoch, and a start changed by 1e-7 does as much: there it is `LOOSER`.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from sharded_job import CASES, HOLDING, N_LABELS, data, held_rows, planned

from xclearn import algorithms
from xclearn.data import write_dataset
from xclearn.inference.folder import load_model
from xclearn.inference.tensors import read_tensors
from xclearn.parts.ranks import Ranks

TOLERANCE = 1e-5
LOOSER = 1e-3
# Of runs that are killed: the first stage, and epochs that are enough to be killed in.
KILLED: dict[str, tuple[str, dict[str, object]]] = {
    "one_vs_all": ("train", {"epochs": 100, "embedding_dim": 32, "dropout": 0.3}),
    "decaf": ("surrogate", {"ranker": "exact", "surrogate_epochs": 4, "ranker_epochs": 1}),
}
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which two processes wrote their models and what they held."""
    out = tmp_path_factory.mktemp("told")
    script = Path(__file__).with_name("sharded_job.py")
    subprocess.run([*TORCHRUN, "2", str(script), str(out)], env=ENVIRONMENT, check=True, timeout=480)
    return out


def arrays(folder: Path) -> dict[str, np.ndarray]:
    """All that a model folder holds as floats, but for a ranker: which of its weights are zero is decided by a hair."""
    tensors, _ = read_tensors(folder / "tensors.safetensors")
    return {name: value for name, value in tensors.items() if value.dtype == np.float32 and ".ranker." not in name}


def assert_same_model(one: Path, other: Path, tolerance: float = TOLERANCE, share: float = 1.0) -> None:
    """`share` of the values of each array differ by less than the tolerance."""
    expected, actual = arrays(one), arrays(other)
    assert len(expected) >= 3
    assert expected.keys() == actual.keys()
    for name, value in expected.items():
        assert value.shape == actual[name].shape
        difference = np.quantile(np.abs(value - actual[name]), share) / np.abs(value).max()
        print(f"{name}: difference of {difference:.1e} of the largest value")
        assert difference < tolerance


@pytest.mark.parametrize("case", CASES)
def test_two_processes_train_the_model_of_one(told: Path, tmp_path: Path, case: str) -> None:
    alone = CASES[case]().fit(data(), device="cpu")
    alone.save(tmp_path / "alone")
    assert_same_model(tmp_path / "alone", told / case, LOOSER if case.startswith("decaf") else TOLERANCE)
    documents = data().split("test").documents
    np.testing.assert_array_equal(
        alone.predict(documents, 1).ids, type(alone).load(told / case).predict(documents, 1).ids
    )
    assert load_model(told / case).about["training"]["processes"] == 2


@pytest.mark.parametrize("which", range(len(HOLDING)))
def test_each_process_holds_half_of_the_rows_and_of_their_state(told: Path, which: int) -> None:
    facts = [json.loads((told / f"told-{rank}.json").read_text()) for rank in (0, 1)]
    whole = held_rows(HOLDING[which])
    assert len(whole) == (4, 2, 1, 1)[which]  # rows, both moments, step counts; biases and refinements; rows
    for name, (n_rows, width) in whole.items():
        assert n_rows == N_LABELS
        assert [fact["rows"][which][name] for fact in facts] == [[75, width], [76, width]]
    assert facts[0]["bytes"][which] < planned(HOLDING[which], Ranks())


def test_what_drifted_apart_is_made_equal(told: Path) -> None:
    facts = [json.loads((told / f"told-{rank}.json").read_text()) for rank in (0, 1)]
    assert [fact["equal"] for fact in facts] == [[1.0, 0.1], [1.0, 0.1]]


def test_an_algorithm_that_cannot_share_says_so_once(told: Path) -> None:
    said, other = (json.loads((told / f"told-{rank}.json").read_text())["refused"] for rank in (0, 1))
    assert other == "exit 2"
    assert said.startswith("label_tree: its label rows cannot be shared by processes; got '2 processes'.")


def train(data_folder: Path, out: Path, name: str, *more: str, processes: int = 1) -> subprocess.Popen[str]:
    settings = [part for setting, value in KILLED[name][1].items() for part in ("--set", f"{setting}={value}")]
    command = ["xclearn", "train", str(data_folder), "-a", name, *settings, "-o", str(out), *more]
    start = [sys.executable] if processes == 1 else [*TORCHRUN, str(processes)]
    return subprocess.Popen([*start, "-m", *command], env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)


def process_of(launcher: int, rank: int) -> int:
    """The id of a process that torchrun started."""
    for child in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
        if f"RANK={rank}".encode() in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
            return int(child)
    raise AssertionError("no such process")


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds a process by /proc")
@pytest.mark.parametrize(("name", "killed", "go_on_with"), [("one_vs_all", 0, 3), ("decaf", 1, 1)])
def test_a_killed_process_ends_the_job_and_any_number_goes_on(
    tmp_path: Path, name: str, killed: int, go_on_with: int
) -> None:
    stage, settings = KILLED[name]
    write_dataset(data(), tmp_path / "data")
    job = train(tmp_path / "data", tmp_path / "model", name, processes=2)
    kept = tmp_path / "model.checkpoint" / f"current-{stage}.safetensors"
    while not kept.exists():
        assert job.poll() is None
        time.sleep(0.01)
    os.kill(process_of(job.pid, killed), signal.SIGKILL)
    said = job.communicate(timeout=60)[1]
    assert job.returncode != 0
    assert kept.exists(), "it had ended before it was killed"
    (sentence,) = [line for line in said.splitlines() if line.startswith("Error: ")]
    assert sentence.startswith(f"Error: process {1 - killed} of 2: ")
    assert sentence.endswith("run the same command again with --resume.")
    algorithms.find(name)(**settings).fit(data(), device="cpu").save(tmp_path / "whole")
    again = train(tmp_path / "data", tmp_path / "model", name, "--resume", processes=go_on_with)
    assert f"resumed: stage {stage} after epoch" in again.communicate(timeout=120)[1]
    assert again.returncode == 0
    looser = (LOOSER, 0.5) if name == "decaf" else ()  # after more epochs than above
    assert_same_model(tmp_path / "whole", tmp_path / "model", *looser)
