"""How many relevant labels of train each source of shortlists lists, over vectors that nothing was trained for.

    python -m benchmarks.accuracy.lists --data debian-related --documents 10000 --sizes 50 200

Vectors are latent directions of TF-IDF rows after a ReLU, as Slice's. Rows go to results/lists.csv.
"""

from __future__ import annotations

import argparse
import time
from typing import get_args

import numpy as np
import scipy.sparse as sp
import torch
from benchmarks.accuracy.run import part_of
from benchmarks.record import record

from xclearn.data import load_dataset
from xclearn.labels.lists import padded_matrix
from xclearn.parts.frozen import latent_tokens
from xclearn.search.shortlists import ListSource, Shortlister, label_centres
from xclearn.text import Words, vectoriser_for

_DIM = 126


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--documents", type=int, default=0)
    parser.add_argument("--sizes", nargs="+", type=int, default=[50, 200])
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    data = part_of(load_dataset(arguments.data), arguments.documents)
    relevance = data.train.relevance
    documents = data.train.documents
    seed = arguments.seed
    features = sp.csr_matrix(vectoriser_for(documents, Words(), None).transform(documents))
    vectors = torch.from_numpy(np.maximum(features @ latent_tokens(features, _DIM, seed), 0).astype(np.float32))
    centres = label_centres(vectors, relevance, n_extra=0, head=1, seed=seed)
    for source in get_args(ListSource):
        for size in arguments.sizes:
            started = time.perf_counter()
            made = Shortlister(source=source, size=size, method="exact", seed=seed, on_fallback=print)
            found = padded_matrix(made.lists(vectors, relevance, centres), data.n_labels)
            seconds = time.perf_counter() - started
            recall = 100 * found.multiply(relevance > 0).sum() / relevance.nnz
            row = {"data": data.name, "source": source, "size": size, "seed": seed, "labels": data.n_labels}
            record("lists", row | {"recall_percent": round(float(recall), 2), "seconds": round(seconds, 2)})
            print(f"{source:12} {size:5} {recall:6.2f} %  {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
