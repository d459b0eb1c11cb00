"""The choices that the DeepXML paper compares, each trained with several seeds: Tables 4 and 6, re-ranker, ensemble.

    python -m benchmarks.accuracy.astec --data wordnet-related --seeds 0 1 2
    python -m benchmarks.accuracy.astec --data debian-related --tables 6b 6d --seeds 0 --set surrogate_epochs=2

Rows go to results/astec_tables.csv, one a seed; the means with 95 % intervals are printed. `--plot FILE.svg` draws what
is recorded there instead, and trains nothing (it needs the extra `plot`). As in the paper Table 6 has no re-ranker.
Figures are of test; settings were chosen elsewhere.
"""

from __future__ import annotations

import argparse
import csv
import math
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from benchmarks.accuracy.run import asked_for, figures, fitted, held_out, part_of, table_arguments
from benchmarks.record import record
from scipy.stats import t

from xclearn.data import load_dataset

SHOWN = ("P@1", "P@3", "P@5", "PSP@1", "PSP@5", "R@10")
_ONLY = "reranker_epochs=0"
Row = tuple[str, str, str]  # table, name, "algorithm setting=value …"

TABLES: list[Row] = [
    ("4", "XML-CNN", "xml_cnn"),
    ("4", "DeepXML with XML-CNN's features", f"astec vectoriser=sequences encoder=convolution {_ONLY}"),
    ("4", "MACH", "mach"),
    ("4", "DeepXML with MACH's features", f"astec encoder=multilayer {_ONLY}"),
    ("6a", "CNN", f"astec vectoriser=sequences encoder=convolution {_ONLY}"),
    ("6a", "MLP", f"astec encoder=multilayer {_ONLY}"),
    ("6a", "Astec", f"astec {_ONLY}"),
    *(
        ("6b", name, f"astec surrogate={name} {_ONLY}")
        for name in ("word_vectors", "projection", "hashing", "selection", "clusters", "correlated_clusters", "none")
    ),
    *(
        ("6c", name, f"astec classifier={name} {_ONLY}")
        for name in ("label_tree", "slice", "sparse_one_vs_all", "rows")
    ),
    *(
        ("6d", name, f"astec negatives={name} {_ONLY}")
        for name in ("uniform", "unigram", "centroids", "documents", "both", "cluster", "tree", "hash", "all")
    ),
    ("transfer", "spectral", f"astec {_ONLY}"),
    *(
        ("transfer", name, f"astec transfer={name} {_ONLY}")
        for name in ("capped", "free", "fully_connected", "fine_tune")
    ),
    ("re-ranker", "without", f"astec {_ONLY}"),
    ("re-ranker", "with", "astec"),
    ("ensemble", "1", "astec"),
    ("ensemble", "3", "astec n_members=3"),
    ("frameworks", "DeepXML", f"astec {_ONLY}"),
    ("frameworks", "DeepXML-OVA", "one_vs_all"),
    ("frameworks", "DeepXML-ANNS", f"astec surrogate=none {_ONLY}"),
]


def main() -> None:
    arguments = _arguments()
    data = part_of(load_dataset(arguments.data), arguments.documents)
    if arguments.plot:
        plot("astec_tables", arguments, data.name)
        return
    data = held_out(data) if arguments.split == "hold_out" else data
    wanted = [row for row in TABLES if asked_for(arguments, row[0], row[1])]
    measured = dict[tuple[str, int], dict[str, Any]]()
    for table, name, line in wanted:
        for seed in arguments.seeds:
            if (line, seed) not in measured:  # the same settings stand in several tables
                algorithm, about = fitted(data, arguments, line, seed)
                measured[line, seed] = about | figures(algorithm, data)
            facts = {"data": data.name, "split": arguments.split, "table": table, "row": name}
            record("astec_tables", facts | measured[line, seed], Path(arguments.folder))
        values = [measured[line, seed] for seed in arguments.seeds]
        shown = "  ".join(f"{column} {interval([row[column] for row in values])}" for column in SHOWN)
        print(f"{table:10} {name:32} {shown}", flush=True)


def interval(values: list[float]) -> str:
    """Mean ± half the 95 % interval over seeds."""
    return f"{mean(values):5.2f} ± {_spread(values):.2f}"


def _spread(values: list[float]) -> float:
    """By Student's t, as seeds are few."""
    return t.ppf(0.975, len(values) - 1) * stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan


def plot(name: str, arguments: argparse.Namespace, data: str) -> None:
    """P@1 of every row recorded, a bar each, with its interval: of the last settings that the row was trained with."""
    from matplotlib import pyplot

    found = dict[str, dict[str, list[float]]]()  # by row, then by settings and machine, the last last
    with (Path(arguments.folder) / f"{name}.csv").open(encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            if (row["data"], row["split"]) == (data, arguments.split) and asked_for(
                arguments, row["table"], row["row"]
            ):
                by_settings = found.setdefault(f"{row['table']}: {row['row']}", {})
                by_settings.setdefault(row["settings"] + row["machine"], []).append(float(row["P@1"]))
    values = [list(by_settings.values())[-1] for by_settings in found.values()]
    spreads = [_spread(each) for each in values]
    figure, axes = pyplot.subplots(figsize=(8, 0.3 * len(found) + 1))
    axes.barh(list(found), [mean(each) for each in values], xerr=spreads)
    axes.invert_yaxis()
    axes.set_xlabel("P@1")
    axes.set_title(data)
    figure.tight_layout()
    figure.savefig(arguments.plot)


def _arguments() -> argparse.Namespace:
    parser = table_arguments(__doc__, [row[0] for row in TABLES], [row[1] for row in TABLES])
    parser.add_argument("--plot", default="", help="draw the recorded P@1 to this file; train nothing")
    return parser.parse_args()


if __name__ == "__main__":
    main()
