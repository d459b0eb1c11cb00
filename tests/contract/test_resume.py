"""A training that was killed and resumed ends with the same bits; what cannot be resumed is refused."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted import planted
from quick import epochs_everywhere

from xclearn import algorithms, config
from xclearn.data import Dataset
from xclearn.errors import ModelError
from xclearn.inference.tensors import read_tensors, write_tensors
from xclearn.training.algorithm import Algorithm
from xclearn.training.checkpoint import Checkpoint

SOLVED = ("label_tree", "slice", "sparse_one_vs_all")  # by a solver: no epochs to be killed in, but work that is kept
NAMES = [name for name in algorithms.algorithm_names() if name not in SOLVED]
STOPPING = {"patience": 1, "hold_out": 0.1}
SAMPLED = {"exact_labels": 0, "n_negatives": 8, "label_optimiser": "adam", "label_lr": 0.01}
CYCLE = {"negatives": "nearest", "shortlist_size": 20, "refresh_every": 2, "label_batch_size": 24}
RUNS = [
    *((name, "plain", epochs_everywhere(name, 3)) for name in NAMES),
    *((name, "stopping", epochs_everywhere(name, 6) | {"stopping": STOPPING}) for name in NAMES),
    ("one_vs_all", "sampled", {"epochs": 3, "stopping": STOPPING} | SAMPLED),
    ("lightdxml", "cycle", epochs_everywhere("lightdxml", 3) | {"stopping": STOPPING} | CYCLE),
]
SPOTS: dict[str, dict[str, Any]] = {
    "before the first checkpoint": {"event": "step", "count": 5},
    "after the first epoch": {"event": "epoch", "count": 1},
    "in the middle of the second epoch": {"event": "step", "after": "epoch", "count": 3},
    "while a checkpoint is written": {"operation": "os.rename", "file": ".current-", "count": 2},
    "while the end of a stage is written": {"operation": "os.rename", "file": ".done-", "count": 1},
    "between the end and the clearing up": {"operation": "os.remove", "file": "current-", "count": 1},
    "in a second stage": {"event": "stage", "count": 2},
}


def processes(runs: list[dict[str, Any]]) -> list[int]:
    """How each run of a training process ended: 0, or minus the signal that killed it."""
    tests, source = Path(__file__).parents[1], Path(algorithms.__file__).parents[2]
    # One thread, as a process with waiting threads cannot be forked.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(source), str(tests)]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).with_name("training_process.py"))]
    ran = subprocess.run(
        command, env=environment, check=True, input=json.dumps(runs), stdout=subprocess.PIPE, encoding="utf-8"
    )
    return json.loads(ran.stdout)


@dataclasses.dataclass(frozen=True)
class Killed:
    """One algorithm trained without interruption, killed at each spot, and resumed."""

    folder: Path
    settings: dict[str, Any]
    endings: dict[str, int] = dataclasses.field(default_factory=dict)

    def out(self, spot: str) -> Path:
        return self.folder / spot.replace(" ", "-")

    def run(self, spot: str, *, resume: bool = False, kill: Any = None) -> dict[str, Any]:
        """With a kill the model goes to a folder of its own, which must never come to be."""
        out = self.out(f"{spot} killed" if kill else spot)
        checkpoint = str(self.checkpoint(spot)) if spot in SPOTS else None
        return self.settings | {"out": str(out), "checkpoint": checkpoint, "resume": resume, "kill": kill}

    def checkpoint(self, spot: str) -> Path:
        return self.out(f"{spot} checkpoint")

    def events(self, spot: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out(spot).with_suffix(".log").read_text().splitlines()]


@pytest.fixture(scope="module")
def all_killed(tmp_path_factory: pytest.TempPathFactory) -> list[Killed]:
    """Two processes do all: one trains whole and is killed, the other resumes."""
    found = [
        Killed(tmp_path_factory.mktemp(name), {"algorithm": name, "settings": settings}) for name, _, settings in RUNS
    ]
    kills = [each.run(spot, kill=kill) for each in found for spot, kill in SPOTS.items()]
    endings = processes([*(each.run("whole") for each in found), *kills])
    for i, each in enumerate(found):
        first = len(found) + i * len(SPOTS)
        each.endings.update(zip(SPOTS, endings[first : first + len(SPOTS)], strict=True))
    assert endings[: len(found)] == [0] * len(found)
    assert processes([each.run(spot, resume=True) for each in found for spot in SPOTS]) == [0] * len(kills)
    return found


@pytest.fixture(params=range(len(RUNS)), ids=lambda i: "-".join(RUNS[i][:2]))
def killed(request: pytest.FixtureRequest, all_killed: list[Killed]) -> Killed:
    return all_killed[request.param]


@pytest.mark.parametrize("spot", SPOTS)
def test_killed_and_resumed_is_the_same_as_uninterrupted(killed: Killed, spot: str) -> None:
    if spot == "in a second stage" and killed.endings[spot] == 0:
        assert [event["event"] for event in killed.events(f"{spot} killed")].count("stage") == 1  # there is none
    else:
        assert killed.endings[spot] == -signal.SIGKILL
        assert not killed.out(f"{spot} killed").exists()
    whole, resumed = ((killed.out(run) / "tensors.safetensors").read_bytes() for run in ("whole", spot))
    assert resumed == whole


def test_resuming_continues_where_it_was_killed(killed: Killed) -> None:
    """Equal bits could also come from starting anew."""
    starts = {spot: [e["first_epoch"] for e in killed.events(spot) if e["event"] == "stage"] for spot in SPOTS}
    assert starts["before the first checkpoint"][0] == 0
    for spot in ("after the first epoch", "in the middle of the second epoch", "while a checkpoint is written"):
        first = next(event["stage"] for event in killed.events(f"{spot} killed") if event["event"] == "stage")
        done = [e for e in killed.events(f"{spot} killed") if e["event"] == "epoch" and e["stage"] == first]
        assert starts[spot][0] == len(done) >= 1
    assert "stage_restored" in [event["event"] for event in killed.events("between the end and the clearing up")]


def test_what_a_killed_process_left_half_written_goes_when_it_is_resumed(killed: Killed) -> None:
    folder = killed.checkpoint("while a checkpoint is written")
    assert list(folder.glob(".*")) == []
    Checkpoint(folder).remove()
    assert not folder.exists()


@pytest.mark.parametrize("name", SOLVED)
def test_a_solver_killed_while_it_keeps_its_work_ends_with_the_same_bits(name: str, tmp_path: Path) -> None:
    solved, spot = Killed(tmp_path, {"algorithm": name, "settings": {}}), "while a checkpoint is written"
    kill = {"operation": "os.rename", "file": ".keep-", "count": 1}
    assert processes([solved.run("whole"), solved.run(spot, kill=kill)]) == [0, -signal.SIGKILL]
    assert processes([solved.run(spot, resume=True)]) == [0]
    whole, resumed = ((solved.out(run) / "tensors.safetensors").read_bytes() for run in ("whole", spot))
    assert resumed == whole


# What cannot be resumed


class Interruption(Exception):
    """What ends a training after its first epoch."""


def interrupt(event: Any) -> None:
    if event["event"] == "epoch":
        raise Interruption


def make(epochs: int = 3, **settings: Any) -> Algorithm:
    return config.build(algorithms.find("one_vs_all"), {"epochs": epochs, **settings})


@pytest.fixture
def checkpoint(tmp_path: Path, planted_texts: Dataset) -> Path:
    """Of a training that was interrupted after its first epoch."""
    folder = tmp_path / "checkpoint"
    with pytest.raises(Interruption):
        make().fit(planted_texts, device="cpu", checkpoint=folder, callback=interrupt)
    return folder


def with_train(data: Dataset, **changes: Any) -> Dataset:
    return dataclasses.replace(data, train=dataclasses.replace(data.train, **changes))


def one_pair_less(data: Dataset) -> Dataset:
    relevance = data.train.relevance.copy()
    relevance.data[7] = 0
    relevance.eliminate_zeros()
    return with_train(data, relevance=relevance)


OTHER_DATA: dict[str, Callable[[Dataset], Dataset]] = {
    "a text": lambda data: with_train(data, documents=["other", *data.train.documents[1:]]),
    "two texts cut elsewhere": lambda data: with_train(
        data, documents=[f"{data.train.documents[0]}\0", data.train.documents[1][1:], *data.train.documents[2:]]
    ),
    "a pair": one_pair_less,
    "a label text": lambda data: dataclasses.replace(
        data, labels=dataclasses.replace(data.labels, texts=["own1", *data.labels.texts[1:]])
    ),
    "a dev split": lambda data: dataclasses.replace(data, dev=data.test),
}


@pytest.mark.parametrize("change", OTHER_DATA.values(), ids=OTHER_DATA)
def test_other_data_is_refused(checkpoint, planted_texts, change):
    with pytest.raises(ModelError, match="to another run"):
        make().fit(change(planted_texts), device="cpu", checkpoint=checkpoint, resume=True)


def test_sparse_rows_cut_elsewhere_are_other_data(tmp_path):
    """The same entries in the same order, but one of them belongs to the document before."""
    data = planted("sparse")
    with pytest.raises(Interruption):
        make().fit(data, device="cpu", checkpoint=tmp_path / "c", callback=interrupt)
    documents = data.train.documents.copy()
    documents.indptr[5] += 1
    with pytest.raises(ModelError, match="to another run"):
        make().fit(with_train(data, documents=documents), device="cpu", checkpoint=tmp_path / "c", resume=True)


def test_other_settings_and_another_seed_are_refused(checkpoint, planted_texts):
    for algorithm, seed in ((make(dropout=0.1), 0), (make(epochs=4), 0), (make(), 1)):
        with pytest.raises(ModelError, match="Resume with the same data, settings and seed"):
            algorithm.fit(planted_texts, device="cpu", seed=seed, checkpoint=checkpoint, resume=True)


def test_an_automatic_setting_given_by_hand_is_the_same_run(checkpoint, planted_texts):
    make(batch_size=16).fit(planted_texts, device="cpu", checkpoint=checkpoint, resume=True)


def test_a_checkpoint_in_the_way_is_refused(checkpoint, planted_texts):
    with pytest.raises(ModelError, match=r"in the way.*resume"):
        make().fit(planted_texts, device="cpu", checkpoint=checkpoint)
    (checkpoint / "checkpoint.json").unlink()  # its tensors alone must not be taken for this run's either
    with pytest.raises(ModelError, match="in the way"):
        make().fit(planted_texts, device="cpu", checkpoint=checkpoint)


@pytest.mark.parametrize("folder", [None, "nothing", "empty"])
def test_resuming_nothing_is_refused(tmp_path, planted_texts, folder):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match="nothing to resume"):
        make().fit(planted_texts, device="cpu", checkpoint=folder and tmp_path / folder, resume=True)


def current(folder: Path) -> Path:
    (path,) = folder.glob("current-*.safetensors")
    return path


def rewrite(path: Path, change: Callable[[dict[str, np.ndarray], dict[str, str]], Any]) -> None:
    tensors, metadata = read_tensors(path)
    tensors = {name: np.array(value) for name, value in tensors.items()}
    change(tensors, metadata)
    write_tensors(path, tensors, metadata)


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "index is not JSON": lambda folder: (folder / "checkpoint.json").write_text("{"),
    "index is a list": lambda folder: (folder / "checkpoint.json").write_text("[]"),
    "index has no fingerprint": lambda folder: (folder / "checkpoint.json").write_text("{}"),
    "empty": lambda folder: current(folder).write_bytes(b""),
    "cut short": lambda folder: current(folder).write_bytes(current(folder).read_bytes()[:-1]),
    "no header": lambda folder: current(folder).write_bytes(b"\xff" * 64),
    "no facts": lambda folder: rewrite(current(folder), lambda _, metadata: metadata.clear()),
    "other facts": lambda folder: rewrite(current(folder), lambda _, metadata: metadata.update(facts="{}")),
    "facts are no JSON": lambda folder: rewrite(current(folder), lambda _, metadata: metadata.update(facts="{")),
    "a tensor is missing": lambda folder: rewrite(current(folder), lambda tensors, _: tensors.popitem()),
    "a byte has changed": lambda folder: current(folder).write_bytes(
        current(folder).read_bytes()[:-1] + bytes([current(folder).read_bytes()[-1] ^ 1])
    ),
    "a tensor has another shape": lambda folder: rewrite(
        current(folder),
        lambda tensors, _: tensors.update({name: value[:1] for name, value in tensors.items() if value.ndim}),
    ),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_checkpoint_is_refused(checkpoint, planted_texts, damage):
    damage(checkpoint)
    with pytest.raises(ModelError) as caught:
        make().fit(planted_texts, device="cpu", checkpoint=checkpoint, resume=True)
    assert caught.value.where
