"""docs/which-algorithm.md's table of cost against accuracy, from the rows of benchmarks/results.

Of an algorithm on a set and a kind of machine: the rows of test with the fewest settings given, the latest of these, as
the mean over their seeds. Nothing is chosen by its figures. `python -m benchmarks.which` writes it into the page.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

from xclearn.algorithms import algorithm_names

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "which-algorithm.md"
BEGIN = "<!-- table: python -m benchmarks.which -->\n"
END = "<!-- end of table -->\n"
SETS = ("wordnet-related", "debian-related", "finna-yso", "eurlex57k-titles", "eurlex57k", "bibtex", "delicious")
METRICS = ("P@1", "P@5", "PSP@5", "R@10")

Row = dict[str, str]


def table() -> str:
    """Markdown, a row for each set, machine and algorithm."""
    groups: dict[tuple[str, str, str], list[tuple[Row, str]]] = {}
    for row, algorithm, settings in _rows():
        groups.setdefault((row["data"], _machine(row), algorithm), []).append((row, settings))
    header = ("set", "machine", "algorithm", "settings", "training, s", *METRICS, "seeds")
    lines = ["| " + " | ".join(header) + " |", "|---|---|---|---|" + (len(header) - 4) * "---:|"]
    shown = [(key, _chosen(found)) for key, found in groups.items() if key[0] in SETS]
    for key, (settings, rows) in sorted(shown, key=lambda one: (SETS.index(one[0][0]), one[0][1], _seconds(one[1][1]))):
        figures = [f"{mean(float(row[name]) for row in rows):.1f}" for name in METRICS]
        shown_settings = settings if len(settings) <= 60 else f"{settings[:59]}…"
        cells = (*key, f"`{shown_settings}`" if settings else "", f"{_seconds(rows):.0f}", *figures, str(len(rows)))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """The page with the table of now."""
    text = PAGE.read_text(encoding="utf-8")
    return text[: text.index(BEGIN) + len(BEGIN)] + table() + text[text.index(END) :]


def _rows() -> Iterator[tuple[Row, str, str]]:
    """Every measured row of test with its algorithm and the settings that were given."""
    names = set(algorithm_names())
    for path in sorted((ROOT / "benchmarks" / "results").glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as stream:
            for row in csv.DictReader(stream):
                first, _, rest = (row.get("settings") or "").partition(" ")
                given = first in names
                algorithm = first if given else row.get("algorithm") or ""
                complete = all(row.get(name) for name in (*METRICS, "train_s"))
                if row.get("split") == "test" and algorithm in names and complete:
                    yield row, algorithm, rest if given else row.get("settings") or ""


def _chosen(found: list[tuple[Row, str]]) -> tuple[str, list[Row]]:
    fewest = min(settings.count("=") for _, settings in found)
    latest = max((row["date"], settings) for row, settings in found if settings.count("=") == fewest)
    by_seed = {row["seed"]: row for row, settings in found if (row["date"], settings) == latest}
    return latest[1], list(by_seed.values())


def _machine(row: Row) -> str:
    return "GPU" if "NVIDIA" in row["machine"] else "2 cores"


def _seconds(rows: list[Row]) -> float:
    return mean(float(row["train_s"]) for row in rows)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
