"""Long texts asked whole or in chunks, of models that learnt from short ones: titles of laws, then laws of 256 words.

    python -m benchmarks.accuracy.chunks --titles ../data/eurlex57k-titles --long ../data/eurlex57k --documents 10000

Measured on the dev split, which no model has seen: a setting is chosen here, not a system judged.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import numpy as np
from benchmarks.record import RESULTS, record, resolved

from xclearn import algorithms, config
from xclearn.data import load_dataset
from xclearn.inference.evaluation import evaluate
from xclearn.inference.long_texts import Chunks

ASKED = {"whole": None} | {
    f"{words} words, {pool}": Chunks(words, pool) for words in (16, 32, 64, 128) for pool in ("mean", "max")
}


def main() -> None:
    """Train each algorithm once on titles, and ask it for long texts in every way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--titles", required=True, help="a data set's folder")
    parser.add_argument("--long", required=True, help="the same documents with longer texts")
    parser.add_argument("--documents", type=int, default=10_000, help="of train, drawn at random")
    parser.add_argument("--algorithm", default="label_tree")
    parser.add_argument("--settings", nargs="*", default=[], help="name=value")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    titles, long = load_dataset(asked.titles), load_dataset(asked.long)
    rows = np.sort(np.random.default_rng(asked.seed).permutation(len(titles.train))[: asked.documents])
    settings = config.merge({}, asked.settings)
    algorithm = config.build(algorithms.find(asked.algorithm), settings, asked.algorithm)
    model = algorithm.fit(replace(titles, train=titles.train.take(rows)), seed=asked.seed, callback=_silent)
    for data, ways in ((titles, {"titles": None}), (long, ASKED)):
        for way, chunks in ways.items():
            found = evaluate(model, data, split="dev", chunks=chunks).values
            shown = {name: round(found[name], 2) for name in ("P@1", "P@3", "P@5", "nDCG@5", "R@10")}
            about = {"data": "eurlex57k", "split": "dev", "documents": asked.documents, "algorithm": asked.algorithm}
            said = {"settings": " ".join(asked.settings), "seed": asked.seed, "asked": way}
            record("chunks", about | said | shown | {"resolved": resolved(model)}, RESULTS)
            print(f"{way:16}", shown, flush=True)


def _silent(_: Any) -> None:
    """No bar."""


if __name__ == "__main__":
    main()
