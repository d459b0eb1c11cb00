"""The short form of `make soak`: the same load, abuse and checks, for seconds instead of minutes."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHORT = ("--seconds=12", "--overload-seconds=3", "--capacity-seconds=2", "--beat=4", "--labels=50000", "--no-record")
ROOM = "--room=100"  # MiB: seconds are too few to have seen every kind of request before memory is first looked at


def test_no_answer_is_wrong_or_lost_under_load_and_abuse() -> None:
    command = [sys.executable, "-m", "benchmarks.speed.soak", *SHORT, ROOM]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("'wrong': 0, '5xx': 0") == 2
