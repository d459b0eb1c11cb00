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
import dataclasses
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.accuracy.run import (
    asked_for,
    forget_peak,
    held_out,
    part_of,
    peak_mib,
    settings_for,
    table_arguments,
)
from benchmarks.record import record, resolved

from xclearn import algorithms, config
from xclearn.data import Dataset, load_dataset
from xclearn.inference import evaluate
from xclearn.inference.blend import BlendServable
from xclearn.inference.evaluation import label_counts
from xclearn.inference.folder import Model
from xclearn.inference.re_ranking import ReRanking
from xclearn.inference.servable import Ensemble, Servable
from xclearn.inference.shortlists import LearnedEdges
from xclearn.metrics import Report, relevant_scores, volume_bins
from xclearn.parts.calibration import Calibration
from xclearn.parts.sparse_ranking import SparseRanking
from xclearn.training.checkpoint import Checkpoint
from xclearn.training.prepare import prepare
from xclearn.training.ranker_training import re_ranked
from xclearn.training.run import Run, pick_device

SHOWN = ("P@1", "P@3", "P@5", "R@10", "R@20", "R@100")
_HOLD_OUT = "stopping.metric=nDCG@5 stopping.patience=50"  # never ends a stage early
_AUTHORS = (
    "negatives=shortlist reduction=mean weight_decay=0.01 most_clusters=25 recluster_after=5 edge_start=random "
    "restart_labels=true label_optimiser=adam first.label_lr=0.005 second.label_lr=0.005 second.accumulation=10 "
    "second.average_from=0.2"
)
_RANKING, _CALIBRATION = SparseRanking(depth=100), Calibration()
After = tuple[str, SparseRanking | None, Calibration | None]  # name, and what follows the trained model
Row = tuple[str, str, tuple[After, ...]]  # table, "algorithm setting=value …", rows of this one training


def _steps(*names: str) -> tuple[After, ...]:
    """The model as it is, with the ranker, and with the calibration too."""
    ways = ((None, None), (_RANKING, None), (_RANKING, _CALIBRATION))
    return tuple((name, *way) for name, way in zip(names, ways, strict=False))


TABLES: list[Row] = [
    ("2", "one_vs_all", _steps("OvA")),
    ("2", "elias", _steps("ELIAS-1", "ELIAS-1 + ranker")),
    ("2", "elias n_members=3", _steps("ELIAS", "ELIAS + ranker")),
    ("3", "elias training=partition", _steps("stage 1")),
    ("3", f"elias {_HOLD_OUT}", _steps("+ stage 2", "+ sparse ranker", "+ calibration")),
    ("3", f"elias {_HOLD_OUT} n_members=3", _steps("3 members", "3 members + ranker", "3 members + calibration")),
    ("variants", "elias training=end_to_end", _steps("from random initialisation")),
    ("variants", "elias negatives=shortlist", _steps("classifiers on paths")),
    ("variants", "elias edge_start=random", _steps("random edge weights")),
    ("variants", "elias restart_labels=true", _steps("label rows anew")),
    ("variants", "elias negatives=shortlist most_clusters=25", _steps("on paths, 25 clusters at most")),
    ("variants", "elias recluster_after=5", _steps("clustered again")),
    ("variants", "elias negatives=shortlist second.average_from=0.2", _steps("on paths, averaged")),
    (
        "variants",
        "elias negatives=shortlist first.accumulation=10 second.accumulation=10",
        _steps("on paths, 10 steps accumulated"),
    ),
    (
        "variants",
        "elias first.shortlist_loss_weight=0 second.shortlist_loss_weight=0",
        _steps("no loss of the shortlist"),
    ),
    ("variants", "elias weight_decay=0.01", _steps("weight decay")),
    ("variants", f"elias {_AUTHORS}", _steps("all of the authors' ways at once")),
    (
        "variants",
        "elias label_optimiser=adam first.label_lr=0.005 second.label_lr=0.005",
        _steps("Adam on label rows"),
    ),
    ("variants", f"elias {_HOLD_OUT}", (("ranker over vectors too", SparseRanking(depth=100, vector=True), None),)),
    *(
        ("ranker", f"{name} {_HOLD_OUT}", _steps(name, f"{name} + ranker", f"{name} + ranker + calibration"))
        for name in ("one_vs_all", "decaf", "astec")
    ),
]


def main() -> None:
    arguments = _arguments()
    data = part_of(load_dataset(arguments.data), arguments.documents)
    data = held_out(data) if arguments.split == "hold_out" else data
    for table, line, rows in TABLES:
        if not any(asked_for(arguments, table, name) for name, *_ in rows):
            continue
        for seed in arguments.seeds:
            for name, figures in run(data, arguments, (table, line, rows), seed):
                shown = " ".join(f"{figures[metric]:6.2f}" for metric in SHOWN)
                print(f"{table:8} {name:32} seed {seed}  {shown}", flush=True)


def run(data: Dataset, arguments: argparse.Namespace, row: Row, seed: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Train once, measure the model and what may follow it, and write the rows down."""
    table, line, after = row
    name, *settings = line.split()
    settings = [*_encoder(arguments, name), *settings_for(name, arguments), *settings]
    algorithm = config.build(algorithms.find(name), config.merge({}, settings), name)
    epochs: list[float] = []
    forget_peak()
    started = time.perf_counter()
    algorithm.fit(
        data,
        device=arguments.device,
        seed=seed,
        callback=lambda event: epochs.append(event["seconds"]) if event["event"] == "epoch" else None,
    )
    trained, peak = time.perf_counter() - started, peak_mib()
    facts: dict[str, Any] = {"data": data.name, "split": arguments.split, "table": table}
    facts |= {"settings": " ".join([name, *settings]), "seed": seed}
    facts["resolved"] = resolved(algorithm, Path(arguments.folder))
    prepared = prepare(data, algorithm.vectoriser, algorithm.stopping, seed)
    run = Run(pick_device(arguments.device), seed, Checkpoint(None), lambda _: None)
    for said, ranking, calibration in after:
        forget_peak()
        started = time.perf_counter()
        trained_servable = algorithm.model.servable
        assert not isinstance(trained_servable, BlendServable)
        servable = re_ranked(trained_servable, prepared, run, ranking, calibration)
        model = Trained(dataclasses.replace(algorithm.model, servable=servable))
        times = {"train_s": round(trained + time.perf_counter() - started, 1), "peak_mib": max(peak, peak_mib())}
        times["epoch_s"] = round(sum(epochs) / max(1, len(epochs)), 2)
        found = evaluate(model, data, device="auto")
        figures = {key: round(value, 3) for key, value in found.values.items()}
        record("elias", facts | {"row": said} | times | figures, Path(arguments.folder))
        record("elias_analyses", facts | {"row": said} | analyses(model, found, data), Path(arguments.folder))
        yield said, figures


@dataclasses.dataclass(frozen=True)
class Trained:
    """What `evaluate` asks for."""

    model: Model


def analyses(algorithm: Trained, report: Report, data: Dataset) -> dict[str, str]:
    """Chances of edges by rank within a cluster; recall at 100 and the mean score of true labels, by label decile.

    Also the weight of each member's calibration.
    """
    counts = label_counts(data)
    deciles = [f"{each.recall:.2f}" for each in volume_bins(report, counts, k=100, n_bins=10)]
    by_decile = [f"{score:.3g}" for score in relevant_scores(report, counts, n_bins=10)]
    return {
        "recall_100_by_decile": " ".join(deciles),
        "relevant_score_by_decile": " ".join(by_decile),
        "edges_by_rank": " ".join(_edges(algorithm)),
        "calibration_weights": " ".join(_weights(algorithm)),
    }


def _edges(algorithm: Trained) -> list[str]:
    """The mean chance of the best edge of a cluster, the second, the fourth …; nothing without learnt edges."""
    stage = getattr(_members(algorithm)[0], "candidates", None)
    if not isinstance(stage, LearnedEdges):
        return []
    ordered = -np.sort(-stage.edges, axis=1).mean(axis=0)  # (E,)
    return [f"{rank}:{ordered[rank - 1]:.4f}" for rank in 2 ** np.arange(int(np.log2(len(ordered))) + 1)]


def _weights(algorithm: Trained) -> list[str]:
    steps = [step for member in _members(algorithm) for step in member.steps if isinstance(step, ReRanking)]
    return [f"{step.calibration.weight:g}" for step in steps if step.calibration is not None]


def _members(algorithm: Trained) -> Sequence[Servable]:
    servable = algorithm.model.servable
    assert not isinstance(servable, BlendServable)
    return servable.members if isinstance(servable, Ensemble) else [servable]


def _encoder(arguments: argparse.Namespace, name: str) -> list[str]:
    if not arguments.transformer or name not in ("elias", "one_vs_all"):
        return []
    folder, length = arguments.transformer, arguments.max_length
    rates = ["first.encoder_lr=1e-4", "second.encoder_lr=5e-5"] if name == "elias" else ["encoder_lr=1e-4"]
    text = [f'vectoriser.folder="{folder}"', "vectoriser.kind=pretrained", f"vectoriser.max_length={length}"]
    return [*text, "encoder.kind=transformer", "encoder.pooling=mean", *rates]


def _arguments() -> argparse.Namespace:
    parser = table_arguments(__doc__, [row[0] for row in TABLES], [name for row in TABLES for name, *_ in row[2]])
    parser.add_argument("--transformer", default="", help="a folder with a transformer, instead of the bag")
    parser.add_argument("--max-length", type=int, default=32, help="tokens that the transformer reads")
    return parser.parse_args()


if __name__ == "__main__":
    main()
