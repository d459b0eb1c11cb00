"""`make chaos`: training killed, cut, refused and doubled, at every call; rows of `results/chaos.csv`.

Each part prints what is wrong and ends with a row: how many trials, and in how many something was wrong. Exit code 1 if
there is any. `--part` and `--algorithm` choose; cuts and full disks need root and loop devices, and are skipped aloud.
"""

from __future__ import annotations

import argparse
import errno
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.chaos import image
from benchmarks.chaos.trial import SAID, Flow, Trials, kill
from benchmarks.chaos.watched import Operation, fork_and_wait, preloaded
from benchmarks.record import record

Found = Iterator[tuple[dict[str, str], int, list[str]]]
"""Of each series: what was tried, how often, and what was wrong."""

RANDOM_KILLS, DOUBLED = 10, 10
ROOM = range(4, 240, 8)  # KiB: from almost nothing to enough
ERRORS = (errno.ENOSPC, errno.EACCES, errno.EIO)
TINY = "one_vs_all"


def kills(asked: argparse.Namespace, folder: Path) -> Found:
    """SIGKILL before every call, and at random moments, for every algorithm."""
    for algorithm in asked.algorithm:
        for overwrite in (False, True) if algorithm == TINY else (False,):
            trials = Trials(Flow(algorithm, overwrite), folder / f"{algorithm}-{overwrite}")
            calls = chosen(trials, asked.every)
            about = {"part": "SIGKILL at a call", "algorithm": algorithm, "flow": _flow(overwrite)}
            yield about, len(calls), each_call(trials, calls, kill)
        yield about | {"part": "SIGKILL at a moment"}, RANDOM_KILLS, _at_random(trials)


def refusals(asked: argparse.Namespace, folder: Path) -> Found:
    """Every call fails once: a full disk, no permission, a broken disk."""
    for overwrite in (False, True):
        trials = Trials(Flow(TINY, overwrite), folder / f"refused-{overwrite}")
        calls = chosen(trials, asked.every)
        for number in ERRORS:
            about = {
                "part": f"a call fails with {errno.errorcode[number]}",
                "algorithm": TINY,
                "flow": _flow(overwrite),
            }
            yield about, len(calls), each_call(trials, calls, failing(number))


def cuts(asked: argparse.Namespace, folder: Path) -> Found:
    """A power cut at every call, on real file systems."""
    for kind in image.KINDS:
        if not image.available(kind):
            print(f"skipped: no {kind} image can be made and mounted here", flush=True)
            continue
        for overwrite in (False, True):
            place = folder / f"{kind}-{overwrite}"
            trials = Trials(Flow(TINY, overwrite), place)
            calls = chosen(trials, asked.every)
            disk = image.Image(kind, place)
            for way in disk.cuts:
                about = {"part": f"power cut, {way}", "algorithm": TINY, "flow": _flow(overwrite), "file_system": kind}
                wrong = [
                    f"{call.name} {call.path}: {what}"
                    for number, call in calls
                    for what in disk.struck(trials, number, way)
                ]
                yield about, len(calls), wrong


def full_disks(_: argparse.Namespace, folder: Path) -> Found:
    """A tmpfs with a little more room each time; then with enough."""
    if not image.available("ext4"):
        print("skipped: no tmpfs can be mounted here", flush=True)
        return
    for overwrite in (False, True):
        place = folder / f"full-{overwrite}"
        trials = Trials(Flow(TINY, overwrite), place)
        mounted = place / "mounted"
        mounted.mkdir()
        about = {"part": "full disk", "algorithm": TINY, "flow": _flow(overwrite), "file_system": "tmpfs"}
        wrong = [f"{room} KiB: {what}" for room in ROOM for what in _in_a_small_disk(trials, mounted, room)]
        yield about, len(ROOM), wrong


def permissions(_: argparse.Namespace, folder: Path) -> Found:
    """As a user who may not write there."""
    if os.geteuid() != 0:
        print("skipped: only root can become another user", flush=True)
        return
    for overwrite in (False, True):
        trials = Trials(Flow(TINY, overwrite), folder / f"forbidden-{overwrite}")
        folder.chmod(0o755)
        yield {"part": "no permission", "algorithm": TINY, "flow": _flow(overwrite)}, 1, _forbidden(trials)


def doubled(_: argparse.Namespace, folder: Path) -> Found:
    """Two trainings into one folder at once."""
    for overwrite in (False, True):
        trials = Trials(Flow(TINY, overwrite), folder / f"doubled-{overwrite}")
        wrong = [what for _ in range(DOUBLED) for what in two_at_once(trials)]
        yield {"part": "two trainings into one folder", "algorithm": TINY, "flow": _flow(overwrite)}, DOUBLED, wrong


PARTS: dict[str, Callable[[argparse.Namespace, Path], Found]] = {
    "kills": kills,
    "refusals": refusals,
    "cuts": cuts,
    "full_disks": full_disks,
    "permissions": permissions,
    "doubled": doubled,
}


def _flow(overwrite: bool) -> str:
    return "over an old model" if overwrite else "a new model"


def chosen(trials: Trials, every: int, first: int = 0) -> list[tuple[int, Operation]]:
    """Calls of an undisturbed run with their numbers."""
    return list(enumerate(trials.calls()))[first::every]


def each_call(trials: Trials, calls: list[tuple[int, Operation]], blow: Callable[[Operation], int]) -> list[str]:
    """What is wrong after a blow at each of these calls, by their number in an undisturbed run."""
    wrong = []
    for number, call in calls:
        trials.prepare()
        wrong += [f"{call.name} {call.path}: {what}" for what in trials.struck(number, blow)]
    return wrong


def failing(number: int) -> Callable[[Operation], int]:
    """A blow: the call fails with this error number."""
    return lambda _: number


def _at_random(trials: Trials) -> list[str]:
    """The undisturbed time is drawn from, so that some are killed early and some late."""
    draw = random.Random(0)
    trials.prepare()
    started = time.perf_counter()
    fork_and_wait(trials.run)
    seconds = time.perf_counter() - started
    wrong = []
    for _ in range(RANDOM_KILLS):
        trials.prepare()
        moment = draw.random() * seconds
        fork_and_wait(trials.run, kill_after=moment)
        said = (trials.work / SAID).exists()
        wrong += [f"after {moment:.3f} s: {what}" for what in trials.wrong_after_the_blow(said)]
        wrong += [f"after {moment:.3f} s: {what}" for what in trials.wrong_after_another_run()]
    return wrong


def _in_a_small_disk(trials: Trials, mounted: Path, room: int) -> list[str]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", str(mounted)], check=True)
    try:
        trials.prepare(mounted / "work")
        used = shutil.disk_usage(mounted).used >> 10
        subprocess.run(["mount", "-o", f"remount,size={used + room}k", str(mounted)], check=True)
        code = fork_and_wait(trials.run)
        wrong = [] if code in (0, 2) else [f"the run ended with {code}"]
        half = [path.name for path in trials.work.iterdir() if path.name.endswith(".tmp")]
        wrong += [f"left behind: {half}"] if half else []
        wrong += trials.wrong_after_the_blow(said=code == 0)
        subprocess.run(["mount", "-o", "remount,size=64m", str(mounted)], check=True)
        return wrong + trials.wrong_after_another_run()
    finally:
        subprocess.run(["umount", str(mounted)], check=True)


def _forbidden(trials: Trials) -> list[str]:
    trials.prepare()
    before = {path: path.read_bytes() for path in trials.work.rglob("*") if path.is_file()}

    def as_nobody() -> None:
        os.setgid(65534)
        os.setuid(65534)
        trials.run()

    code = fork_and_wait(as_nobody)
    wrong = [] if code == 2 else [f"the run ended with {code}"]
    after = {path: path.read_bytes() for path in trials.work.rglob("*") if path.is_file()}
    return wrong + ([] if after == before else ["something has changed"])


def two_at_once(trials: Trials) -> list[str]:
    """What is wrong after two runs that start together."""
    trials.prepare()
    codes: list[int] = []
    together = [threading.Thread(target=lambda: codes.append(fork_and_wait(trials.run))) for _ in range(2)]
    for each in together:
        each.start()
    for each in together:
        each.join()
    wrong = [] if 0 in codes and set(codes) <= {0, 2} else [f"they ended with {codes}"]
    return wrong + trials.wrong_at_the_end()


def main() -> int:
    from xclearn.algorithms import algorithm_names

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--algorithm", nargs="*", default=sorted(algorithm_names()))
    parser.add_argument("--every", type=int, default=1, help="only every n-th call")
    arguments = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for part in arguments.part:
            started = time.perf_counter()
            for about, trials, wrong in PARTS[part](arguments, Path(folder)):
                seconds = round(time.perf_counter() - started, 1)
                started = time.perf_counter()
                print("\n".join([*wrong, f"{about}: {trials} trials, {len(wrong)} wrong, {seconds} s"]), flush=True)
                record("chaos", {"seed": 0, **about, "trials": trials, "wrong": len(wrong), "seconds": seconds})
                failed += len(wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    if "LD_PRELOAD" not in os.environ:
        with tempfile.TemporaryDirectory() as built:
            # One thread: a process with waiting threads cannot be forked.
            environment = preloaded(Path(built)) | {"OMP_NUM_THREADS": "1"}
            command = [sys.executable, "-m", "benchmarks.chaos.run", *sys.argv[1:]]
            sys.exit(subprocess.run(command, env=environment, check=False).returncode)
    sys.exit(main())
