"""Files answered on a local Ray cluster; `make test-distributed` installs Ray beside the environment."""

import importlib.util
import os
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest
from test_cli_batch import assert_answered, model, write_inputs, xc

from xclearn.errors import DataError, MissingExtra, ProcessError
from xclearn.integrations.ray import over_files

__all__ = ["model"]  # a fixture

HAS_RAY = importlib.util.find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not HAS_RAY, reason="ray is not installed")


@pytest.fixture(autouse=True)
def workers_find_this_file(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))


@dataclass(frozen=True)
class Task:
    """Length of a file; its process dies as often as is asked, and a file named bad is refused."""

    deaths: Path

    def __call__(self, file: Path) -> int:
        if file.name == "bad":
            raise DataError("not a good file", where=str(file), got=0)
        left = int(self.deaths.read_text())
        if left:
            self.deaths.write_text(str(left - 1))
            os.kill(os.getpid(), signal.SIGKILL)
        return len(file.read_text())


def files(folder: Path, *names: str) -> list[Path]:
    for length, name in enumerate(names, 1):
        (folder / name).write_text("x" * length)
    return [folder / name for name in names]


def task(folder: Path, deaths: int) -> Task:
    (folder / "deaths").write_text(str(deaths))
    return Task(folder / "deaths")


@needs_ray
def test_the_command_answers_every_file(model: Path, tmp_path: Path) -> None:
    texts = write_inputs(tmp_path / "in")
    code, said = xc(model, tmp_path / "in", "-k", 3, "-o", tmp_path / "out", "--engine", "ray", "--workers", 2)
    assert code == 0, said
    assert_answered(model, tmp_path / "out", texts)


@needs_ray
def test_a_worker_that_dies_is_replaced(tmp_path: Path) -> None:
    given = files(tmp_path, "a", "b", "c")
    assert sorted(over_files(task(tmp_path, 1), given, 1, gpu=False)) == [1, 2, 3]
    assert (tmp_path / "deaths").read_text() == "0"


@needs_ray
def test_workers_that_die_again_and_again_end_the_job(tmp_path: Path) -> None:
    with pytest.raises(ProcessError, match="workers keep dying"):
        list(over_files(task(tmp_path, 100), files(tmp_path, "a"), 1, gpu=False))


@needs_ray
def test_an_error_comes_back_as_it_was(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        list(over_files(task(tmp_path, 0), files(tmp_path, "bad"), 1, gpu=False))
    assert str(caught.value) == f"{tmp_path / 'bad'}: not a good file; got 0."


@pytest.mark.skipif(HAS_RAY, reason="ray is installed")
def test_without_ray_the_command_says_what_to_install(model: Path, tmp_path: Path) -> None:
    write_inputs(tmp_path / "in", 1)
    code, said = xc(model, tmp_path / "in", "-o", tmp_path / "out", "--engine", "ray")
    assert code == 2
    assert said.splitlines()[-1].endswith("Run pip install 'xclearn[distributed]', or give --workers alone.")
    with pytest.raises(MissingExtra):
        next(over_files(Task(tmp_path), [], 1, gpu=False))
