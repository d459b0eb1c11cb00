"""The choices that the ECLARE paper compares: Table 4 (GAME on others), Table 5 (variants), Table 7 (clusterings).

Also what the graph knows of unseen documents ("neighbours"): how often a relevant label's neighbours are relevant too.

    python -m benchmarks.accuracy.eclare --data wordnet-related --seeds 0 1 2
    python -m benchmarks.accuracy.eclare --data debian-related --tables 7 --seeds 0
    python -m benchmarks.accuracy.eclare --data debian-related --tables 5 --split hold_out --set surrogate_epochs=2

Rows go to results/eclare.csv (tables 4 and 5), results/clusterings.csv (table 7) and results/graph_neighbours.csv, one
a seed.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from benchmarks.accuracy.run import asked_for, held_out, part_of, settings_for, table_arguments
from benchmarks.record import record, resolved

from xclearn import algorithms, config
from xclearn.algorithms.eclare.trial import parted
from xclearn.data import Dataset, hold_out, load_dataset
from xclearn.inference import evaluate
from xclearn.labels.clustering import cluster_labels, label_centroids
from xclearn.labels.graph import LabelGraph
from xclearn.metrics import mutual_information_loss
from xclearn.metrics.report import Report
from xclearn.metrics.significance import paired_test
from xclearn.text import Words, vectoriser_for
from xclearn.training.checkpoint import Checkpoint
from xclearn.training.prepare import prepare
from xclearn.training.run import Run

SHOWN = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5", "R@10")
TESTED = ("P@1", "P@5", "PSP@1", "PSP@5", "R@10")
_WITH = "order=1 game=0.25"  # the graph in use, whatever a hold-out would choose
_PAPER = "ranker=shortlist combine=attention least_cosine=0.0 order=1 game=0.5 freeze_tokens=true restart_blocks=true"
_NO_GRAPH = "smooth_centroids=false head_clusters=false refinement=text cluster_game=0.0 negatives=clusters game=0.0"
_NEIGHBOURS = 10  # of a label, those that count
_GAME = ("label_tree", "decaf", "astec")
Row = tuple[str, str, str]  # table, name, "algorithm setting=value …"

TABLES: list[Row] = [
    *(("4", name, name) for name in _GAME),
    *(("4", f"{name} with GAME", f"{name} game.share={share}") for name in _GAME for share in (0.25, 0.5)),
    ("5", "DECAF", "decaf"),
    ("5", "ours, chosen on a hold-out", "eclare"),
    ("5", "ours, graph on", f"eclare {_WITH}"),
    ("5", "ours, graph off", "eclare order=0 game=0.0"),
    ("5", "ours, attention", f"eclare {_WITH} combine=attention"),
    ("5", "ours, attention with sigmoid", f"eclare {_WITH} combine=attention_sigmoid"),
    ("5", "ours, pruned by text", f"eclare {_WITH} least_cosine=0.0"),
    ("5", "ours, tokens frozen", f"eclare {_WITH} freeze_tokens=true"),
    ("5", "ours, ensemble of 3", f"eclare {_WITH} n_members=3"),
    *(
        ("5", name, f"eclare {_PAPER} {settings}")
        for name, settings in (
            ("ECLARE", ""),
            ("ECLARE, blocks kept", "restart_blocks=false"),
            ("ECLARE, the paper's GAME", "game=1.0 cluster_game=1.0"),
            ("ECLARE, the paper's GAME and G_M", "game=1.0 cluster_game=1.0 between_clusters=means"),
            ("GCN", "convolution=gcn"),
            ("LightGCN", "convolution=light"),
            ("Cooc", "graph.source=cooccurrence"),
            ("PN", "graph.normalisation=perron"),
            ("PPR", "graph.source=page_rank negatives=graph"),
            ("NoGraph", _NO_GRAPH),
            ("NoLTE", "label_text=false"),
            ("NoRefine", "refinement=none"),
            ("SUM", "combine=sum"),
            ("k=2", "order=2"),
            ("8K: a quarter of the clusters", "n_clusters={quarter}"),  # as 8,192 are of the paper's 32,768
        )
    ),
]


def main() -> None:
    tables = [*(row[0] for row in TABLES), "7", "neighbours"]
    rows = [row[1] for row in TABLES]
    arguments = table_arguments(__doc__, tables, rows).parse_args()
    data = part_of(load_dataset(arguments.data), arguments.documents)
    data = held_out(data) if arguments.split == "hold_out" else data
    decaf: dict[int, Report] = {}  # by seed, to test the rows after it against
    for row in TABLES:
        if asked_for(arguments, row[0], row[1]):
            for seed in arguments.seeds:
                found = run(data, arguments, row, seed, decaf.get(seed))
                if row[1] == "DECAF":
                    decaf[seed] = found
                print(f"{row[1]:32} " + " ".join(f"{found.values[name]:6.2f}" for name in SHOWN), flush=True)
    for seed in arguments.seeds:
        if asked_for(arguments, "7", ""):
            clusterings(data, arguments, seed)
        if asked_for(arguments, "neighbours", ""):
            neighbourhoods(data, arguments, seed)


def run(data: Dataset, arguments: argparse.Namespace, row: Row, seed: int, decaf: Report | None) -> Report:
    """Train and measure once, and write the row down; with paired tests against DECAF where that was trained before."""
    table, name, line = row
    quarter = 2 ** max(0, int(np.log2(data.n_labels / 3)) - 2)
    algorithm_name, *settings = line.format(quarter=quarter).split()
    common = settings_for(algorithm_name, arguments)
    algorithm = config.build(algorithms.find(algorithm_name), config.merge({}, [*common, *settings]), algorithm_name)
    started = time.perf_counter()
    algorithm.fit(data, device=arguments.device, seed=seed)
    seconds = round(time.perf_counter() - started, 1)
    report = evaluate(algorithm, data, device="auto")
    values: dict[str, Any] = {metric: round(value, 3) for metric, value in report.values.items()}
    if decaf is not None:
        for metric in TESTED:
            test = paired_test(report, decaf, metric)
            said = f"{test.difference:.3f} ({test.low:.3f}, {test.high:.3f}) p={test.p_value:.4f}"
            values[f"{metric}_over_decaf"] = said
    chosen = " ".join(f"{key}={value}" for key, value in algorithm.resolved_.items() if key in ("order", "game"))
    about = {"table": table, "name": name, "settings": " ".join([*common, *settings]), "chosen": chosen}
    about["resolved"] = resolved(algorithm, Path(arguments.folder))
    record("eclare", {"data": data.name, "split": arguments.split, **about, "seed": seed, "train_s": seconds} | values,
           Path(arguments.folder))  # fmt: skip
    return report


def clusterings(data: Dataset, arguments: argparse.Namespace, seed: int) -> None:
    """Table 7: loss of mutual information of labels and the words of their documents, by clustering and number."""
    vectoriser = vectoriser_for(data.train.documents, Words(), None)
    features = sp.csr_matrix(vectoriser.transform(data.train.documents))
    relevance, n_labels = data.train.relevance, data.n_labels
    words = sp.csr_matrix(relevance.T @ features)
    centroids = label_centroids(relevance, features)
    chosen = LabelGraph()
    graph = chosen.normalise(chosen.build(relevance, data.labels.names, seed))
    most = int(np.log2(n_labels / 3))
    for n_clusters in (1 << most, 1 << (most - 2)):
        found = {
            "centroids over the graph": cluster_labels(sp.csr_matrix(graph @ centroids), n_clusters, seed),
            "centroids": cluster_labels(centroids, n_clusters, seed),
            "random": np.random.default_rng(seed).permutation(n_labels) % n_clusters,
        }
        for name, clusters in found.items():
            loss = round(mutual_information_loss(words, clusters), 3)
            row = {"data": data.name, "clustering": name, "n_clusters": n_clusters, "seed": seed, "loss_percent": loss}
            record("clusterings", row, Path(arguments.folder))
            print(f"{n_clusters:8} {name:28} {loss:6.2f}", flush=True)


def neighbourhoods(data: Dataset, arguments: argparse.Namespace, seed: int) -> None:
    """What the graph of the remaining documents says about those held out one by one, in groups, and about test."""
    run = Run(torch.device("cpu"), seed, Checkpoint(None), lambda _: None)
    alone = hold_out(data, seed=seed)
    parts = parted(prepare(data, Words(), None, seed), run)
    assert parts.held_out is not None
    splits = {
        "text by text": (alone[0].relevance, alone[1].relevance),
        "in groups": (parts.relevance, parts.held_out.relevance),
        "test": (data.train.relevance, data.split("test").relevance),
    }
    for name, (seen, asked) in splits.items():
        graph = LabelGraph(edges=_NEIGHBOURS).build(seen, data.labels.names, seed)
        graph.setdiag(0)
        graph.eliminate_zeros()
        graph.data[:], wanted = 1, sp.csr_matrix(asked, dtype=np.float32)
        led_to = sp.csr_matrix((wanted @ graph).multiply(wanted))  # (n, L) relevant neighbours of each relevant label
        several = np.asarray(wanted.sum(axis=1)).ravel() > 1
        right = 100 * led_to.sum() / (wanted @ graph).sum()
        reached = 100 * led_to[several].count_nonzero() / wanted[several].sum()
        row = {"data": data.name, "documents": name, "neighbours": _NEIGHBOURS, "seed": seed}
        row |= {"relevant_percent": round(right, 3), "reached_percent": round(reached, 3)}
        record("graph_neighbours", row, Path(arguments.folder))
        print(f"{name:14} {right:6.2f} % of neighbours are relevant, {reached:6.2f} % of labels are one", flush=True)


if __name__ == "__main__":
    main()
