"""A model is tried in a process of its own: what it says, how it ends, and how long it is waited for."""

import dataclasses
import multiprocessing
import os
import shutil
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from served import model_folder, served, wait_for

from xclearn.errors import ModelError
from xclearn.serving.settings import Settings
from xclearn.serving.trial import candidate, said_by


def hang(process_file: Path, _: Connection) -> None:
    """A model that never answers, and a process that does not listen to reason."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    process_file.write_text(str(os.getpid()))
    while True:
        time.sleep(1)


def say_and_stay(said: str, answer: Connection) -> None:
    """An answer, and then no end."""
    answer.send(said)
    time.sleep(3600)


def end(answer: Connection) -> None:
    """No answer at all."""
    answer.close()
    os._exit(7)


def test_a_process_that_says_nothing_is_killed_and_the_time_is_said(tmp_path: Path) -> None:
    process_file = tmp_path / "process"
    started = time.monotonic()
    with pytest.raises(ModelError, match=r"m: the model took too long; allowed: 15 s\. .*raise --trial-timeout"):
        said_by(hang, (process_file,), 15.0, where="m")
    assert 15 <= time.monotonic() - started < 60
    with pytest.raises(ProcessLookupError):
        os.kill(int(process_file.read_text()), 0)


def test_a_process_that_does_not_end_after_its_answer_is_not_waited_for() -> None:
    assert said_by(say_and_stay, ("all is well",), 120.0, where="m") == "all is well"
    assert multiprocessing.active_children() == []


def test_a_process_that_ends_without_a_word_is_told_by_its_exit_code() -> None:
    with pytest.raises(ModelError, match="m: the model crashed the process that tested it; got 'exit code 7'"):
        said_by(end, (), 120.0, where="m")


def test_a_candidate_is_given_as_long_as_the_setting_says() -> None:
    settings = Settings(model_folder(), trial_timeout=120.0)
    candidate(settings).close()
    with pytest.raises(ModelError, match=r"the model took too long; allowed: 0\.01 s"):
        candidate(dataclasses.replace(settings, trial_timeout=0.01))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_reload_that_takes_too_long_is_refused_and_the_next_is_tried(workers: int, tmp_path: Path) -> None:
    folder = shutil.copytree(model_folder(), tmp_path / "model")
    with served(folder, "--workers", str(workers), "--trial-timeout", "0.01") as server:
        for refused in (1, 2):
            server.process.send_signal(signal.SIGHUP)
            wait_for(lambda wanted=refused: sum(one["event"] == "reload refused" for one in server.log()) == wanted)
        told = [one["error"] for one in server.log() if one["event"] == "reload refused"]
        assert all("the model took too long; allowed: 0.01 s" in each for each in told)
        assert server.predict(text="a dog", k=1).status == 200
