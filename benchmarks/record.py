"""Rows of benchmarks/results/*.csv: figures with the commit, machine, seed, command and settings that made them.

The column `resolved` names a line of settings.jsonl beside the CSV: every setting of the run, defaults included.
"""

from __future__ import annotations

import csv
import datetime
import fcntl
import hashlib
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xclearn import config

if TYPE_CHECKING:
    from xclearn.training.algorithm import Algorithm

RESULTS = Path(__file__).parent / "results"


def record(name: str, values: Mapping[str, Any], folder: Path = RESULTS) -> None:
    """Append one row to `name`.csv; columns that the file does not have yet are added to it."""
    path = folder / f"{name}.csv"
    row = {"date": f"{datetime.date.today()}", "commit": commit(), "machine": machine(), "command": command(), **values}
    folder.mkdir(parents=True, exist_ok=True)
    with path.open("a+", newline="", encoding="utf-8") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)  # several runs may record at once: no row is lost
        stream.seek(0)
        reader = csv.DictReader(stream)
        columns = list(dict.fromkeys([*(reader.fieldnames or []), *row]))
        if columns == reader.fieldnames:  # what is there is not written again
            csv.DictWriter(stream, columns, lineterminator="\n").writerow(row)
            return
        rows = list(reader)
        stream.truncate(0)
        writer = csv.DictWriter(stream, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows([*rows, row])


def resolved(algorithm: Algorithm, folder: Path = RESULTS) -> str:
    """The id of all settings of a fitted algorithm, which are kept in settings.jsonl under it."""
    settings = {"algorithm": algorithm.name, **config.to_plain(algorithm), **algorithm.resolved_}
    found = json.dumps(settings, sort_keys=True)
    identity = hashlib.sha256(found.encode()).hexdigest()[:12]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "settings.jsonl").open("a+", encoding="utf-8") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        stream.seek(0)
        if not any(json.loads(line)["id"] == identity for line in stream):
            stream.write(json.dumps({"id": identity, "settings": settings}, sort_keys=True) + "\n")
    return identity


def commit() -> str:
    """The commit measured: from the environment where there is no repository."""
    if "XCLEARN_COMMIT" in os.environ:
        return os.environ["XCLEARN_COMMIT"]
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def machine() -> str:
    """The accelerator if there is one, else the processor, its cores and how many of them torch may use."""
    import torch

    if torch.cuda.is_available():
        return f"{torch.cuda.get_device_name()} torch {torch.__version__}"
    threads = torch.get_num_threads()
    return f"{os.cpu_count()} cores {platform.machine()} {threads} threads torch {torch.__version__}"


def command() -> str:
    """How to run it again, without the paths of this machine."""
    root = RESULTS.parents[1]
    module = Path(sys.argv[0]).resolve().relative_to(root).with_suffix("")
    arguments = [os.path.relpath(each, root) if each.startswith("/") else each for each in sys.argv[1:]]
    return shlex.join(["python", "-m", ".".join(module.parts), *arguments])
