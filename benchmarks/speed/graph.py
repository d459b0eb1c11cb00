"""Time and peak memory of the random-walk graph: of a data set, and of a synthetic set of many labels.

python -m benchmarks.speed.graph                       # wordnet-related
python -m benchmarks.speed.graph --labels 1305265 --documents 2248619 --labels-per-document 22
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
import scipy.sparse as sp
from benchmarks.record import record

from xclearn.data import load_dataset
from xclearn.labels.graph import describe, random_walk_graph


def main() -> None:
    arguments = _arguments()
    if arguments.labels:
        name = f"synthetic {arguments.labels} x {arguments.labels_per_document}"
        relevance = synthetic(arguments.documents, arguments.labels, arguments.labels_per_document)
    else:
        name = arguments.data
        relevance = load_dataset(arguments.data).train.relevance
    started = time.perf_counter()
    graph = random_walk_graph(relevance, steps=400, restart=0.8, top=10, seed=0, head=500)
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    row = {"data": name, "documents": relevance.shape[0], **describe(graph), "seconds": round(seconds, 2)}
    row["peak_mib"] = peak
    print(row)
    record("graph", row)


def synthetic(n_documents: int, n_labels: int, per_document: int) -> sp.csr_matrix:
    """Label frequencies fall as a power law; labels near each other share documents."""
    rng = np.random.default_rng(0)
    centre = (n_labels * rng.random(n_documents) ** 2).astype(np.int64)  # (N,)
    spread = rng.geometric(0.02, size=(n_documents, per_document))
    labels = np.sort((centre[:, None] + spread) % n_labels, axis=1).astype(np.int32)
    indptr = np.arange(n_documents + 1, dtype=np.int64) * per_document
    relevance = sp.csr_matrix((np.ones(labels.size, np.float32), labels.ravel(), indptr), (n_documents, n_labels))
    relevance.sum_duplicates()
    relevance.data[:] = 1
    return relevance


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="wordnet-related")
    parser.add_argument("--labels", type=int, default=0)
    parser.add_argument("--documents", type=int, default=2_248_619)
    parser.add_argument("--labels-per-document", type=int, default=22)
    return parser.parse_args()


if __name__ == "__main__":
    main()
