"""Checkpoint files: whole or not there, of one run only. Resuming itself is in contract/test_resume.py."""

import errno
import os
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from xclearn.errors import DataError, ModelError
from xclearn.training.checkpoint import Checkpoint


@pytest.fixture
def checkpoint(tmp_path) -> Checkpoint:
    made = Checkpoint(tmp_path / "deep" / "folder")
    made.open("fingerprint", resume=False)
    return made


@pytest.mark.parametrize(
    "value",
    [torch.arange(6.0).reshape(2, 3), torch.tensor(3.5), 7, np.array([True, False]), torch.empty(0, 4)],
    ids=["matrix", "scalar tensor", "number", "array", "empty"],
)
def test_what_was_saved_is_loaded(checkpoint, value):
    checkpoint.save("stage", {"value": value}, {"epoch": 3, "score": -1.5})
    tensors, facts = checkpoint.load("stage")
    assert tensors["value"].tolist() == np.asarray(value).tolist()
    assert tensors["value"].shape == np.asarray(value).shape
    assert tensors["value"].flags.writeable
    assert facts == {"epoch": 3, "score": -1.5}


def test_saving_again_replaces_and_forgetting_removes(checkpoint):
    for epoch in (1, 2):
        checkpoint.save("stage", {"value": np.full(3, epoch)}, {"epoch": epoch})
    assert checkpoint.load("stage")[1] == {"epoch": 2}
    checkpoint.forget("stage")
    checkpoint.forget("stage")
    assert checkpoint.load("stage") is None


def test_without_a_folder_nothing_is_kept():
    nothing = Checkpoint(None)
    nothing.open("fingerprint", resume=False)
    nothing.save("stage", {"value": np.ones(1)}, {})
    assert nothing.load("stage") is None
    nothing.forget("stage")
    nothing.remove()


def test_opening(checkpoint):
    Checkpoint(checkpoint.folder).open("fingerprint", resume=True)
    with pytest.raises(ModelError, match="to another run"):
        Checkpoint(checkpoint.folder).open("other", resume=True)
    with pytest.raises(ModelError, match="in the way"):
        Checkpoint(checkpoint.folder).open("fingerprint", resume=False)


def test_what_an_earlier_run_left_is_replaced_when_told_so(checkpoint):
    checkpoint.save("stage", {"value": np.ones(1)}, {})
    (checkpoint.folder / "notes.txt").write_text("mine")
    Checkpoint(checkpoint.folder, replace=True).open("other", resume=False)
    assert {path.name for path in checkpoint.folder.iterdir()} == {"checkpoint.json", "notes.txt"}
    Checkpoint(checkpoint.folder).open("other", resume=True)


def test_another_number_of_threads_is_refused_with_what_to_set(tmp_path):
    checkpoint = Checkpoint(tmp_path / "run")
    checkpoint.open("one", resume=False, threads=8)
    with pytest.raises(ModelError, match=r"got 2; allowed: 8\. Set OMP_NUM_THREADS=8"):
        checkpoint.open("one", resume=True, threads=2)
    checkpoint.open("one", resume=True, threads=8)
    (tmp_path / "run" / "checkpoint.json").write_text('{"fingerprint": "one"}')  # of an earlier version
    checkpoint.open("one", resume=True, threads=2)


def test_a_disk_that_does_not_sync_is_our_error(checkpoint, monkeypatch):
    def refuse(_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(DataError, match="writing failed"):
        Checkpoint(checkpoint.folder, replace=True).open("other", resume=False)


def test_resuming_replaces_nothing(checkpoint):
    checkpoint.save("stage", {"value": np.ones(1)}, {})
    again = Checkpoint(checkpoint.folder, replace=True)
    again.open("fingerprint", resume=True)
    assert again.load("stage") is not None


def test_a_folder_is_of_one_run_at_a_time(tmp_path):
    first, second = Checkpoint(tmp_path / "run"), Checkpoint(tmp_path / "run")
    with first.held(), first.held():
        first.open("one", resume=False)
        for resume in (False, True):
            with pytest.raises(ModelError, match="another run is using the checkpoint"), second.held():
                second.open("one", resume=resume)
    with second.held():
        second.open("one", resume=True)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["checkpoint.json"]


def test_of_many_runs_that_start_at_once_one_does(tmp_path, monkeypatch):
    """With a `mkdir` so slow that all have looked for an earlier run before the first has made its folder."""
    slow, done = threading.Barrier(8), threading.Barrier(8)
    mkdir, started = Path.mkdir, []

    def slow_mkdir(path, **options):
        if path.name == "run":
            slow.wait(60)
        mkdir(path, **options)

    def run(number):
        checkpoint = Checkpoint(tmp_path / "run")
        try:
            with checkpoint.held():
                monkeypatch.setattr(Path, "mkdir", mkdir)
                checkpoint.open(f"{number}", resume=False)
                started.append(number)
                done.wait(60)
        except ModelError:
            done.wait(60)

    monkeypatch.setattr(Path, "mkdir", slow_mkdir)
    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(started) == 1


def test_a_run_that_could_not_start_leaves_no_folder(tmp_path):
    checkpoint = Checkpoint(tmp_path / "deep" / "folder")
    with pytest.raises(ModelError, match="nothing to resume"), checkpoint.held():
        checkpoint.open("fingerprint", resume=True)
    assert list(tmp_path.iterdir()) == []


def test_removing_also_takes_what_earlier_versions_left(checkpoint):
    for name in (".current-stage.safetensors.0123456789ab.tmp", ".tmpAb3dE9"):
        (checkpoint.folder / name).write_text("half")
    (checkpoint.folder / ".tmp-of-the-user").write_text("mine")
    checkpoint.remove()
    assert [path.name for path in checkpoint.folder.iterdir()] == [".tmp-of-the-user"]


def test_removing_leaves_what_is_not_its_own(checkpoint):
    checkpoint.save("stage", {"value": np.ones(1)}, {})
    (checkpoint.folder / "notes.txt").write_text("mine")
    checkpoint.remove()
    assert [path.name for path in checkpoint.folder.iterdir()] == ["notes.txt"]
    (checkpoint.folder / "notes.txt").unlink()
    checkpoint.remove()
    assert not checkpoint.folder.exists()
