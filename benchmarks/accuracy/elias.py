"""The rows of ELIAS's Tables 2 and 3 with several seeds, the ranker on other algorithms, the analyses of Figs. 3 to 5.

    python -m benchmarks.accuracy.elias --data wordnet-related --seeds 0 1 2
    python -m benchmarks.accuracy.elias --data debian-related --transformer all-MiniLM-L6-v2 --max-length 32
    python -m benchmarks.accuracy.elias --data debian-related --split hold_out --tables 3 --seeds 0 \
        --set first_epochs=3 --set second_epochs=2

Rows go to results/elias.csv, one a seed; what the paper's figures show to results/elias_analyses.csv. They are of test
unless `--split hold_out`; settings were chosen on a hold-out.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.accuracy.run import _peak, held_out, table_arguments
from benchmarks.record import record

from xclearn import algorithms, config
from xclearn.data import Dataset, load_dataset
from xclearn.inference import evaluate
from xclearn.inference.evaluation import label_counts
from xclearn.inference.shortlists import LearnedEdges
from xclearn.metrics import volume_bins
from xclearn.metrics.bins import mean_by_bin
from xclearn.training.algorithm import Algorithm

SHOWN = ("P@1", "P@3", "P@5", "R@10", "R@20", "R@100")
_HOLD_OUT = "stopping.metric=nDCG@5 stopping.patience=5"
_RANKER, _CALIBRATION = "sparse_ranker.depth=100", f"sparse_ranker.depth=100 calibration.depth=5 {_HOLD_OUT}"
Row = tuple[str, str, str]  # table, name, "algorithm setting=value …"

TABLES: list[Row] = [
    ("2", "OvA", "one_vs_all"),
    ("2", "ELIAS-1", "elias"),
    ("3", "stage 1", "elias training=partition"),
    ("3", "+ stage 2", "elias"),
    ("3", "+ sparse ranker", f"elias {_RANKER}"),
    ("3", "+ calibration", f"elias {_CALIBRATION}"),
    ("3", "+ ensemble of 3", f"elias {_CALIBRATION} n_members=3"),
    ("variants", "from random initialisation", "elias training=end_to_end"),
    ("variants", "random edge weights", "elias edge_start=random"),
    ("variants", "label rows anew", "elias restart_labels=true"),
    ("variants", "25 clusters at most", "elias most_clusters=25"),
    ("variants", "clustered again", "elias recluster_after=5"),
    ("variants", "averaged", "elias second.average_from=0.2"),
    ("variants", "Adam on label rows", "elias label_optimiser=adam first.label_lr=0.005 second.label_lr=0.005"),
    *(
        ("ranker", f"{name}{said}", f"{name} {settings}")
        for name in ("one_vs_all", "decaf", "astec")
        for said, settings in (("", ""), (" + ranker", _RANKER), (" + ranker + calibration", _CALIBRATION))
    ),
]


def main() -> None:
    arguments = _arguments()
    data = load_dataset(arguments.data)
    data = held_out(data) if arguments.split == "hold_out" else data
    for row in TABLES:
        if arguments.tables and row[0] not in arguments.tables:
            continue
        for seed in arguments.seeds:
            figures = run(data, arguments, row, seed)
            shown = " ".join(f"{figures[name]:6.2f}" for name in SHOWN)
            print(f"{row[0]:8} {row[1]:32} seed {seed}  {shown}", flush=True)


def run(data: Dataset, arguments: argparse.Namespace, row: Row, seed: int) -> dict[str, Any]:
    """Train and measure once, and write the rows down."""
    table, name, line = row
    algorithm_name, *settings = line.split()
    settings = [*_encoder(arguments, algorithm_name), *(arguments.set if algorithm_name == "elias" else []), *settings]
    algorithm = config.build(algorithms.find(algorithm_name), config.merge({}, settings), algorithm_name)
    epochs: list[float] = []
    started = time.perf_counter()
    algorithm.fit(
        data,
        device=arguments.device,
        seed=seed,
        callback=lambda event: epochs.append(event["seconds"]) if event["event"] == "epoch" else None,
    )
    seconds = time.perf_counter() - started
    report = evaluate(algorithm, data)
    figures = {key: round(value, 3) for key, value in report.values.items()}
    facts: dict[str, Any] = {"data": data.name, "split": arguments.split, "table": table, "row": name}
    facts |= {"settings": " ".join([algorithm_name, *settings]), "seed": seed}
    times = {"train_s": round(seconds, 1), "epoch_s": round(sum(epochs) / max(1, len(epochs)), 2), "peak_mib": _peak()}
    record("elias", facts | times | figures, Path(arguments.folder))
    record("elias_analyses", facts | analyses(algorithm, data), Path(arguments.folder))
    return figures


def analyses(algorithm: Algorithm, data: Dataset) -> dict[str, str]:
    """Chances of edges by rank within a cluster; recall at 100 and the mean score of true labels, by label decile."""
    report, counts = evaluate(algorithm, data), label_counts(data)
    deciles = [f"{each.recall:.2f}" for each in volume_bins(report, counts, k=100, n_bins=10)]
    split = data.split("test")
    found = algorithm.model.servable.predict(split.documents, 100, split.filter_pairs)
    scores = np.zeros(data.n_labels)
    np.add.at(scores, report.ids[report.hit], found.scores[report.hit])
    relevant = np.maximum(np.asarray(report.relevance.sum(axis=0)).ravel(), 1)
    by_decile = [f"{value:.4f}" for (value,) in mean_by_bin((scores / relevant)[:, None], counts, n_bins=10)]
    return {
        "recall_100_by_decile": " ".join(deciles),
        "true_score_by_decile": " ".join(by_decile),
        "edges_by_rank": " ".join(_edges(algorithm)),
    }


def _edges(algorithm: Algorithm) -> list[str]:
    """The mean chance of the best edge of a cluster, the second, the fourth …; nothing without learnt edges."""
    servable = algorithm.model.servable
    stage = getattr(getattr(servable, "members", [servable])[0], "candidates", None)
    if not isinstance(stage, LearnedEdges):
        return []
    ordered = -np.sort(-stage.edges, axis=1).mean(axis=0)  # (E,)
    return [f"{rank}:{ordered[rank - 1]:.4f}" for rank in 2 ** np.arange(int(np.log2(len(ordered))) + 1)]


def _encoder(arguments: argparse.Namespace, name: str) -> list[str]:
    if not arguments.transformer or name not in ("elias", "one_vs_all"):
        return []
    folder, length = arguments.transformer, arguments.max_length
    rates = ["first.encoder_lr=1e-4", "second.encoder_lr=5e-5"] if name == "elias" else ["encoder_lr=1e-4"]
    text = [f'vectoriser.folder="{folder}"', "vectoriser.kind=pretrained", f"vectoriser.max_length={length}"]
    return [*text, "encoder.kind=transformer", "encoder.pooling=mean", *rates]


def _arguments() -> argparse.Namespace:
    parser = table_arguments(__doc__, [row[0] for row in TABLES], "ELIAS")
    parser.add_argument("--transformer", default="", help="a folder with a transformer, instead of the bag")
    parser.add_argument("--max-length", type=int, default=32, help="tokens that the transformer reads")
    return parser.parse_args()


if __name__ == "__main__":
    main()
