"""A process that trains, and is killed where it is told to be. Run by test_resume.py; stdin: a JSON list of runs.

Each run is a fork of its own: a SIGKILL ends a real process in the middle of its work, and torch is loaded only once.
"""

import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from planted import planted
from quick import epochs_everywhere

from xclearn import algorithms, config


class Killer:
    """Ends this process at the `count`-th event of the training log, or file operation, that the spot names.

    With `after`, events count from the first event of that kind on.
    """

    def __init__(self, spot: Mapping[str, Any] | None, log: Path) -> None:
        self.spot, self.log, self.left = spot or {}, log, (spot or {}).get("count", 0)
        self.begun = "after" not in self.spot

    def event(self, event: Mapping[str, Any]) -> None:
        if event["event"] != "step":
            with self.log.open("a") as stream:
                stream.write(json.dumps(event) + "\n")
        self.met(self.begun and event["event"] == self.spot.get("event"))
        self.begun |= event["event"] == self.spot.get("after")

    def audit(self, operation: str, arguments: tuple[Any, ...]) -> None:
        wanted = self.spot.get("operation") == operation
        parts = Path(os.fspath(arguments[0])).parts if wanted else ()
        self.met(any(part.startswith(self.spot["file"]) for part in parts))

    def met(self, here: bool) -> None:
        self.left -= here
        if here and self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def train(run: Mapping[str, Any]) -> None:
    name, out = run["algorithm"], Path(run["out"])
    killer = Killer(run.get("kill"), out.with_suffix(".log"))
    sys.addaudithook(killer.audit)
    algorithm = config.build(algorithms.find(name), run["settings"], name)
    data, checkpoint = planted(train=5), run["checkpoint"]
    algorithm.fit(data, device="cpu", checkpoint=checkpoint, resume=run["resume"], callback=killer.event)
    algorithm.save(out)


def load_all(runs: Sequence[Mapping[str, Any]]) -> None:
    """A first fit loads much of torch; the forks then need not."""
    for name in {run["algorithm"] for run in runs}:
        algorithms.find(name)(**epochs_everywhere(name, 1)).fit(planted(n_labels=2), device="cpu")


def start(run: Mapping[str, Any]) -> int:
    """The process id of a fork that trains."""
    child = os.fork()
    if child == 0:
        train(run)
        os._exit(0)
    return child


def main() -> None:
    runs, endings = json.loads(sys.stdin.read()), []
    load_all(runs)
    at_once = os.cpu_count() or 1
    for i in range(0, len(runs), at_once):
        children = [start(run) for run in runs[i : i + at_once]]
        endings += [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    print(json.dumps(endings))


if __name__ == "__main__":
    main()
