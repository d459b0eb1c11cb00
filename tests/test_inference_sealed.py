"""The private copy of a model's files: what is hashed is what is mapped, and nobody can change it."""

import os
import shutil
from pathlib import Path

import handmade
import numpy as np
import pytest

from xclearn.errors import ModelError
from xclearn.inference import Model, Predictor, load_model, save_model
from xclearn.inference.sealed import seal

needs_memory_files = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has no memory files")
TEXTS = ["blue red", "green", ""]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_model(handmade.model(), tmp_path / "model")
    return tmp_path / "model"


def scores(model: Model) -> np.ndarray:
    return Predictor(model).predict(TEXTS, 4).scores


def test_the_copy_gives_the_answers_of_the_folder_and_keeps_them_when_the_folder_is_gone(folder: Path) -> None:
    expected = scores(load_model(folder))
    sealed = seal(folder)
    model = sealed.model()
    shutil.rmtree(folder)
    assert np.array_equal(scores(model), expected)
    assert np.array_equal(scores(sealed.model()), expected)
    sealed.close()
    assert np.array_equal(scores(model), expected)  # what is mapped stays


@needs_memory_files
def test_nobody_can_write_or_cut_the_copy(folder: Path) -> None:
    sealed = seal(folder)
    for change in (lambda: os.pwrite(sealed.tensors, b"x", 0), lambda: os.ftruncate(sealed.tensors, 0)):
        with pytest.raises(PermissionError):
            change()
    with open(f"/proc/self/fd/{sealed.tensors}", "r+b", buffering=0) as again, pytest.raises(PermissionError):
        again.write(b"x")
    sealed.close()


@pytest.mark.parametrize("name", ["model.json", "tensors.safetensors", "README.md"])
def test_a_byte_that_is_not_what_was_written_is_refused_and_no_copy_is_left(folder: Path, name: str) -> None:
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    open_before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ModelError, match=r"changed after|damaged") as caught:
        seal(folder)
    assert name in str(caught.value.where)
    assert len(os.listdir("/proc/self/fd")) == open_before


def changes(folder: Path) -> dict[str, object]:
    return {
        "tensors are touched": lambda: os.utime(folder / "tensors.safetensors", (1, 1)),
        "tensors are cut": lambda: os.truncate(folder / "tensors.safetensors", 10),
        "another folder took its place": lambda: save_model(handmade.model(), folder, replace=True),
        "the description is gone": lambda: (folder / "model.json").unlink(),
        "all is gone": lambda: shutil.rmtree(folder),
    }


@pytest.mark.parametrize("change", list(changes(Path())))
def test_a_change_of_the_folder_is_seen(folder: Path, change: str) -> None:
    sealed = seal(folder)
    assert not sealed.changed()
    changes(folder)[change]()  # type: ignore[operator]
    assert sealed.changed()
    sealed.close()


def test_a_folder_that_holds_no_model_is_told(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no model here"):
        seal(tmp_path)
