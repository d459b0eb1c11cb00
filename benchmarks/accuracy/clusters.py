"""How many surrogate clusters a document's labels fall into: fewer is an easier Module I of Astec.

    python -m benchmarks.accuracy.clusters --data debian-related --documents 10000 --seeds 0 1 2

Rows go to results/clusterings.csv. `projected` are centroids in 128 random directions, as on a GPU.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import scipy.sparse as sp
import torch
from benchmarks.accuracy.run import part_of
from benchmarks.record import record

from xclearn.algorithms.astec.surrogates import group_of_label, usual_outputs
from xclearn.data import load_dataset
from xclearn.labels.graph import RandomWalk
from xclearn.parts.label_clusters import cluster_relevance, membership
from xclearn.text import Words, vectoriser_for

CPU = torch.device("cpu")
WALKS = {"published": RandomWalk(steps=50, restart=0.2), "close": RandomWalk(steps=400, restart=0.8)}
_DIM = 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--documents", type=int, default=0)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    arguments = parser.parse_args()
    data = part_of(load_dataset(arguments.data), arguments.documents)
    relevance, documents = data.train.relevance, data.train.documents
    features = sp.csr_matrix(vectoriser_for(documents, Words(), None).transform(documents))
    n_clusters = usual_outputs("clusters", data.n_labels)
    for seed in arguments.seeds:
        for name, find in clusterings(relevance, features, n_clusters, seed).items():
            started = time.perf_counter()
            clusters = find()
            seconds = time.perf_counter() - started
            each = cluster_relevance(relevance, membership(clusters, n_clusters)).nnz / relevance.shape[0]
            row = {"data": data.name, "clustering": name, "n_clusters": n_clusters, "seed": seed}
            row |= {"clusters_per_document": round(each, 3), "seconds": round(seconds, 2)}
            record("clusterings", row)
            print(f"{name:24} {each:6.3f} clusters a document, {seconds:.1f} s", flush=True)


def clusterings(
    relevance: sp.csr_matrix, features: sp.csr_matrix, n_clusters: int, seed: int
) -> dict[str, Callable[[], np.ndarray]]:
    """By name: how each finds the cluster of every label."""
    rng, n_labels = np.random.default_rng(seed), relevance.shape[1]
    signs = rng.standard_normal((features.shape[1], _DIM)).astype(np.float32)
    found: dict[str, Callable[[], np.ndarray]] = {"random": lambda: rng.permutation(n_labels) % n_clusters}
    for form, bags in (("TF-IDF", features), ("projected", np.asarray(features @ signs))):
        rest = n_clusters, relevance, bags, seed, CPU
        found[form] = partial(group_of_label, "clusters", *rest)
        for said, walk in WALKS.items():
            found[f"{form}, {said} walk"] = partial(group_of_label, "correlated_clusters", *rest, walk)
    return found


if __name__ == "__main__":
    main()
