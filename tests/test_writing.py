"""Atomic writing: on a disk that fails, beside writers that died, and after power cuts that are worked out."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.chaos.disk import Disk
from benchmarks.chaos.watched import Operation, preloaded

from xclearn import writing
from xclearn.errors import DataError
from xclearn.writing import atomic_folder, atomic_path, locked, remove_folder, remove_leftovers

NEEDS_FORK = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
NEEDS_PRELOADING = pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("cc"), reason="needs Linux and a C compiler"
)


def write_and_fail(path: Path) -> None:
    path.write_text("half")
    raise KeyError


def test_atomic_path_replaces_on_success_only(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")
    with pytest.raises(KeyError), atomic_path(path) as temporary:
        write_and_fail(temporary)
    assert path.read_text() == "old"
    with atomic_path(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
        assert temporary.stat().st_dev == path.stat().st_dev  # on one file system, or it could not be moved
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["file.txt"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs the device that is always full")
@pytest.mark.parametrize("manager", [atomic_path, atomic_folder])
def test_a_full_disk_is_our_error_and_leaves_nothing(tmp_path: Path, manager: Any) -> None:
    def fill() -> None:
        with open("/dev/full", "w") as file:
            file.write("x")

    with pytest.raises(DataError, match=os.strerror(errno.ENOSPC)), manager(tmp_path / "target"):
        fill()
    assert os.listdir(tmp_path) == []


def test_writing_where_there_is_no_folder_is_our_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="writing failed"), atomic_path(tmp_path / "absent" / "file") as temporary:
        temporary.write_text("x")


def test_atomic_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    folder = tmp_path / "inner" / "folder"
    with pytest.raises(KeyError), atomic_folder(folder) as temporary:
        write_and_fail(temporary / "half")
    assert not folder.exists()
    with atomic_folder(folder) as temporary:
        (temporary / "whole").write_text("x")
        assert not folder.exists()
    assert os.listdir(folder) == ["whole"]
    assert os.listdir(folder.parent) == ["folder"]


def test_atomic_folder_refuses_what_it_would_overwrite_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    for target, what in ((tmp_path, "not empty"), (tmp_path / "mine", "in the way")):
        with pytest.raises(DataError, match=what), atomic_folder(target):
            pytest.fail("the block ran")
    assert (tmp_path / "mine").read_text() == "precious"


def test_atomic_folder_replaces_its_files_and_keeps_others(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "ours").write_text("old")
    (folder / "notes").write_text("precious")
    with atomic_folder(folder, replace=True) as temporary:
        (temporary / "ours").write_text("new")
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"ours": "new", "notes": "precious"}
    assert os.listdir(tmp_path) == ["folder"]


# Power cuts


@pytest.fixture(scope="module")
def cuts(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Each scenario of benchmarks/chaos/power.py, with every call of it as the last before a cut."""
    folder = tmp_path_factory.mktemp("power")
    command = [sys.executable, "-m", "benchmarks.chaos.power", str(folder)]
    environment = preloaded(folder) | {"OMP_NUM_THREADS": "1"}
    root = Path(__file__).parents[1]
    ran = subprocess.run(command, env=environment, cwd=root, check=True, stdout=subprocess.PIPE, encoding="utf-8")
    return [json.loads(line) for line in ran.stdout.splitlines()]


@NEEDS_PRELOADING
@pytest.mark.parametrize("number", range(3), ids=["train", "overwrite", "overwrite without exchange"])
def test_after_a_power_cut_there_is_the_old_model_or_the_new_one(cuts: list[dict[str, Any]], number: int) -> None:
    assert cuts[number]["states"] > 100
    assert cuts[number]["lost"] == []


def test_the_disk_loses_what_was_not_synced(tmp_path: Path) -> None:
    """Else the test above could not fail."""
    (tmp_path / "old").write_text("old")
    disk = Disk(tmp_path)
    temporary, target = str(tmp_path / "new"), str(tmp_path / "old")
    disk.apply(Operation("create", temporary))
    (tmp_path / "new").write_text("new")
    disk.apply(Operation("rename", temporary, target))
    assert disk.states() == [{"old": b"old"}, {"old": b""}]  # the new name without its content
    os.replace(temporary, target)
    disk.apply(Operation("fsync", target))
    assert disk.states() == [{"old": b"old"}, {"old": b"new"}]
    disk.apply(Operation("fsync", str(tmp_path)))
    assert disk.states() == [{"old": b"new"}] * 2


# What other writers left


def killed(work: Callable[[], None]) -> None:
    """A fork that is killed by the work it does."""
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def kill_self(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def write_and_die(manager: Any, path: Path) -> None:
    with manager(path) as temporary:
        (temporary if manager is atomic_path else temporary / "half").write_text("half")
        kill_self()


@NEEDS_FORK
@pytest.mark.parametrize("manager", [atomic_path, atomic_folder])
def test_what_a_killed_writer_left_goes_with_the_next_write(tmp_path: Path, manager: Any) -> None:
    for name in ("a.b", "a"):
        killed(lambda name=name: write_and_die(manager, tmp_path / name))  # type: ignore[misc]
    assert len(os.listdir(tmp_path)) == 2
    with manager(tmp_path / "a") as temporary:
        (temporary if manager is atomic_path else temporary / "whole").write_text("whole")
    assert "a" in os.listdir(tmp_path)
    assert [name[:5] for name in os.listdir(tmp_path) if name != "a"] == [".a.b."]  # not of this path
    remove_leftovers(tmp_path / "a.b")
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("manager", [atomic_path, atomic_folder])
def test_a_writer_that_lives_is_left_alone(tmp_path: Path, manager: Any) -> None:
    with manager(tmp_path / "a") as temporary:
        remove_leftovers(tmp_path / "a")
        (temporary if manager is atomic_path else temporary / "whole").write_text("x")
    assert (tmp_path / "a").exists()


def test_what_only_looks_like_a_leftover_stays(tmp_path: Path) -> None:
    (tmp_path / ".a.0123456789ab.tmp").write_text("a file")
    for name in (".a.0123456789abc.tmp", ".a.0123456789ab.old", "a.0123456789ab.tmp", ".b.0123456789ab.tmp"):
        (tmp_path / name).mkdir()
    (tmp_path / ".a.ba9876543210.tmp").mkdir()
    (tmp_path / ".a.ba9876543210.tmp" / "notes").write_text("without our lock")
    before = set(tmp_path.rglob("*"))
    remove_leftovers(tmp_path / "a")
    assert set(tmp_path.rglob("*")) == before


@NEEDS_FORK
def test_a_writer_killed_between_two_renames_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no exchange, the old folder is away for a moment. The next write brings it back."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "ours").write_text("old")
    monkeypatch.setattr(writing, "_exchange", lambda *_: False)
    rename = os.rename

    def work() -> None:
        os.rename = lambda *paths: (rename(*paths), kill_self())
        with atomic_folder(folder, replace=True) as temporary:
            (temporary / "ours").write_text("new")

    killed(work)
    assert not folder.exists()
    remove_leftovers(folder)
    assert (folder / "ours").read_text() == "old"
    assert os.listdir(tmp_path) == ["folder"]


def test_without_exchange_a_folder_is_replaced_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "_exchange", lambda *_: False)
    test_atomic_folder_replaces_its_files_and_keeps_others(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux swaps two folders")
def test_a_folder_is_never_away_while_it_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    renamed: list[str] = []
    monkeypatch.setattr(os, "rename", lambda old, new: renamed.append(f"{old} to {new}"))
    test_atomic_folder_replaces_its_files_and_keeps_others(tmp_path)
    assert renamed == []


def test_a_folder_that_others_fill_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    def write(temporary: Path) -> None:
        (temporary / "ours").write_text("x")
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder" / "theirs").write_text("y")

    with pytest.raises(DataError, match="not empty"), atomic_folder(tmp_path / "folder") as temporary:
        write(temporary)
    assert [path.name for path in tmp_path.rglob("*")] == ["folder", "theirs"]


def test_folders_and_links_beside_the_replaced_files_stay(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "notes").write_text("precious")
    (folder / "nowhere").symlink_to("absent")
    with atomic_folder(folder, replace=True) as temporary:
        (temporary / "ours").write_text("new")
    assert (folder / "inner" / "notes").read_text() == "precious"
    assert os.readlink(folder / "nowhere") == "absent"
    assert {path.name for path in tmp_path.rglob("*")} == {"folder", "inner", "notes", "nowhere", "ours"}


def test_a_removed_folder_is_gone_at_once(tmp_path: Path) -> None:
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    (tmp_path / "folder" / "inner" / "file").write_text("x")
    remove_folder(tmp_path / "folder")
    assert os.listdir(tmp_path) == []


# Locks


@pytest.mark.skipif(sys.platform == "win32", reason="there are no locks")
def test_a_lock_is_held_by_one_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locked(path) as first, locked(path) as second:
        assert (first, second) == (True, False)
    assert os.listdir(tmp_path) == []
    with locked(path) as third:
        assert third


@NEEDS_FORK
def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    def work() -> None:
        with locked(tmp_path / "lock"):
            kill_self()

    killed(work)
    assert os.listdir(tmp_path) == ["lock"]
    with locked(tmp_path / "lock") as is_ours:
        assert is_ours
