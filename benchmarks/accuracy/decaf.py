"""What the DECAF paper compares: Tables 4 (label text), 5 (shortlists) and 6 (variants), Figures 4, 5 and 6.

    python -m benchmarks.accuracy.decaf --data wordnet-related --seeds 0 1 2
    python -m benchmarks.accuracy.decaf --data debian-related --tables 5 "figure 6" --seeds 0 --set surrogate_epochs=10
    python -m benchmarks.accuracy.decaf --data debian-related --tables 6 --only DECAF DECAF-lite DECAF-z1 DECAF-z2
    python -m benchmarks.accuracy.decaf --data wordnet-related --plot pictures

Rows go to results/decaf_tables.csv, one a seed; the bins of Figure 4 (the first has the most frequent labels) to
decaf_bins.csv, the recall of Figure 6 to decaf_beam.csv. Settings that stand in several tables are trained once a seed,
all members of Figure 5 too. `--plot FOLDER` trains nothing and draws the figures that are recorded (it needs the extra
`plot`). Figures are of test; settings were chosen elsewhere.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import math
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from benchmarks.accuracy.astec import interval
from benchmarks.accuracy.run import asked_for, figures, fitted, held_out, part_of, settings_for, table_arguments
from benchmarks.record import record
from sklearn.preprocessing import normalize

from xclearn import algorithms, config
from xclearn.data import Dataset, Split, load_dataset
from xclearn.inference import Predictor, evaluate
from xclearn.inference.components import ClusterBeam
from xclearn.inference.evaluation import label_counts
from xclearn.inference.servable import Ensemble, Servable
from xclearn.metrics import volume_bins
from xclearn.parts.frozen import latent_tokens
from xclearn.training.algorithm import Algorithm
from xclearn.training.prepare import prepare

SHOWN = ("P@1", "P@3", "P@5", "PSP@1", "PSP@5", "R@20", "contribution", "labels", "recall")
PREMISE = ("label_sparsity", "shortlist_recall")  # what Theorem 3.1 asks for, on train
BEAMS = tuple(1 << power for power in range(9))
_MEMBERS, _WORD_DIM, _AT_ONCE = 5, 300, 1024
_OURS, _PAPER = "decaf", "decaf ranker=shortlist"  # ours is exact on a GPU, sampled on a CPU
_FEWER = f"{_PAPER} n_clusters={{quarter}}"
_SHORTLISTER = f"{_PAPER} beam=1 ranker_epochs=1"  # the least of Module IV, of which nothing is measured
_Z1, _Z2 = 'refinement="none"', "label_text=false"
Row = tuple[str, str, str]  # table, name, "algorithm setting=value …"
Measure = Callable[[Algorithm, Dataset], list[dict[str, Any]]]

TABLES: list[Row] = [
    *(
        ("4", f"{name}{said}", f"{line}{setting}")
        for name, line in (
            ("Parabel", "label_tree branching=2"),
            ("Bonsai", "label_tree branching=128"),
            ("label_tree", "label_tree"),
            ("DiSMEC", "sparse_one_vs_all"),
        )
        for said, setting in (("", " label_text_weight=0.0"), (" + label text", ""))
    ),
    ("4", "DECAF", _OURS),
    ("5", "none: all labels or a sample", _OURS),
    ("5", "DECAF's shortlister", _PAPER),
    ("5", "nearest labels", f"{_PAPER} shortlist=nearest"),  # HNSW where faiss is installed and labels are many
    ("5", "Parabel's tree", f"{_PAPER} shortlist=tree"),
    *(
        ("6", f"{name}{said}", f"{line} {settings}".rstrip())
        for said, line in (("", _OURS), (", shortlist", _PAPER))
        for name, settings in (
            ("DECAF", ""),
            ("DECAF-lite", "freeze_tokens=true"),
            ("DECAF-FFT", "freeze_tokens=true {word_vectors}"),
            ("DECAF-no-init", "refinement=random"),
            ("DECAF-z1", _Z1),
            ("DECAF-z2", _Z2),
            ("blocks restarted", "restart_blocks=true"),
        )
    ),
    ("6", "DECAF, shortlist, no positives added", f"{_PAPER} add_positives=false"),
    ("6", "DECAF-8K: a quarter of the clusters", _FEWER),
    ("6", "DECAF-8K: a quarter of the clusters, no positives added", f"{_FEWER} add_positives=false"),
    ("figure 4", "DECAF", _OURS),
    ("figure 4", "one_vs_all", "one_vs_all"),
    ("figure 4", "DECAF-z1", f"{_OURS} {_Z1}"),
    ("figure 4", "DECAF-z2", f"{_OURS} {_Z2}"),
    ("figure 5", "ensemble", f"{_OURS} n_members={_MEMBERS}"),
    ("figure 6", "large fanout", _SHORTLISTER),
    ("figure 6", "a sixteenth", f"{_SHORTLISTER} n_clusters={{sixteenth}}"),
]
PICTURES: dict[str, tuple[str, tuple[str, ...]]] = {  # the x axis, and what is drawn over it
    "figure 4": ("bin", ("contribution",)),
    "figure 5": ("members", ("P@1", "P@5", "PSP@1", "PSP@5")),
    "figure 6": ("beam", ("recall",)),
}


def main() -> None:
    arguments = _arguments()
    data = part_of(load_dataset(arguments.data), arguments.documents)
    data = held_out(data) if arguments.split == "hold_out" else data
    if arguments.plot:
        for table in PICTURES:
            plot(table, data.name, arguments)
        return
    with tempfile.TemporaryDirectory() as folder:
        for line, wanted in lines(data, arguments, Path(folder)).items():
            show([row for seed in arguments.seeds for row in run(data, arguments, line, seed, wanted)])


def lines(data: Dataset, arguments: argparse.Namespace, folder: Path) -> dict[str, list[tuple[str, str]]]:
    """The (table, name) of the rows asked for, by what is to be trained for them."""
    wanted = [row for row in TABLES if asked_for(arguments, row[0], row[1])]
    automatic = 1 << max(0, min(17, math.floor(math.log2(data.n_labels / 3))))  # as many clusters as DECAF chooses
    values: dict[str, Any] = {"quarter": max(1, automatic // 4), "sixteenth": max(1, automatic // 16)}
    if any("{word_vectors}" in line for *_, line in wanted):
        values["word_vectors"] = vectors_for(data, arguments, folder)
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for table, name, line in wanted:
        found[line.format(**values)].append((table, name))
    return found


def vectors_for(data: Dataset, arguments: argparse.Namespace, folder: Path) -> str:
    """Settings that name a file of word vectors; one is made from the documents of train where none was given."""
    if arguments.word_vectors:
        return f"word_vectors={arguments.word_vectors}"
    settings = config.merge({}, settings_for("decaf", arguments))
    algorithm = config.build(algorithms.find("decaf"), settings, "decaf")
    dim = getattr(algorithm, "embedding_dim", None) or _WORD_DIM
    features = prepare(data, algorithm.vectoriser, None, 0).features
    np.save(folder / "latent.npy", normalize(latent_tokens(features, dim, 0)))
    return f"word_vectors={folder / 'latent.npy'} embedding_dim={dim}"


def run(
    data: Dataset, arguments: argparse.Namespace, line: str, seed: int, wanted: list[tuple[str, str]]
) -> list[dict[str, Any]]:
    """Train once, measure for each (table, name), and write the rows down."""
    algorithm, facts = fitted(data, arguments, line, seed)
    facts["settings"] = re.sub(r"word_vectors=\S*/", "word_vectors=", facts["settings"])  # no folder of a machine
    rows = []
    for table, name in wanted:
        about = {"data": data.name, "split": arguments.split, "table": table, "row": name}
        file, measure = MEASURES.get(table, ("decaf_tables", whole))
        for measured in measure(algorithm, data):
            rows.append(about | facts | measured)
            record(file, rows[-1], Path(arguments.folder))
    return rows


def whole(algorithm: Algorithm, data: Dataset) -> list[dict[str, Any]]:
    """Tables: one row."""
    noted = algorithm.model.about["training"]
    return [{name: noted[name] for name in PREMISE if name in noted} | figures(algorithm, data)]


def by_bin(algorithm: Algorithm, data: Dataset) -> list[dict[str, Any]]:
    """Figure 4: what labels of each frequency contribute to P@5, and the share of them that is found."""
    found = volume_bins(evaluate(algorithm, data), label_counts(data), k=5, n_bins=5)
    return [
        {"bin": number, **each._asdict(), "contribution": round(each.contribution, 3), "recall": round(each.recall, 3)}
        for number, each in enumerate(found, start=1)
    ]


def by_members(algorithm: Algorithm, data: Dataset) -> list[dict[str, Any]]:
    """Figure 5: the first member, the first two …"""
    model = algorithm.model
    assert isinstance(model.servable, Ensemble)
    members, rows = model.servable.members, []
    for number in range(1, len(members) + 1):
        smaller = dataclasses.replace(model, servable=Ensemble(members[:number]))
        rows.append({"members": number, **figures(Predictor(smaller), data)})
    return rows


def by_beam(algorithm: Algorithm, data: Dataset) -> list[dict[str, Any]]:
    """Figure 6: the share of relevant labels in the best 1, 2, 4 … clusters, and how many labels those have."""
    servable, rows = algorithm.model.servable, []
    assert isinstance(servable, Servable)
    assert isinstance(servable.candidates, ClusterBeam)
    widest = dataclasses.replace(servable.candidates, beam=BEAMS[-1])
    for part in ("train", "test"):
        labels, recall = _reached(servable, widest, data.split(part))
        for beam in (beam for beam in BEAMS if beam <= len(recall)):
            said = {"labels": round(labels[beam - 1], 1), "recall": round(100 * recall[beam - 1], 3)}
            rows.append({"n_clusters": len(widest.bias), "part": part, "beam": beam, **said})
    return rows


def _reached(servable: Servable, stage: ClusterBeam, split: Split) -> tuple[np.ndarray, np.ndarray]:
    """Labels a document in its best 1, 2, … clusters, and the share of relevant ones that are there; each (beam,)."""
    sizes = np.diff(stage.offsets)  # (K,)
    cluster_of_label = np.repeat(np.arange(len(sizes)), sizes)[np.argsort(stage.labels)]  # (L,)
    features = servable.vectoriser.transform(split.documents)
    hits, listed = (np.zeros(min(len(sizes), stage.beam)) for _ in range(2))
    for start in range(0, len(split), _AT_ONCE):
        rows = slice(start, start + _AT_ONCE)
        clusters, _ = stage.best({stage.vector: servable.encoders[stage.vector].encode(features[rows])})  # (n, beam)
        relevant = split.relevance[rows].tocoo()
        hits += (clusters[relevant.row] == cluster_of_label[relevant.col][:, None]).sum(axis=0)
        listed += sizes[clusters].sum(axis=0)
    return listed.cumsum() / len(split), hits.cumsum() / split.relevance.nnz


MEASURES: dict[str, tuple[str, Measure]] = {  # others than one row of decaf_tables
    "figure 4": ("decaf_bins", by_bin),
    "figure 5": ("decaf_tables", by_members),
    "figure 6": ("decaf_beam", by_beam),
}


def show(rows: list[dict[str, Any]]) -> None:
    """Means with 95 % intervals over seeds."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[tuple(f"{row[key]}" for key in ("table", "row", "part", "bin", "members", "beam") if key in row)] += [
            row
        ]
    for said, found in groups.items():
        columns = [column for column in SHOWN if column in found[0]]
        values = "  ".join(f"{column} {interval([row[column] for row in found])}" for column in columns)
        print(f"{' · '.join(said):48} {values}", flush=True)


def plot(table: str, data: str, arguments: argparse.Namespace) -> None:
    """A line for each row and metric of a figure, the mean over seeds; of a seed measured twice the last counts."""
    from matplotlib import pyplot

    x, metrics = PICTURES[table]
    curves: dict[str, dict[int, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    with (Path(arguments.folder) / f"{MEASURES[table][0]}.csv").open(encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            if (row["data"], row["split"], row["table"]) == (data, arguments.split, table):
                for metric in metrics:
                    name = " ".join(filter(None, [row["row"], row.get("part"), metric]))
                    curves[name][int(row[x])][row["seed"]] = float(row[metric])
    figure, axes = pyplot.subplots()
    for name, points in curves.items():
        axes.plot(list(points), [mean(seeds.values()) for seeds in points.values()], marker="o", label=name)
    axes.set(xlabel=x, ylabel="percent", title=data, xscale="log" if x == "beam" else "linear")
    axes.legend()
    Path(arguments.plot).mkdir(parents=True, exist_ok=True)
    figure.savefig(Path(arguments.plot) / f"decaf_{table.replace(' ', '_')}.svg")


def _arguments() -> argparse.Namespace:
    parser = table_arguments(__doc__, [row[0] for row in TABLES], [row[1] for row in TABLES])
    parser.add_argument("--word-vectors", default="", help="a file for DECAF-FFT, as long as embedding_dim")
    parser.add_argument("--plot", default="", help="draw recorded figures to this folder; train nothing")
    return parser.parse_args()


if __name__ == "__main__":
    main()
