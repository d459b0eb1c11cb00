"""Texts per second of a whole test split on a device, and how often the answers are those of the CPU.

    python -m benchmarks.speed.predict_device --model MODEL --data wordnet-related --device cuda
    python -m benchmarks.speed.predict_device --train decaf --set n_members=3 --device cuda --folder results

A time goes from texts in memory to the ids of the five best labels; the median of the repeats, after one that is not
counted. `--train` fits the algorithm on the device first, where there is no model folder.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
from benchmarks.record import RESULTS, record

from xclearn import algorithms, config
from xclearn.data import Dataset, Split, load_dataset
from xclearn.inference import Model, load_model
from xclearn.inference.blend import BlendServable
from xclearn.inference.placed import device_predictor
from xclearn.inference.servable import Ensemble, Servable

K = 5
T = TypeVar("T")


def main() -> None:
    arguments = _arguments()
    data = load_dataset(arguments.data)
    model = load_model(arguments.model) if arguments.model else trained(data, arguments)
    row = {"data": data.name, "algorithm": model.about["algorithm"], "settings": " ".join(arguments.set)}
    row |= {"seed": arguments.seed, "device": arguments.device, "labels": data.n_labels}
    assert not isinstance(model.servable, BlendServable)
    row |= measure(model.servable, data.split("test"), arguments.device, arguments.repeats)
    print(" ".join(f"{name}={value}" for name, value in row.items()), flush=True)
    record("predict_device", row, arguments.folder)


def measure(servable: Servable | Ensemble, test: Split, device: str, repeats: int) -> dict[str, float]:
    """Speed on the device; what of it is the vectoriser's time; and the CPU's answers beside it."""
    predictor = device_predictor(servable, device)
    found, _ = timed(lambda: predictor.predict(test.documents, K, test.filter_pairs))
    seconds = np.median([timed(lambda: predictor.predict(test.documents, K))[1] for _ in range(repeats)])
    _, vectorising = timed(lambda: servable.vectoriser.transform(test.documents))
    expected, on_cpu = timed(lambda: servable.predict(test.documents, K, test.filter_pairs))
    return {
        "texts": len(test),
        "seconds": round(float(seconds), 4),
        "texts_per_second": round(len(test) / float(seconds)),
        "vectorising_s": round(vectorising, 4),
        "numpy_s": round(on_cpu, 3),
        "same_top_1": round(float((found.ids[:, 0] == expected.ids[:, 0]).mean()), 5),
        "same_top_5": round(float((np.sort(found.ids) == np.sort(expected.ids)).all(axis=1).mean()), 5),
    }


def timed(call: Callable[[], T]) -> tuple[T, float]:
    """What it gives, and the seconds it took; answers are in the CPU's memory, so the device is done."""
    started = time.perf_counter()
    return call(), time.perf_counter() - started


def trained(data: Dataset, arguments: argparse.Namespace) -> Model:
    """The algorithm with these settings, fitted on the device."""
    settings = config.merge({}, arguments.set)
    algorithm = config.build(algorithms.find(arguments.train), settings, arguments.train)
    return algorithm.fit(data, device=arguments.device, seed=arguments.seed).model


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--model", type=Path, help="a model folder")
    source.add_argument("--train", metavar="ALGORITHM", help="the algorithm to fit")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of --train")
    parser.add_argument("--data", default="wordnet-related")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=RESULTS, help="of the results file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
