"""Fits on random data and prints the planned and the measured peak of memory in bytes.

Argument: settings as JSON, and among them the algorithm and how many documents.
"""

import json
import sys
from pathlib import Path

import numpy as np
import psutil
import scipy.sparse as sp

from xclearn import algorithms, config
from xclearn.data import Dataset, LabelSet, Split

N_LABELS, N_FEATURES, N_TOKENS = 40_000, 20_000, 20


def random_data(n_documents: int, rng: np.random.Generator) -> Dataset:
    """Documents of 20 tokens with about three labels each."""
    documents, relevance = (
        sp.csr_matrix(
            (np.ones(n_documents * count, np.float32), (np.repeat(np.arange(n_documents), count), columns)),
            shape=(n_documents, width),
        )
        for count, width in ((N_TOKENS, N_FEATURES), (3, N_LABELS))
        for columns in [rng.integers(width, size=n_documents * count)]
    )
    relevance.data[:] = 1
    texts = documents[rng.integers(n_documents, size=N_LABELS)]  # a label says what some document says
    return Dataset("random", Split(documents, relevance), LabelSet([str(i) for i in range(N_LABELS)], texts))


def high_water() -> int:
    """The most memory this program held. `getrusage` would also count the test process that it was forked from."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def main() -> None:
    settings = json.loads(sys.argv[1])
    data = random_data(settings.pop("n_documents"), np.random.default_rng(0))
    algorithm = config.build(algorithms.find(settings.pop("algorithm")), settings)
    plan = algorithm.plan(data, device="cpu")
    before = psutil.Process().memory_info().rss
    algorithm.fit(data, device="cpu")
    peak = high_water()
    print(json.dumps({"planned": plan.peak, "measured": peak - before, "path": plan.stages[0].path}))


if __name__ == "__main__":
    main()
