"""Each paper's own path with its authors' settings, and beside it what we do by default: full-length rows for a GPU.

    PYTHONPATH=src python -m benchmarks.accuracy.papers --data-folder DATA --minutes 9.5 --checkpoints /tmp/papers

trains the most important forms first (`--list` names them all, in this order), by default on wordnet-related and
debian-related with seed 0. DATA holds a folder for each set; sets without one are looked for among the bundled. DECAF
against ECLARE, whose order and share of the graph are chosen on a hold-out, on all four sets:

    PYTHONPATH=src python -m benchmarks.accuracy.papers --data-folder DATA --only decaf eclare \
        --sets wordnet-related debian-related eurlex57k-titles finna-yso

A run adds its row to papers.csv in `--folder` as soon as it is measured. What has a row there or in benchmarks/results
is not run again unless `--again`. When `--minutes` are over, the run in progress is ended and what is left is printed:
the same command goes on from there, with `--checkpoints` in the middle of that run too. A run that fails is reported at
the end and does not stop the others. The authors' settings are those of configs/*/LF-AmazonTitles-131K.toml, with words
and a bag of tokens instead of a transformer, exact search, and no more clusters than fit the set.
"""

from __future__ import annotations

import argparse
import csv
import gc
import math
import re
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch
from benchmarks.accuracy.eclare import TABLES as ECLARE_TABLES
from benchmarks.accuracy.eclare import TESTED
from benchmarks.accuracy.run import forget_peak, held_out, part_of, peak_mib, settings_for
from benchmarks.record import RESULTS, record, resolved

from xclearn import algorithms, config
from xclearn.data import Dataset, load_dataset
from xclearn.inference import evaluate
from xclearn.metrics.report import Report
from xclearn.metrics.significance import paired_test
from xclearn.training.algorithm import Algorithm

SHOWN = ("P@1", "P@3", "P@5", "PSP@1", "PSP@5", "R@10")
CONFIGS = Path(__file__).parents[2] / "configs"
AGAINST = "decaf"  # the form that every other is tested against, where it was trained before in the same command
_AUTHORS = "LF-AmazonTitles-131K"
_ELIAS = "vectoriser=words encoder=bag first.encoder_lr=auto second.encoder_lr=auto n_members=1"


@final
@dataclass(frozen=True)
class Form:
    """A named way of training."""

    name: str  # as `--only` takes it
    title: str
    algorithm: str
    config: str = ""  # of configs/<algorithm>; none: all defaults
    settings: str = ""  # "setting=value …" over it

    def build(self, n_labels: int, changes: list[str]) -> Algorithm:
        """With the settings of its file, its own, `changes`, and sizes that fit the number of labels."""
        found = algorithms.find(self.algorithm)
        table: Mapping[str, Any] = {}
        if self.config:
            table = config.read_toml(CONFIGS / self.algorithm / f"{self.config}.toml")["settings"]
        values = fitting(config.merge(table, self.settings.split()), self.algorithm, n_labels)
        return config.build(found, config.merge(values, changes), self.algorithm)


def _paper(name: str, title: str, algorithm: str, settings: str = "", source: str = _AUTHORS) -> Form:
    return Form(name, title, algorithm, source, settings)


_VARIANTS = [
    (re.sub(r"[^a-z0-9]+", "-", name.split(", ")[-1].lower()), name, line.split("restart_blocks=true", 1)[1].strip())
    for table, name, line in ECLARE_TABLES
    if table == "5" and "ranker=shortlist" in line and name not in ("ECLARE", "8K: a quarter of the clusters")
]
_ECLARE = "vectoriser=words n_members=1"

FORMS: list[Form] = [  # the most important first
    Form("decaf", "ours: DECAF", "decaf"),
    Form("eclare", "ours: ECLARE, chosen on a hold-out", "eclare"),
    _paper("decaf-paper", "DECAF, the paper's path", "decaf", "n_members=1"),
    _paper("eclare-paper", "ECLARE, the paper's path", "eclare", _ECLARE),
    _paper("astec-paper", "Astec, the paper's path", "astec"),
    _paper("anns-paper", "DeepXML-ANNS", "astec", source="EURLex-4K-anns"),
    _paper("lightdxml-paper", "LightDXML, the paper's path", "lightdxml", "search=exact"),
    _paper("elias-paper", "ELIAS, the paper's path", "elias", _ELIAS),
    Form("astec", "ours: Astec", "astec"),
    Form("lightdxml", "ours: LightDXML", "lightdxml"),
    Form("elias", "ours: ELIAS", "elias"),
    Form("one_vs_all", "ours: one_vs_all", "one_vs_all"),
    _paper("decaf-paper-3", "DECAF, the paper's path, 3 members", "decaf", "n_members=3"),
    _paper("eclare-paper-3", "ECLARE, the paper's path, 3 members", "eclare", f"{_ECLARE} n_members=3"),
    Form("decaf-3", "ours: DECAF, 3 members", "decaf", settings="n_members=3"),
    *(
        _paper(f"eclare-{name}", f"ECLARE: {title}", "eclare", f"{_ECLARE} {more}")
        for name, title, more in _VARIANTS
    ),
    _paper("astec-paper-no-ranker", "Astec, the paper's path, no re-ranker", "astec", "reranker_epochs=0"),
    _paper("lightdxml-paper-relu", "LightDXML, label encoder with a ReLU", "lightdxml",
           "search=exact label_encoder_relu=true final_refresh=true"),
]  # fmt: skip
_WITHOUT_RANKER = ("reranker_lr", "reranker_size", "reranker_weight")


def fitting(settings: dict[str, Any], algorithm: str, n_labels: int) -> dict[str, Any]:
    """The same settings where there are fewer labels than in the set that they were published for."""
    fitted = dict(settings)
    if "n_clusters" in fitted:
        rule = math.ceil(math.log2(n_labels / 100)) if algorithm == "elias" else math.floor(math.log2(n_labels / 3))
        fitted["n_clusters"] = min(fitted["n_clusters"], 2 ** max(0, rule))
        if algorithm == "elias":
            fitted["beam"] = min(fitted["beam"], fitted["n_clusters"])
            fitted["edges_per_cluster"] = min(fitted["edges_per_cluster"], n_labels)
            fitted["shortlist_size"] = min(fitted["shortlist_size"], n_labels)
    if fitted.get("reranker_epochs") == 0:
        fitted = {name: value for name, value in fitted.items() if name not in _WITHOUT_RANKER}
    return fitted


class OutOfTime(Exception):
    """The minutes are over."""


@final
@dataclass(frozen=True)
class Wanted:
    """One run."""

    form: Form
    source: str
    seed: int

    def __str__(self) -> str:
        return f"{self.form.name} on {self.source}, seed {self.seed}"


def main() -> None:
    arguments = _arguments()
    if arguments.list:
        print("\n".join(f"{form.name:24} {form.title}" for form in FORMS))
        return
    deadline = time.monotonic() + 60 * arguments.minutes
    left = list(runs(arguments))
    failed = list[Wanted]()
    against = dict[tuple[str, int], Report]()
    sets = dict[str, Dataset]()
    while left:
        wanted = left[0]
        try:
            data = sets.setdefault(wanted.source, _data(wanted.source, arguments))
            measure(wanted, data, arguments, deadline, against)
        except OutOfTime:
            break
        except Exception:  # one form that cannot be trained must not cost the rows of the others
            traceback.print_exc()
            failed.append(wanted)
        left.pop(0)
        _free()
    for said, some in (("failed", failed), ("left", left)):
        if some:
            print(f"{said}: {'; '.join(map(str, some))}", flush=True)
    sys.exit(1 if failed else 0)


def runs(arguments: argparse.Namespace) -> Iterator[Wanted]:
    """What is to be trained, form after form."""
    for form in FORMS:
        if arguments.only and form.name not in arguments.only:
            continue
        for source in arguments.sets:
            for seed in arguments.seeds:
                yield Wanted(form, source, seed)


def measure(
    wanted: Wanted,
    data: Dataset,
    arguments: argparse.Namespace,
    deadline: float,
    against: dict[tuple[str, int], Report],
) -> None:
    """Train and measure once, and write the row down."""
    form, seed, folder = wanted.form, wanted.seed, Path(arguments.folder)
    facts = {"data": data.name, "split": arguments.split, "form": form.name, "title": form.title}
    changes = settings_for(form.algorithm, arguments)
    facts |= {"settings": " ".join(filter(None, [form.config, form.settings, *changes])), "seed": f"{seed}"}
    if not arguments.again and recorded(facts, folder):
        print(f"{wanted}: has its row", flush=True)
        return
    if time.monotonic() > deadline:
        raise OutOfTime
    algorithm = form.build(data.n_labels, changes)
    forget_peak()
    started = time.perf_counter()
    _train(algorithm, data, wanted, arguments, deadline)
    times = {"train_s": round(time.perf_counter() - started, 1), "peak_mib": peak_mib()}
    report = evaluate(algorithm, data, device="auto")
    values: dict[str, Any] = {name: round(value, 3) for name, value in report.values.items()}
    if form.name == AGAINST:
        against[data.name, seed] = report
    elif (data.name, seed) in against:
        values |= tested(report, against[data.name, seed])
    row = facts | {"resolved": resolved(algorithm, folder)} | times | values
    record("papers", row, folder)
    shown = " ".join(f"{report.values[name]:6.2f}" for name in SHOWN)
    print(f"{shown} | {times['train_s']:7.1f} s {times['peak_mib']:6} MiB | {wanted}", flush=True)


def _train(algorithm: Algorithm, data: Dataset, wanted: Wanted, arguments: argparse.Namespace, deadline: float) -> None:
    """Train, from where an earlier command was cut off, until the time is over."""

    def note(event: Mapping[str, Any]) -> None:
        if event["event"] == "epoch" and time.monotonic() > deadline:
            raise OutOfTime

    checkpoint = None
    if arguments.checkpoints:
        checkpoint = Path(arguments.checkpoints) / f"{data.name}-{wanted.form.name}-{wanted.seed}"
    resume = checkpoint is not None and (checkpoint / "checkpoint.json").exists()
    algorithm.fit(data, device=arguments.device, seed=wanted.seed, callback=note, checkpoint=checkpoint, resume=resume)


def tested(report: Report, other: Report) -> dict[str, str]:
    """Paired tests against the form that others are tested against."""
    found = {}
    for metric in TESTED:
        test = paired_test(report, other, metric, repeats=2_000)
        said = f"{test.difference:.3f} ({test.low:.3f}, {test.high:.3f}) p={test.p_value:.4f}"
        found[f"{metric}_over_{AGAINST}"] = said
    return found


def recorded(facts: Mapping[str, str], folder: Path) -> bool:
    """Whether such a row was written, by this command or an earlier one."""
    for path in {folder / "papers.csv", RESULTS / "papers.csv"}:
        if path.exists():
            with path.open(encoding="utf-8") as stream:
                if any(all(row[key] == value for key, value in facts.items()) for row in csv.DictReader(stream)):
                    return True
    return False


def _data(source: str, arguments: argparse.Namespace) -> Dataset:
    """From the data folder, or the bundled set of that name."""
    folder = Path(arguments.data_folder) / source
    data = part_of(load_dataset(folder if arguments.data_folder and folder.exists() else source), arguments.documents)
    return held_out(data) if arguments.split == "hold_out" else data


def _free() -> None:
    """The memory of the run before."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [form.name for form in FORMS]
    parser.add_argument("--data-folder", default="", help="a folder with one folder for each set")
    parser.add_argument("--sets", nargs="+", default=["wordnet-related", "debian-related"])
    parser.add_argument("--only", nargs="*", default=[], choices=names, metavar="FORM", help="see --list")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--minutes", type=float, default=math.inf, help="after which no epoch is begun")
    parser.add_argument(
        "--checkpoints", default="", help="a folder: a run that was cut off goes on from its last epoch"
    )
    parser.add_argument("--documents", type=int, default=0, help="of train, drawn at random; 0: all")
    parser.add_argument("--split", choices=("test", "hold_out"), default="test")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="of every form that has it")
    parser.add_argument("--again", action="store_true", help="run what has a row too")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--folder", default=str(RESULTS), help="where the results are")
    parser.add_argument("--list", action="store_true", help="print the forms; train nothing")
    return parser.parse_args()


if __name__ == "__main__":
    main()
