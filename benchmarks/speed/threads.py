"""Training of label_tree, and prediction for many texts, on 1, 2, 8 and 16 cores of one machine.

    python -m benchmarks.speed.threads --cores 1 2 8 16 --documents 30000

Each number of cores is a process of its own that may run on so many only, so that nothing has to be told. Texts are
made of a planted set (`planted.py`); the seconds of training contain all that `fit` does. A row says how much of the
time of one core each stage still takes.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.record import RESULTS, record

_PREDICTED = 20_000


def main() -> None:
    """Measure each number of cores that the machine has."""
    arguments = _arguments()
    if arguments.alone:
        print(json.dumps(_measure(arguments.alone, arguments.documents)))
        return
    first: dict[str, Any] = {}
    for cores in (n for n in arguments.cores if n <= len(os.sched_getaffinity(0))):
        row = _in_a_process(cores, arguments.documents)
        first = first or row
        row |= {f"{name}_faster": round(first[f"{name}_s"] / row[f"{name}_s"], 2) for name in ("train", "predict")}
        record("threads", row, Path(arguments.folder))
        print(" ".join(f"{key}={value}" for key, value in row.items()), flush=True)


def _in_a_process(cores: int, documents: int) -> dict[str, Any]:
    environment = os.environ | {"OMP_NUM_THREADS": str(cores)}
    command = [sys.executable, "-m", "benchmarks.speed.threads", "--alone", str(cores), "--documents", str(documents)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _measure(cores: int, documents: int) -> dict[str, Any]:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    from xclearn import LabelTree
    from xclearn.inference.predictor import Predictor

    data = _texts(documents)
    started, processor = time.perf_counter(), time.process_time()
    algorithm = LabelTree().fit(data, callback=[].append)
    training = time.perf_counter() - started
    cpu = time.process_time() - processor
    predictor = Predictor(algorithm.model)
    texts = (data.train.documents * 2)[:_PREDICTED]
    predictor.predict(texts[:100])
    started = time.perf_counter()
    predictor.predict(texts)
    prediction = time.perf_counter() - started
    return {
        "cores": cores,
        "documents": len(data.train),
        "labels": data.n_labels,
        "train_s": round(training, 2),
        "train_cpu_s": round(cpu, 2),
        "predicted": len(texts),
        "predict_s": round(prediction, 3),
    }


def _texts(documents: int) -> Any:
    from benchmarks.speed.planted import Shape, matrix, planted

    from xclearn.data import Dataset

    made = planted(Shape(documents, documents, documents, 10, 3), "cpu")
    words, relevance = (matrix(rows) for rows in (made.documents, made.relevance))
    texts = [" ".join(f"w{word}" for word in row) for row in words.indices.reshape(len(made.documents), -1)]
    labels = [[f"label {label}" for label in row] for row in relevance.indices.reshape(len(texts), -1)]
    return dataclasses.replace(Dataset.from_lists(texts, labels), name="planted")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2, 8, 16])
    parser.add_argument("--documents", type=int, default=30_000)
    parser.add_argument("--folder", default=os.environ.get("OUT", str(RESULTS)))
    parser.add_argument("--alone", type=int, default=0, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
