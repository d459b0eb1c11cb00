"""`python -m tests.fuzz readers`: every reader of files, on hostile ones."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pyarrow.parquet  # noqa: F401 (loaded once, before the children are forked)
from tests.fuzz.sandbox import judge

from xclearn.data import load_dataset, statistics, validate


def look_at(path: Path) -> None:
    """What `xc data stats` and `xc data validate` do."""
    dataset = load_dataset(path)
    statistics(dataset)
    validate(dataset)


def main(arguments: Sequence[str]) -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz readers", description=__doc__)
    parser.add_argument("--paths", type=Path, nargs="+", help="read these data sets and print how each ended, as JSON")
    chosen = parser.parse_args(arguments)
    for outcome in judge([partial(look_at, path) for path in chosen.paths]):
        print(json.dumps(outcome._asdict()))
