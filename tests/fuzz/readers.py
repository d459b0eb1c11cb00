"""`python -m tests.fuzz.readers`: every reader of files, on hostile versions of valid ones, under every compression.

A seed is a case: `--seed 17 --keep FOLDER` writes what it read. Allowed are success and an error of our tree.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random

import pyarrow.parquet  # noqa: F401 (loaded once, before the children are forked)
import rdflib  # noqa: F401
from tests.fuzz.hostile import PACKERS, SETS, damage_packing, mutate
from tests.fuzz.sandbox import Outcome, judge

from xclearn.data import Dataset, load_dataset, read_documents, statistics, validate, write_dataset
from xclearn.data.dataset import kind_of
from xclearn.errors import XclearnError
from xclearn.labels.graph import read_edges
from xclearn.text.word_vectors import read_word_vectors

_BOMB = 6_000_000  # bytes a few hundred times smaller when packed


def write_case(seed: int, folder: Path) -> str:
    """Write the files of this seed into a new folder; the name of the valid set that they were comes back."""
    random = Random(seed)
    name = random.choice(sorted(SETS))
    folder.mkdir()
    for file, data in SETS[name](random).items():
        for _ in range(random.choice([0, 0, 1, 1, 2])):
            data = mutate(file, data, random)
        if not file.endswith((".npz", ".npy", ".parquet")) or random.random() < 0.02:
            file, data = _packed(file, data, random)
        if random.random() < 0.02:
            (folder / file).mkdir()
        elif random.random() > 0.02:
            (folder / file).write_bytes(data)
    if random.random() < 0.05:
        rival = random.choice(["train.csv", "dataset.json", "labels.txt", "dev.jsonl", "Yf.txt"])
        (folder / rival).write_bytes(b"a,b\n1 2\n")
    return name


def _packed(file: str, data: bytes, random: Random) -> tuple[str, bytes]:
    suffix = random.choice(["", *PACKERS])
    if not suffix or file == "dataset.json":
        return file, data
    if random.random() < 0.03:
        data += random.choice([b"\n", b"a", b"0 ", b"0:1 ", b'{"text": "", "labels": []}\n']) * (_BOMB // 4)
    packed = PACKERS[suffix](data)
    return file + suffix, damage_packing(packed, random) if random.random() < 0.25 else packed


def look_at(path: Path) -> None:
    """What `xc data stats` and `xc data validate` do."""
    dataset = load_dataset(path)
    statistics(dataset)
    validate(dataset)


def read_case(name: str, folder: Path) -> None:
    """Give the files to the readers that they are for; a set is also written and read back, and must be the same."""
    if name == "documents":
        _read_each(folder, lambda path: sum(map(len, read_documents(path))))
    elif name == "vectors":
        _read_each(folder, lambda path: read_word_vectors(path, ["paper", "jam", "é"]))
    elif name == "edges":
        _read_each(folder, lambda path: read_edges(path, ["x", "y", "z"]))
    elif name == "skos":
        _read_with_vocabulary(folder)
    else:
        look_at(folder)
        _round_trip(load_dataset(folder), folder / "copy")


def _read_with_vocabulary(folder: Path) -> None:
    """A corpus with its vocabulary as `--vocab`, and the relations of this as a graph of labels."""
    vocabulary = min(folder.glob("vocabulary.*"), default=folder / "none")
    with contextlib.suppress(XclearnError):  # not every form has relations; what follows is another reader
        read_edges(vocabulary, ["http://e/x", "http://e/y"])
    dataset = load_dataset(min(folder.glob("train.*"), default=folder / "none"), vocab=vocabulary)
    statistics(dataset)
    validate(dataset)


def _read_each(folder: Path, read: Callable[[Path], object]) -> None:
    for path in sorted(folder.iterdir()):
        read(path)


def _round_trip(dataset: Dataset, folder: Path) -> None:
    write_dataset(dataset, folder, "jsonl" if kind_of(dataset.train.documents) == "texts" else "npz")
    again = load_dataset(folder)
    assert list(again.labels.names) == list(dataset.labels.names)
    assert (again.train.relevance != dataset.train.relevance).nnz == 0
    assert list(again.splits) == list(dataset.splits)


def run_seed(seed: int, root: Path) -> None:
    """A case from its seed; its folder is gone afterwards."""
    folder = root / str(seed)
    try:
        read_case(write_case(seed, folder), folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def fuzz(seeds: Sequence[int]) -> dict[int, Outcome]:
    """The outcome of each seed."""
    with tempfile.TemporaryDirectory(prefix="xclearn-fuzz-") as root:
        outcomes = judge([partial(run_seed, seed, Path(root)) for seed in seeds])
    return dict(zip(seeds, outcomes, strict=True))


def main(arguments: Sequence[str]) -> None:
    """Parse and run; exit with 1 if a case ended as none may."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.readers", description=__doc__)
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 1000), metavar=("FIRST", "END"))
    parser.add_argument("--seed", type=int, help="only this case")
    parser.add_argument("--keep", type=Path, help="write the files of --seed here, and do not read them")
    parser.add_argument("--paths", type=Path, nargs="+", help="read these data sets and print how each ended, as JSON")
    parser.add_argument("--record", action="store_true", help="add a row to benchmarks/results/fuzz_readers.csv")
    chosen = parser.parse_args(arguments)
    if chosen.paths:
        for outcome in judge([partial(look_at, path) for path in chosen.paths]):
            print(json.dumps(outcome._asdict()))
        return
    if chosen.keep:
        print(write_case(chosen.seed, chosen.keep))
        return
    seeds = range(*chosen.seeds) if chosen.seed is None else [chosen.seed]
    start = time.monotonic()
    outcomes = fuzz(seeds)
    _report(outcomes, time.monotonic() - start)
    if chosen.record:
        _record(outcomes, time.monotonic() - start)
    sys.exit(not all(outcome.good for outcome in outcomes.values()))


def _report(outcomes: dict[int, Outcome], seconds: float) -> None:
    for seed, outcome in outcomes.items():
        if not outcome.good:
            print(f"seed {seed}: {outcome.kind} {outcome.detail}")
    counts = Counter(outcome.kind for outcome in outcomes.values())
    peak = max(outcome.peak_mib for outcome in outcomes.values())
    print(f"{len(outcomes)} seeds in {seconds:.0f} s, peak {peak} MiB: {dict(counts)}")


def _record(outcomes: dict[int, Outcome], seconds: float) -> None:
    from benchmarks.record import record

    counts = Counter(outcome.kind for outcome in outcomes.values())
    peak = max(outcome.peak_mib for outcome in outcomes.values())
    record(
        "fuzz_readers",
        {
            "kind": "readers",
            "first_seed": min(outcomes),
            "seeds": len(outcomes),
            "crashes": counts["crash"],
            "hangs": counts["hang"],
            "foreign_exceptions": counts["foreign"],
            "peak_mib": peak,
            "seconds": round(seconds),
        },
    )


if __name__ == "__main__":
    main(sys.argv[1:])
