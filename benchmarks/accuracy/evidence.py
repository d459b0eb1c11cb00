"""What members say about held-out documents of many small sets, so that stacks of them can be compared by themselves.

    python -m benchmarks.accuracy.evidence ../shared/data --out /tmp/evidence --jobs 2 --minutes 30

A part is a set, so many documents of its train, with or without label text, and a seed. Other documents of train are
the outer hold-out, which no choice has seen: all of them, and those that resemble no document of the part. A part is
trained in one process with one thread; its evidence goes to a file, and what stacks of it come to on the outer hold-out
is a row each of results.csv beside it. Parts begin in the order of `parts` while minutes are left.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from benchmarks.accuracy.shapes import SHOWN, bonsai
from benchmarks.record import record

from xclearn.algorithms.blend import Blend
from xclearn.algorithms.blend.choice import usual_cut
from xclearn.algorithms.blend.sources import centroid_rows, heavy_rows, label_text_rows, memory_of
from xclearn.data import Dataset, LabelSet, Split, load_dataset
from xclearn.data.dataset import take_documents
from xclearn.data.near_copies import ALIKE
from xclearn.data.splits import hold_outs, void_pairs
from xclearn.inference.blend import COLUMNS, Sources, best_pairs
from xclearn.inference.evaluation import label_weights
from xclearn.metrics import evaluate_predictions
from xclearn.parts.held_out import HeldOut, judged, together
from xclearn.parts.stacking import KINDS, Learnt, learn, single
from xclearn.text import Words
from xclearn.training.algorithm import Algorithm
from xclearn.training.prepare import prepare

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_TEXT = ("label_tree", "sparse_one_vs_all", "label_tree vectoriser.longest=2", "dual_encoder", "decaf")
_NAMES = ("label_tree", "sparse_one_vs_all", "label_tree vectoriser.longest=2", "lightdxml", "astec", "one_vs_all")
_LINEAR = 3  # of each, first
_OF = "bibtex delicious eurlex57k-titles finna-yso debian-related wordnet-related"
_SMALL = [(name, n) for n in (500, 2_000) for name in _OF.split()]
_LARGE = [(name, 10_000) for name in _OF.split() if name != "bibtex"]
_NUMBERS = ("bibtex", "delicious")
_MOST_TEST = 1_000  # documents of each outer hold-out
_KEPT_BITS = np.uint32(0xFFFFF000)  # of a value in a file: 11 of its mantissa


@dataclasses.dataclass(frozen=True)
class Part:
    """One small set."""

    data: str
    n_documents: int
    text: bool
    seed: int = 0

    @property
    def name(self) -> str:
        return f"{self.data}-{self.n_documents}-{'text' if self.text else 'names'}-{self.seed}"

    @classmethod
    def of(cls, name: str) -> Part:
        data, n, text, seed = name.rsplit("-", 3)
        return cls(data, int(n), text == "text", int(seed))


def parts(seeds: int) -> Iterator[Part]:
    """In the order in which they are worth having."""
    for data, n in [*_SMALL, *_LARGE]:
        yield Part(data, n, text=data not in _NUMBERS)
    for data, n in [("eurlex57k-titles", 500), ("finna-yso", 2_000), ("debian-related", 2_000), ("finna-yso", 10_000)]:
        yield Part(data, n, text=False)
    for seed in range(1, seeds):
        for data, n in _SMALL:
            yield Part(data, n, text=data not in _NUMBERS, seed=seed)


def main() -> None:
    arguments = _arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.part:
        _one(Part.of(arguments.part), arguments)
        return
    started, running = time.monotonic(), list[subprocess.Popen[bytes]]()
    waiting = [part for part in parts(arguments.seeds) if not arguments.only or arguments.only in part.name]
    while (waiting or running) and time.monotonic() - started < 60 * arguments.minutes:
        running = [process for process in running if process.poll() is None]
        if waiting and len(running) < arguments.jobs:
            running.append(_start(waiting.pop(0), arguments))
        else:
            time.sleep(0.2)
    for process in running:
        process.kill()
    print(f"{len(waiting)} parts not begun, {len(running)} ended for want of time", flush=True)


def _start(part: Part, arguments: argparse.Namespace) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.accuracy.evidence", str(arguments.data), "--out", str(arguments.out)]
    command += ["--part", part.name, *(["--linear"] if arguments.linear else [])]
    return subprocess.Popen(command, env=os.environ | dict.fromkeys(_THREADS, "1"))


def _one(part: Part, arguments: argparse.Namespace) -> None:
    """Evidence of one part, in a file, and rows of what becomes of it."""
    data = cut(load_dataset(str(arguments.data / part.data)), part)
    outer = {"all": data.split("test"), "unlike": data.split("test").take(unlike(data))}
    members = (_TEXT if part.text else _NAMES)[: _LINEAR if arguments.linear else None]
    started = time.perf_counter()
    held, seconds, sources = evidence(data, members)
    print(part.name, {name: round(took, 1) for name, took in seconds.items()}, flush=True)
    tests = {name: judged(sources, split) for name, split in outer.items()}
    about = {"names": np.array(sources.value_names), "weights": label_weights(data), "counts": sources.counts}
    _write(arguments.out / f"{part.name}.npz", {"held": held, "all": tests["all"]}, outer, about)
    facts = {"part": part.name, "documents": len(data.train), "labels": data.n_labels, "held_out": len(held.n_right)}
    for label, learnt in _stacks(held, list(sources.members)):
        for name, test in tests.items():
            found = figures(learnt.stacker(test.values), test, outer[name], data)
            found["inner"] = round(100 * float(learnt.gains.mean()), 2)
            record("results", facts | {"outer": name, "stack": label} | found, arguments.out)
    if not arguments.linear:
        for name, split in outer.items():
            report, _ = bonsai(dataclasses.replace(data, test=split))
            peer = {each: round(report.values[each], 2) for each in SHOWN}
            record("results", facts | {"outer": name, "stack": "omikuji Bonsai x3"} | peer, arguments.out)
    record("seconds", {"part": part.name, "whole": round(time.perf_counter() - started, 1)} | seconds, arguments.out)


def cut(data: Dataset, part: Part) -> Dataset:
    """The documents of a part with the labels that these have, and others of train as test."""
    order = np.random.default_rng(part.seed).permutation(len(data.train))
    train = data.train.take(order[: part.n_documents])
    test = data.train.take(order[part.n_documents :])
    used = np.unique(train.relevance.indices)
    pairs = np.empty((0, 2), dtype=np.int64)
    train, test = (
        dataclasses.replace(each, relevance=each.relevance[:, used], filter_pairs=pairs) for each in (train, test)
    )
    texts = None if data.labels.texts is None else take_documents(data.labels.texts, used)
    labels = LabelSet([data.labels.names[label] for label in used], texts)
    test = test.take(np.flatnonzero(np.diff(test.relevance.indptr))[: 2 * _MOST_TEST])
    void = void_pairs(train, test, labels)
    relevance = (test.relevance - test.relevance.multiply(void)).tocsr()
    relevance.eliminate_zeros()
    relevance.sort_indices()
    test = dataclasses.replace(test, relevance=relevance, filter_pairs=np.column_stack(void.nonzero()))
    test = test.take(np.flatnonzero(np.diff(relevance.indptr))[:_MOST_TEST])
    labels = labels if part.text else LabelSet(labels.names, None)
    return dataclasses.replace(data, name=part.name, train=train, labels=labels, dev=None, test=test)


def unlike(data: Dataset) -> np.ndarray:
    """Test documents without a near copy in train."""
    whole = prepare(data, Words(), None, 0)
    theirs = heavy_rows(whole.vectoriser.transform(data.split("test").documents))
    cosines = (theirs @ heavy_rows(whole.features).T).tocsr()
    return np.flatnonzero(cosines.max(axis=1).toarray().ravel() < ALIKE)


def evidence(data: Dataset, members: tuple[str, ...]) -> tuple[HeldOut, dict[str, float], Sources]:
    """Of the folds of a blend's usual cut; seconds of each member; and the sources trained on all of train."""

    whole = prepare(data, Blend().vectoriser, None, 0)
    algorithms = Blend(members=members)._members(whole.size, "cpu")
    folds, held = usual_cut(whole.size)

    seconds: dict[str, float] = dict.fromkeys(algorithms, 0.0)
    found = []
    for train, out in hold_outs(data, heavy_rows(whole.features), folds=folds, most=held, seed=0):
        found.append(judged(_sources(algorithms, dataclasses.replace(data, train=train), seconds), out))
    return together(found, 1), seconds, _sources(algorithms, data, seconds)


def _sources(algorithms: dict[str, Algorithm], data: Dataset, seconds: dict[str, float]) -> Sources:

    fitted: dict[str, Any] = {}
    for name, algorithm in algorithms.items():
        started = time.perf_counter()
        fitted[name] = algorithm.fit(data, device="cpu", seed=0, callback=lambda _: None).model.servable
        seconds[name] += time.perf_counter() - started
    whole = prepare(data, Blend().vectoriser, None, 0)
    rows = heavy_rows(whole.features)
    texts = None if whole.label_features is None else label_text_rows(whole.label_features)
    counts = np.asarray(data.train.relevance.sum(axis=0), dtype=np.float32).ravel()
    centroids = centroid_rows(rows, data.train.relevance)
    memory = memory_of(rows, data.train)
    return Sources(whole.vectoriser, fitted, texts, centroids, memory, counts, 60, everywhere=True)


def _stacks(held: HeldOut, names: list[str]) -> Iterator[tuple[str, Learnt]]:
    """Members alone, and stacks of each kind."""

    for place, name in enumerate(names):
        yield f"{name} alone", single(held, COLUMNS * place)
    for kind in (*KINDS, "trees"):
        yield kind, learn(held, kind)


def figures(logits: np.ndarray, test: HeldOut, split: Split, data: Dataset) -> dict[str, float]:
    """The metrics of a ranking."""

    found = best_pairs(test.rows, test.labels, logits, len(split), 100)
    report = evaluate_predictions(found, split.relevance, label_weights(data), filter_pairs=split.filter_pairs)
    return {name: round(report.values[name], 2) for name in SHOWN}


def _write(path: Path, evidence: dict[str, HeldOut], outer: dict[str, Split], facts: dict[str, np.ndarray]) -> None:

    arrays = dict(facts)
    for label, one in evidence.items():
        for field in ("rows", "labels", "values", "right", "n_right", "n_true", "groups"):
            value = getattr(one, field)
            if field == "values":
                value = (np.ascontiguousarray(value).view(np.uint32) & _KEPT_BITS).view(np.float32)
            arrays[f"{label}.{field}"] = value.astype(np.int32) if value.dtype == np.int64 else value
    for label, split in outer.items():
        relevance: sp.csr_matrix = split.relevance
        arrays[f"{label}.indptr"] = relevance.indptr
        arrays[f"{label}.indices"] = relevance.indices
        arrays[f"{label}.filter"] = split.filter_pairs
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder of the sets")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--linear", action="store_true", help="linear members only, and no peer")
    parser.add_argument("--only", default="", help="parts whose name holds this")
    parser.add_argument("--part", default="", help="one part by name, in this process")
    return parser.parse_args()


if __name__ == "__main__":
    main()
