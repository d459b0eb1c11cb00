"""Seconds of each kernel on synthetic data of a fixed shape, one line each.

The sparse set has the shape of a title data set with 131K labels: about 33 of 40K words a label, half of them common
words, half from one of 4,096 topics. The shortlist step has the shape of Astec's: 255 documents with 650 labels each;
its PyTorch path is measured beside it, and the ratio goes to benchmarks/results/kernels.csv.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import scipy.sparse as sp
import torch
from benchmarks.record import record

from xclearn import kernels
from xclearn.parts.classifiers import LabelPairs
from xclearn.parts.pair_products import _NativeScores, _PairScores
from xclearn.parts.row_training import row_classifier
from xclearn.parts.rows import Gathered

N_LABELS = 131_072
N_WORDS = 40_000
WORDS_A_LABEL = 38
N_TOPICS = 4096
WORDS_A_TOPIC = 60
DIM = 300
N_CLUSTERS = 1 << 15
N_DOCUMENTS, SHORTLIST, ROW_DIM = 255, 650, 126


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


Step = Callable[[], object]


def shortlist_steps(generator: torch.Generator) -> dict[str, tuple[Step, Step]]:
    """A training step on shortlists with each update of the rows, and the scores of pairs with both gradients.

    Each in the native core, and in PyTorch as on a GPU.
    """
    shortlist = torch.randint(N_LABELS, (N_DOCUMENTS, SHORTLIST), generator=generator)
    owner, columns = torch.arange(N_DOCUMENTS), shortlist[:, 0]
    pairs = LabelPairs.of(shortlist, Gathered(owner, columns, torch.ones(N_DOCUMENTS), owner))
    x = torch.randn(N_DOCUMENTS, ROW_DIM, generator=generator)
    labels, column = pairs.labels.unique_consecutive(return_inverse=True)
    own = x.clone().requires_grad_()
    other = torch.randn(len(labels), ROW_DIM, generator=generator).requires_grad_()
    steps: dict[str, tuple[Step, Step]] = {
        "pair scores and products": (
            lambda: _NativeScores.apply(own, other, pairs.owner, column).sum().backward(),
            lambda: _PairScores.apply(own, other, pairs.owner, column).sum().backward(),
        )
    }
    for optimiser in ("sgd", "adam"):
        rows = row_classifier(N_LABELS, ROW_DIM, 0.01, optimiser, "bce_sum", x.device)
        steps[f"shortlist step, {optimiser}"] = (
            partial(rows._native_pair_step, x, pairs, 1.0),
            partial(rows._torch_pair_step, x, pairs, 1.0),
        )
    return steps


def compare_shortlists(n_threads: int, repeats: int, seed: int) -> None:
    """The native core beside PyTorch, one row of the results each."""
    torch.set_num_threads(n_threads)
    for name, steps in shortlist_steps(torch.Generator().manual_seed(seed)).items():
        native, other = (best_of(repeats, step) for step in steps)
        shape = f"{N_DOCUMENTS} x {SHORTLIST} of {N_LABELS}, D = {ROW_DIM}"
        times = {"native_ms": round(1e3 * native, 1), "torch_ms": round(1e3 * other, 1)}
        row = {"kernel": name, "shape": shape, "threads": n_threads, "seed": seed, **times}
        record("kernels", {**row, "torch_over_native": round(other / native, 1)})
        print(f"{name}, {shape}: {times}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only-shortlists", action="store_true")
    options = parser.parse_args()
    compare_shortlists(options.threads, options.repeats, options.seed)
    if options.only_shortlists:
        return
    for name, seconds in measure(options.threads, options.repeats, options.seed).items():
        print(f"{name}: {seconds:.2f} s ({options.threads} threads, best of {options.repeats})")


if __name__ == "__main__":
    main()
