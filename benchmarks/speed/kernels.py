"""Seconds of each kernel on synthetic data of a fixed shape, one line each.

The sparse set has the shape of a title data set with 131K labels: about 33 of 40K words a label, half of them common
words, half from one of 4,096 topics.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from xclearn import kernels

N_LABELS, N_WORDS, WORDS_A_LABEL, N_TOPICS, WORDS_A_TOPIC, DIM = 131_072, 40_000, 38, 4096, 60, 300
N_CLUSTERS = 1 << 15


def sparse_rows(rng: np.random.Generator) -> sp.csr_matrix:
    """Label vectors, (N_LABELS, N_WORDS): word frequency falls as 1 / rank."""
    count = rng.poisson(WORDS_A_LABEL, N_LABELS)
    label = np.repeat(np.arange(N_LABELS), count)
    rank = (np.floor(N_WORDS ** rng.random(len(label))) - 1).astype(np.int64)
    topic = rng.integers(0, N_TOPICS, N_LABELS)[label]
    of_topic = (topic * 7919 + rank % WORDS_A_TOPIC) % N_WORDS
    word = np.where(rng.random(len(label)) < 0.5, of_topic, rank)
    values = rng.random(len(label), dtype=np.float32) + np.float32(0.1)
    return sp.csr_matrix((values, (label, word)), shape=(N_LABELS, N_WORDS))


def best_of(repeats: int, run: Callable[[], object]) -> float:
    """Seconds of the fastest run."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def measure(n_threads: int, repeats: int, seed: int) -> dict[str, float]:
    """Seconds of each kernel."""
    rng = np.random.default_rng(seed)
    rows = sparse_rows(rng)
    arrays = (rows.indptr, rows.indices, rows.data)
    dense = rng.standard_normal((N_LABELS, DIM), dtype=np.float32)
    return {
        f"balanced_clusters_csr {N_LABELS}x{N_WORDS} to {N_CLUSTERS}": best_of(
            repeats, lambda: kernels.balanced_clusters_csr(*arrays, N_WORDS, N_CLUSTERS, seed, n_threads)
        ),
        f"balanced_clusters_dense {N_LABELS}x{DIM} to {N_CLUSTERS}": best_of(
            repeats, lambda: kernels.balanced_clusters_dense(dense, N_CLUSTERS, seed, n_threads)
        ),
        f"topk_csr {N_LABELS} rows of {rows.nnz / N_LABELS:.0f}, k=10": best_of(
            repeats, lambda: kernels.topk_csr(*arrays, 10, n_threads)
        ),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for name, seconds in measure(options.threads, options.repeats, options.seed).items():
        print(f"{name}: {seconds:.2f} s ({kernels.BACKEND}, {options.threads} threads, best of {options.repeats})")


if __name__ == "__main__":
    main()
