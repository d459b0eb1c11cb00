"""What happens to the served folder while it is served, and to workers that end: nothing of it reaches an answer."""

import json
import os
import shutil
import signal
import time
from pathlib import Path

import psutil
import pytest
from served import NAMES, WORDS, Server, model_folder, served, wait_for

from xclearn.inference import load_model, save_model

QUESTION = {"texts": [f"a {word}" for word in WORDS], "k": 3}
WORKERS = pytest.mark.parametrize("workers", [1, 2])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(model_folder(), tmp_path / "model")


def started(server: Server) -> list[int]:
    """Every worker so far, in the order of their start."""
    return [one["pid"] for one in server.log() if one["event"] == "start"]


def answers(server: Server, times: int = 20) -> list[object]:
    """Several, so that each worker gives one; those that differ."""
    found = [server.predict(**QUESTION) for _ in range(times)]
    assert {reply.status for reply in found} == {200}
    return [reply.content for i, reply in enumerate(found) if reply.content not in [one.content for one in found[:i]]]


def ready(server: Server, workers: int) -> None:
    wait_for(lambda: len(started(server)) == workers)


def write_in_place(path: Path, content: bytes) -> None:
    """Like `cp` over a file: the same inode, which a mapping would show at once."""
    with path.open("r+b") as stream:
        stream.write(content)
        stream.truncate(len(content))


@WORKERS
def test_copying_another_model_over_the_folder_changes_no_answer_before_a_reload(folder: Path, workers: int) -> None:
    with served(folder, "--workers", str(workers)) as server:
        ready(server, workers)
        before = answers(server)
        assert len(before) == 1
        for name in ("tensors.safetensors", "model.json", "README.md"):
            write_in_place(folder / name, (model_folder(1) / name).read_bytes())
        assert answers(server) == before
        server.process.send_signal(signal.SIGHUP)
        wait_for(lambda: sum(one["event"] == "reload" for one in server.log()) == workers)
        (after,) = answers(server)
        assert after != before[0]
    with served(model_folder(1)) as fresh:
        assert answers(fresh, 1) == [after]


@WORKERS
def test_a_folder_cut_short_or_removed_ends_no_worker_and_changes_no_answer(folder: Path, workers: int) -> None:
    with served(folder, "--workers", str(workers)) as server:
        ready(server, workers)
        before = answers(server)
        os.truncate(folder / "tensors.safetensors", 100)
        assert answers(server) == before
        shutil.rmtree(folder)
        assert answers(server) == before
        assert server.ask("POST", "/explain", {"text": "a dog", "labels": NAMES}).status == 200
        assert len(started(server)) == workers


def test_a_worker_that_starts_after_the_folder_changed_serves_the_model_of_the_others(folder: Path) -> None:
    with served(folder, "--workers", "2") as server:
        ready(server, 2)
        before = answers(server)
        os.truncate(folder / "tensors.safetensors", 100)
        os.kill(started(server)[0], signal.SIGKILL)
        ready(server, 3)
        assert answers(server) == before
        assert server.stop() == 0


@WORKERS
def test_a_changed_folder_is_told_until_it_is_read_again(folder: Path, workers: int) -> None:
    def told() -> tuple[bool, bool]:
        return server.ask("GET", "/readyz").content["stale"], "xclearn_model_stale 1\n" in metrics(server)

    with served(folder, "--workers", str(workers)) as server:
        ready(server, workers)
        assert told() == (False, False)
        model = load_model(folder)
        model.about["note"] = "another"
        save_model(model, folder, replace=True)
        wait_for(lambda: told() == (True, True))
        (event,) = [one for one in server.log() if one["event"] == "folder changed"]
        assert event["folder"] == str(folder)
        assert "SIGHUP" in event["todo"]
        server.process.send_signal(signal.SIGHUP)
        wait_for(lambda: told() == (False, False))
        assert server.ask("GET", "/model").content["about"]["note"] == "another"


def metrics(server: Server) -> str:
    return server.ask("GET", "/metrics").content


@WORKERS
def test_the_copy_is_one_for_all_workers_and_cannot_be_written(folder: Path, workers: int) -> None:
    with served(folder, "--workers", str(workers)) as server:
        ready(server, workers)
        copies = set()
        for pid in started(server):
            mapped = [part for part in psutil.Process(pid).memory_maps(grouped=False) if "memfd:" in part.path]
            assert mapped
            assert not any("w" in part.perms for part in mapped)
            copies |= {
                line.split()[4] for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if "memfd:" in line
            }
            assert not any(str(folder) in part.path for part in psutil.Process(pid).memory_maps())
        assert len(copies) == 1  # one inode


@WORKERS
def test_a_reload_that_fails_for_want_of_memory_is_counted_and_told_and_the_old_model_stays(
    folder: Path, workers: int
) -> None:
    with served(folder, "--workers", str(workers)) as server:
        ready(server, workers)
        before = answers(server)
        model = load_model(folder)
        model.about["note"] = 80_000_000 * "x"  # no fault of the folder: every check of it passes
        save_model(model, folder, replace=True)
        process = psutil.Process(server.process.pid)
        room = process.memory_info().vms + 60_000_000
        process.rlimit(psutil.RLIMIT_AS, (room, room))
        server.process.send_signal(signal.SIGHUP)
        wait_for(lambda: 'xclearn_reloads_total{result="refused"} 1' in metrics(server))
        (event,) = [one for one in server.log() if one["event"] == "reload refused"]
        assert "memory" in event["error"].lower()
        assert answers(server) == before
        assert server.stop() == 0


def test_a_worker_that_dies_again_and_again_is_given_up_and_the_others_serve(folder: Path) -> None:
    with served(folder, "--workers", "2") as server:
        ready(server, 2)
        victim, other = started(server)
        pauses = []
        for _ in range(5):
            ended = time.monotonic()
            os.kill(victim, signal.SIGKILL)
            known = set(started(server))

            def next_or_given_up(known: set[int] = known) -> bool:
                return bool(set(started(server)) - known) or any("giving it up" in line for line in server.said)

            wait_for(next_or_given_up)
            pauses.append(time.monotonic() - ended)
            new = set(started(server)) - known
            victim = new.pop() if new else 0
        assert victim == 0, server.said
        assert pauses[3] > pauses[0], pauses
        told = [line.rsplit(" ", 2)[1] for line in server.said if line.endswith(" s") and "replacing it in" in line]
        assert told == ["0.5", "1", "2", "4"]
        (said,) = [line for line in server.said if "giving it up" in line]
        assert "5 times in a row" in said
        assert len(answers(server)) == 1
        assert psutil.pid_exists(other)
        assert server.stop() == 0


def test_a_server_whose_workers_all_died_says_so_and_fails(folder: Path) -> None:
    with served(folder, "--workers", "2") as server:
        ready(server, 2)
        killed: set[int] = set()
        for _ in range(3000):
            for pid in set(started(server)) - killed:
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
            if server.process.poll() is not None:
                break
            time.sleep(0.02)
        assert server.process.wait(60) not in (0, None)
        wait_for(lambda: any("every worker died" in line for line in server.said if line.startswith("Error: ")))
        assert len(killed) == 10
        assert json.loads(server.log_file.read_text().splitlines()[0])["event"] == "start"
