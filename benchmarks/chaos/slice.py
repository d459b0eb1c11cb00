"""A few trials of each kind, for the tests: kills and refusals at every seventh call, two races. JSON on stdout."""

from __future__ import annotations

import errno
import json
import sys
from pathlib import Path

from benchmarks.chaos.run import TINY, chosen, each_call, failing, two_at_once
from benchmarks.chaos.trial import Flow, Trials, kill

EVERY, RACES = 7, 2


def main() -> None:
    folder = Path(sys.argv[1])
    fresh = Trials(Flow(TINY, overwrite=False), folder / "fresh")
    over = Trials(Flow(TINY, overwrite=True), folder / "over")
    fresh_calls = chosen(fresh, EVERY)
    over_calls = chosen(over, EVERY, first=3)
    wrong = {
        "killed": each_call(fresh, fresh_calls, kill),
        "killed over an old model": each_call(over, over_calls, kill),
        "refused": each_call(over, over_calls, failing(errno.ENOSPC)),
        "doubled": [what for _ in range(RACES) for what in two_at_once(fresh)],
    }
    counts = {"killed": len(fresh_calls), "doubled": RACES}
    found = {part: {"trials": counts.get(part, len(over_calls)), "wrong": each} for part, each in wrong.items()}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
