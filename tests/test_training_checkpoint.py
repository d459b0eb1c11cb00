"""Checkpoint files: whole or not there, of one run only. Resuming itself is in contract/test_resume.py."""

import numpy as np
import pytest
import torch

from xclearn.errors import ModelError
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
    with pytest.raises(ModelError, match="of another run"):
        Checkpoint(checkpoint.folder).open("other", resume=True)
    with pytest.raises(ModelError, match="in the way"):
        Checkpoint(checkpoint.folder).open("fingerprint", resume=False)


def test_removing_leaves_what_is_not_its_own(checkpoint):
    checkpoint.save("stage", {"value": np.ones(1)}, {})
    (checkpoint.folder / "notes.txt").write_text("mine")
    checkpoint.remove()
    assert [path.name for path in checkpoint.folder.iterdir()] == ["notes.txt"]
    (checkpoint.folder / "notes.txt").unlink()
    checkpoint.remove()
    assert not checkpoint.folder.exists()
