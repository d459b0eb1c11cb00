"""The fixed seeds of the fuzzer of all readers; `make fuzz-readers` runs more of them."""

import subprocess
import sys
from pathlib import Path


def test_no_hostile_file_crashes_hangs_or_raises_what_is_not_ours() -> None:
    """In a process of its own, before threads start: its cases are run in forks of it."""
    command = [sys.executable, "-m", "tests.fuzz.readers", "--seeds", "0", "600"]
    ran = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.startswith("600 seeds")
    counts = dict(part.split(": ") for part in ran.stdout.split("MiB: {")[1].rstrip("}\n").replace("'", "").split(", "))
    assert min(int(counts["done"]), int(counts["refused"])) > 60, "the cases are all sound, or all broken at once"
