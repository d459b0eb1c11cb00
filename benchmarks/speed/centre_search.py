"""Time of finding a text's nearest label centres against their number: all compared, or through the exported tree.

    OMP_NUM_THREADS=1 python -m benchmarks.speed.centre_search --labels 16384 65536 262144 1048576

Centres and texts are drawn around topics, and topics around fields, so wide that recall is near that on the bundled
set's centres. A label's score is the cosine of its centre alone. One thread, one text at a time, forms in turns. Times
are medians; recall is that of the native answer against all centres. Rows go to results/astec_search.csv.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp
from benchmarks.speed.serve import record_row

from xclearn.data import LabelSet
from xclearn.inference import Model
from xclearn.inference.arrays import unit
from xclearn.inference.components import Bag, Classifier
from xclearn.inference.export import Exporter, Form
from xclearn.inference.native import NativePredictor, native_predictor
from xclearn.inference.servable import Servable
from xclearn.inference.shortlists import CentroidSearch, Mix
from xclearn.text.vectorisers import SparseVectoriser

DIM, SIZE, FIELDS, PER_TOPIC, WIDTH = 128, 100, 256, 32, 1.75
TEXTS, ROUNDS = 200, 10


def drawn(n_labels: int, seed: int) -> Iterator[np.ndarray]:
    """Centres (L, D), then texts (TEXTS, D), of length one."""
    rng = np.random.default_rng(seed)
    normal = lambda n: rng.standard_normal((n, DIM), dtype=np.float32)  # noqa: E731
    n_topics = n_labels // PER_TOPIC
    topics = normal(FIELDS)[rng.integers(FIELDS, size=n_topics)] + normal(n_topics)
    for n in (n_labels, TEXTS):
        yield unit(topics[rng.integers(n_topics, size=n)] + np.float32(WIDTH) * normal(n))


def model_of(centres: np.ndarray) -> Model:
    """Vectors go in as features; what scores labels beside the cosine is nothing."""
    n_labels = len(centres)
    encoders = {"vector": Bag(np.eye(DIM, dtype=np.float32), []), "none": Bag(np.zeros((DIM, 1), np.float32), [])}
    search = CentroidSearch("vector", centres, np.arange(n_labels, dtype=np.int32), SIZE)
    scorer = Classifier("none", np.zeros((n_labels, 1), np.float32), np.zeros(n_labels, np.float32))
    servable = Servable(SparseVectoriser(DIM), encoders, search, [scorer], Mix([1.0], 0.0, False))
    return Model(servable, LabelSet([str(i) for i in range(n_labels)]), {})


def native(model: Model) -> NativePredictor:
    """On one thread."""
    assert isinstance(model.servable, Servable)
    found = native_predictor(model.servable, n_threads=1)
    assert isinstance(found, NativePredictor)
    return found


def asked(predictor: NativePredictor, texts: list[sp.csr_matrix]) -> tuple[float, np.ndarray]:
    """Median microseconds of a text, and the labels (n, SIZE) found."""
    times, found = [], []
    for text in texts:
        start = time.perf_counter()
        ids = predictor.rank(text, SIZE).ids
        times.append(1e6 * (time.perf_counter() - start))
        found.append(ids)
    return float(np.median(times)), np.vstack(found)


def recall(exact: np.ndarray, found: np.ndarray, k: int) -> float:
    """Percent of the k nearest that were found."""
    pairs = zip(exact[:, :k], found, strict=True)
    return round(100 * float(np.mean([np.isin(own, other).mean() for own, other in pairs])), 1)


def measure(n_labels: int, breadths: list[int], seed: int) -> None:
    """A row for each form of one size."""
    centres, vectors = drawn(n_labels, seed)
    texts = [sp.csr_matrix(vector[None]) for vector in vectors]
    exporter = Exporter(model_of(centres), None)
    start = time.perf_counter()
    forms = {breadth: native(exporter.export(Form("int8", breadth))) for breadth in (0, *breadths)}
    seconds = time.perf_counter() - start
    turns = [{breadth: asked(form, texts[i::ROUNDS]) for breadth, form in forms.items()} for i in range(ROUNDS)]
    exact = np.vstack([turn[0][1] for turn in turns])
    whole = float(np.median([turn[0][0] for turn in turns]))
    for breadth in forms:
        found = np.vstack([turn[breadth][1] for turn in turns])
        p50 = np.median([turn[breadth][0] for turn in turns])
        recalls = {f"recall@{k}": recall(exact, found, k) for k in (10, SIZE)}
        figures = {"p50_us": round(float(p50), 1), "times_faster": round(whole / float(p50), 1), **recalls}
        row = {"centres": n_labels, "dim": DIM, "breadth": breadth or "all", "threads": 1, **figures}
        record_row("astec_search", {"seed": seed, **row, "build_s": round(seconds, 1), "texts": TEXTS})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, nargs="+", default=[1 << 14, 1 << 16, 1 << 18, 1 << 20])
    parser.add_argument("--breadths", type=int, nargs="+", default=[16, 64, 256])
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for n_labels in arguments.labels:
        measure(n_labels, arguments.breadths, arguments.seed)


if __name__ == "__main__":
    main()
