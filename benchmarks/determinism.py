"""`make determinism`: is a model the same to the bit with 1, 2 and 8 threads, again, resumed, and asked from anywhere?

Each algorithm is trained on a planted set in a process of its own for each number of threads. A row of
`results/determinism.csv` says which of these give the same bits; exit code 1 if one that is promised does not: again,
resumed, or asked by threads and by a fork.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.chaos.planted import quick, write_data
from benchmarks.record import record

K, ASKED, ASKERS = 5, 200, 8
PROMISED = ("again", "resumed", "by_threads", "by_a_fork")


class Interruption(Exception):
    """What ends a training after its first epoch."""


def interrupt(event: Mapping[str, Any]) -> None:
    """A callback."""
    if event["event"] == "epoch":
        raise Interruption


def worker(name: str, folder: Path, epochs: int) -> dict[str, Any]:
    """What one number of threads gives; run with OMP_NUM_THREADS set."""
    import torch

    from xclearn import algorithms, config, load_dataset

    data = load_dataset(folder)
    settings = config.merge({}, quick(name, epochs))

    def fit(**options: Any) -> Any:
        return config.build(algorithms.find(name), settings, name).fit(data, device="cpu", seed=1, **options)

    fitted = fit()
    with tempfile.TemporaryDirectory() as place:
        whole = _bits(fitted, Path(place, "whole"))
        again = _bits(fit(), Path(place, "again"))
        checkpoint = Path(place, "checkpoint")
        with contextlib.suppress(Interruption):
            fit(checkpoint=checkpoint, callback=interrupt)
        resumed = _bits(fit(checkpoint=checkpoint, resume=True), Path(place, "resumed"))
    texts = list(data.train.documents)[:ASKED]
    answers = fitted.predict(texts, K)
    return {
        "threads": torch.get_num_threads(),
        "bits": whole,
        "answers": _hash(answers.ids.tobytes() + answers.scores.tobytes()),
        "again": whole == again,
        "resumed": whole == resumed,
        "by_threads": _by_threads(fitted, texts),
        "by_a_fork": _by_a_fork(fitted, texts),
        "alone": _alone(fitted, texts[:50]),
    }


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _bits(algorithm: Any, folder: Path) -> str:
    algorithm.save(folder)
    return _hash((folder / "tensors.safetensors").read_bytes())


def _answers(algorithm: Any, texts: list[str]) -> str:
    found = algorithm.predict(texts, K)
    return _hash(found.ids.tobytes() + found.scores.tobytes())


def _by_threads(algorithm: Any, texts: list[str]) -> bool:
    expected = _answers(algorithm, texts)
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(_answers(algorithm, texts))) for _ in range(ASKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found == [expected] * ASKERS


def _by_a_fork(algorithm: Any, texts: list[str]) -> bool:
    expected = _answers(algorithm, texts)
    child = os.fork()
    if child == 0:
        os._exit(0 if _answers(algorithm, texts) == expected else 3)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _alone(algorithm: Any, texts: list[str]) -> float:
    """The largest difference of a score between a document alone and in a batch."""
    together = algorithm.predict(texts, K).scores
    each = [algorithm.predict([text], K).scores[0] for text in texts]
    return max(float(abs(one - row).max()) for one, row in zip(each, together, strict=True))


def measured(name: str, threads: int, folder: Path, epochs: int) -> dict[str, Any]:
    """The same, from a process with so many threads."""
    command = [sys.executable, "-m", "benchmarks.determinism", "--worker", name, str(folder), "--epochs", str(epochs)]
    counts = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads))
    environment = {**os.environ, **counts, "MKL_DYNAMIC": "FALSE", "OMP_WAIT_POLICY": "PASSIVE"}
    ran = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, encoding="utf-8")
    return json.loads(ran.stdout.splitlines()[-1])


def main() -> int:
    from xclearn.algorithms import algorithm_names

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--labels", type=int, default=1500)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2, 8])
    parser.add_argument("--algorithm", nargs="*", default=sorted(algorithm_names()))
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        print(json.dumps(worker(arguments.worker[0], Path(arguments.worker[1]), arguments.epochs)))
        return 0
    broken = 0
    with tempfile.TemporaryDirectory() as place:
        folder = write_data(Path(place, "data"), arguments.labels)
        for name in arguments.algorithm:
            first: dict[str, Any] = {}
            for threads in arguments.threads:
                found = measured(name, threads, folder, arguments.epochs)
                assert found["threads"] == threads, f"torch computes with {found['threads']} threads"
                first = first or found
                row = {"algorithm": name, "labels": arguments.labels, "threads": threads, "seed": 1}
                row |= {f"{what}_same": found[what] for what in PROMISED}
                row |= {"model_as_with_first": found["bits"] == first["bits"]}
                row |= {"answers_as_with_first": found["answers"] == first["answers"]}
                print(row | {"alone": found["alone"]}, flush=True)
                record("determinism", row | {"largest_difference_alone": f"{found['alone']:.1e}"})
                broken += sum(not found[what] for what in PROMISED)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
