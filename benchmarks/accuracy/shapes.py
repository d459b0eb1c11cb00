"""The default without a setting on sets of many shapes, beside Bonsai of three trees on the same words and split.

    python -m benchmarks.accuracy.shapes SET --documents 5000 --without-label-text

Everything is cut from train: the documents drawn, then a hold-out of those that resemble each other, which no choice
within the training has seen. The peer is omikuji (`pip install omikuji`); rows go to results/shapes.csv.
"""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from benchmarks.accuracy.run import forget_peak, peak_mib
from benchmarks.record import record, resolved

from xclearn import algorithms, config
from xclearn.algorithms.blend.sources import heavy_rows
from xclearn.data import Dataset, LabelSet, load_dataset
from xclearn.data.dataset import Split, kind_of, take_documents
from xclearn.data.splits import hold_outs
from xclearn.data.topk import TopK
from xclearn.inference import evaluate
from xclearn.inference.evaluation import label_weights
from xclearn.metrics import KS, RECALL_KS, Report, evaluate_predictions
from xclearn.text import Words
from xclearn.training.prepare import prepare

SHOWN = ("P@1", "P@3", "P@5", "PSP@1", "PSP@5", "R@10")
_BONSAI = {"cluster_balanced": False, "cluster_k": 100, "max_depth": 3, "min_branch_size": 100}
_PEER = "omikuji Bonsai x3"


def main() -> None:
    """Train and measure each algorithm on the cut."""
    arguments = _arguments()
    data = load_dataset(arguments.data)
    data = cut(two_steps(data, arguments.two_steps), arguments.documents, arguments.seed)
    if arguments.without_label_text:
        data = dataclasses.replace(data, labels=LabelSet(data.labels.names, None))
    test = data.split("test")
    facts = {
        "data": data.name,
        "documents": len(data.train),
        "labels": data.n_labels,
        "labels_per_document": round(data.train.relevance.nnz / len(data.train), 2),
        "label_text": data.labels.texts is not None,
        "held_out": len(test),
        "seed": arguments.seed,
    }
    print(facts, flush=True)
    for wanted in arguments.algorithms:
        forget_peak()
        started, cpu = time.perf_counter(), time.process_time()
        report, said = bonsai(data) if wanted == _PEER else _ours(wanted, data, arguments)
        said |= {"seconds": round(time.perf_counter() - started, 1), "cpu_s": round(time.process_time() - cpu, 1)}
        found = {name: round(report.values[name], 2) for name in (*SHOWN, "PSP@3", "nDCG@5")}
        record("shapes", facts | {"algorithm": wanted} | found | said | {"peak_mib": peak_mib()})
        print(f"{wanted:24} {' '.join(f'{found[name]:6.2f}' for name in SHOWN)} {said}", flush=True)


def two_steps(data: Dataset, n_labels: int) -> Dataset:
    """Many labels a document: beside its own those of its labels, where these are documents of train themselves.

    Of the labels the `n_labels` that then have most documents are kept; 0 leaves the set as it is.
    """
    if not n_labels:
        return data
    texts = data.labels.names if data.labels.texts is None else data.labels.texts
    place = {text: row for row, text in enumerate(data.train.documents)}
    found = np.array([place.get(text, -1) for text in texts])
    itself = np.flatnonzero(found >= 0)
    same = sp.csr_matrix((np.ones(len(itself)), (itself, found[itself])), (len(found), len(data.train)))
    own = data.train.relevance > 0
    relevance = sp.csr_matrix(own + own @ same @ own, dtype=np.float32)
    relevance.data[:] = 1
    counts = np.bincount(relevance.indices, minlength=relevance.shape[1])
    kept = np.sort(np.argsort(-counts, kind="stable")[:n_labels])
    names, kept_texts = [data.labels.names[label] for label in kept], take_documents(texts, kept)
    narrow = dataclasses.replace(
        data.train, relevance=relevance[:, kept], filter_pairs=np.empty((0, 2), dtype=np.int64)
    )
    narrow = narrow.take(np.flatnonzero(np.diff(narrow.relevance.indptr)))
    labels = LabelSet(names, None if data.labels.texts is None else kept_texts)
    return dataclasses.replace(data, name=f"{data.name}, two steps", train=narrow, labels=labels, dev=None, test=None)


def cut(data: Dataset, n_documents: int, seed: int) -> Dataset:
    """Documents of train with the labels that these have, and a hold-out of those that resemble each other as test."""
    order = np.random.default_rng(seed).permutation(len(data.train))
    drawn = data.train.take(np.sort(order[: n_documents or None]))
    used = np.unique(drawn.relevance.indices)
    pairs = np.empty((0, 2), dtype=np.int64)
    drawn = dataclasses.replace(drawn, relevance=drawn.relevance[:, used], filter_pairs=pairs)
    texts = None if data.labels.texts is None else take_documents(data.labels.texts, used)
    labels = LabelSet([data.labels.names[label] for label in used], texts)
    small = dataclasses.replace(data, train=drawn, labels=labels, dev=None, test=None)
    rows = None
    if kind_of(drawn.documents) != "dense features":
        rows = heavy_rows(prepare(small, Words(), None, 0).features)
    ((train, held),) = hold_outs(small, rows, folds=1, most=min(3_000, len(drawn) // 5), seed=seed + 1)
    name = f"{data.name} {n_documents}" if n_documents else data.name
    return dataclasses.replace(small, name=name, train=train, test=held)


def _ours(wanted: str, data: Dataset, arguments: argparse.Namespace) -> tuple[Report, dict[str, object]]:
    name, *assignments = shlex.split(wanted)
    algorithm = config.build(algorithms.find(name), config.merge({}, assignments), name)
    algorithm.fit(data, device=arguments.device, seed=arguments.seed, callback=say)
    training = algorithm.model.about["training"]
    said = {key: value for key, value in training.items() if key in ("stacker", "ece_5") or key.startswith("dropped")}
    members = " + ".join(algorithm.resolved_.get("members", []))
    return evaluate(algorithm, data), {"members": members, "said": str(said), "resolved": resolved(algorithm)}


def say(event: Mapping[str, Any]) -> None:
    """Print what training says, without its steps: a run that is cut off still shows what its members were worth."""
    if event["event"] != "step":
        print(f"{time.process_time():.0f} CPU-s", event, flush=True)


def bonsai(data: Dataset) -> tuple[Report, dict[str, object]]:
    """What three trees of the peer come to on test."""
    import omikuji

    test = data.split("test")
    rows = _features(data, data.train), _features(data, test)
    settings = omikuji.Model.default_hyper_param()
    for key, value in _BONSAI.items():
        setattr(settings, key, value)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        _write(rows[0], data.train.relevance, Path(file.name))
        model = omikuji.Model.train_on_data(file.name, settings, n_threads=1)
    void = np.bincount(test.filter_pairs[:, 0], minlength=len(test)).max(initial=0)
    k = max(*KS, *RECALL_KS) + int(void)
    found = [model.predict(_pairs(row), beam_size=10, top_k=k) for row in rows[1]]
    ids = np.full((len(found), k), -1, dtype=np.int64)
    scores = np.full((len(found), k), -np.inf, dtype=np.float32)
    for line, predictions in enumerate(found):
        ids[line, : len(predictions)] = [label for label, _ in predictions]
        scores[line, : len(predictions)] = [score for _, score in predictions]
    report = evaluate_predictions(
        TopK(ids, scores), test.relevance, label_weights(data), filter_pairs=test.filter_pairs
    )
    return report, {}


def _features(data: Dataset, split: Split) -> sp.csr_matrix:
    """Word TF-IDF as the peers' benchmarks have it, or the features as they are, of length one."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.preprocessing import normalize

    if isinstance(split.documents, sp.csr_matrix):
        return normalize(split.documents).tocsr()
    vectoriser = TfidfVectorizer(sublinear_tf=False, dtype=np.float32, token_pattern=r"(?u)\b\w+\b")
    vectoriser.fit(data.train.documents)
    return vectoriser.transform(split.documents).tocsr()


def _write(rows: sp.csr_matrix, relevance: sp.csr_matrix, path: Path) -> None:
    with path.open("w", encoding="utf-8") as stream:
        stream.write(f"{rows.shape[0]} {rows.shape[1]} {relevance.shape[1]}\n")
        for row, labels in zip(rows, relevance, strict=True):
            features = " ".join(f"{index}:{value:.6g}" for index, value in _pairs(row))
            stream.write(f"{','.join(map(str, labels.indices))} {features}\n")


def _pairs(row: sp.csr_matrix) -> list[tuple[int, float]]:
    return list(zip(row.indices.tolist(), row.data.tolist(), strict=True))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--documents", type=int, default=0)
    said = "add the labels of a document's labels, and keep so many labels"
    parser.add_argument("--two-steps", type=int, default=0, metavar="N", help=said)
    parser.add_argument("--without-label-text", action="store_true")
    parser.add_argument("--algorithms", nargs="+", default=["blend", _PEER])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
