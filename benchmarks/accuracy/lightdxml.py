"""LightDXML beside Astec as in Tables II and IV of its paper, and its sweeps: mix, shortlist, epochs, cycle, re-ranker.

    python -m benchmarks.accuracy.lightdxml --data eurlex57k-titles --seeds 0 1 2
    python -m benchmarks.accuracy.lightdxml --data eurlex57k-titles --plot lightdxml.svg
    python -m benchmarks.accuracy.lightdxml --data bibtex --tables II shortlist --set negatives=nearest

Rows go to results/lightdxml.csv, one a seed: accuracy, seconds of training and of each module, bytes of the model's
folder, milliseconds a document when predicting. Seconds of a module are those of its epochs; `rest_s` is all else, the
search for shortlists included. The mix sweep reuses one training. Figures are of test; settings were chosen elsewhere.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks.accuracy.astec import interval, plot
from benchmarks.accuracy.run import asked_for, figures, fitted, held_out, part_of, table_arguments
from benchmarks.record import record

from xclearn import load
from xclearn.data import Dataset, load_dataset
from xclearn.inference import Predictor
from xclearn.inference.servable import Servable
from xclearn.inference.shortlists import Mix
from xclearn.training.algorithm import Algorithm

SHOWN = ("P@1", "P@3", "P@5", "PSP@1", "PSP@5", "R@10")
MIXES = tuple(tenth / 10 for tenth in range(11))
_CYCLE = "lightdxml negatives=nearest"
Row = tuple[str, str, str]  # table, name, "algorithm setting=value …"

TABLES: list[Row] = [
    ("II", "Astec", "astec"),
    ("II", "Astec without re-ranker", "astec reranker_epochs=0"),
    ("II", "LightDXML", "lightdxml"),
    ("II", "LightDXML, the cycle", _CYCLE),
    ("re-ranker", "without", "lightdxml"),
    ("re-ranker", "with", "lightdxml reranker_epochs=10"),
    *(("shortlist", f"{size}", f"{_CYCLE} shortlist_size={size}") for size in (50, 100, 200, 400, 800)),
    *(("epochs", f"{epochs}", f"{_CYCLE} model_epochs={epochs}") for epochs in (6, 11, 16, 21, 26)),
    ("cycle", "twice, as it comes", _CYCLE),
    ("cycle", "three times", f"{_CYCLE} refresh_every=4"),
    ("cycle", "every epoch, exact search", f"{_CYCLE} refresh_every=1 label_epochs=1 search=exact"),
    ("cycle", "no last refresh", f"{_CYCLE} final_refresh=false"),
    ("cycle", "none: all labels", "lightdxml negatives=all"),
    ("label encoder", "with a ReLU", _CYCLE),
    ("label encoder", "without", f"{_CYCLE} label_encoder_relu=false"),
    ("mix", "", "lightdxml"),
]


def main() -> None:
    arguments = _arguments()
    data = part_of(load_dataset(arguments.data), arguments.documents)
    if arguments.plot:
        plot("lightdxml", arguments, data.name)
        return
    data = held_out(data) if arguments.split == "hold_out" else data
    trained: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for table, name, line in TABLES:
        if not asked_for(arguments, table, name):
            continue
        rows = defaultdict(list)
        for seed in arguments.seeds:
            if (line, seed) not in trained:  # the same settings stand in several tables
                trained[line, seed] = run(data, arguments, line, seed)
            found = trained[line, seed]
            for row in found[1:] if table == "mix" else found[:1]:
                said = name or f"{row['fusion_weight']}"
                facts = {"data": data.name, "split": arguments.split, "table": table, "row": said}
                record("lightdxml", facts | row, Path(arguments.folder))
                rows[said].append(row)
        for said, values in rows.items():
            shown = "  ".join(f"{column} {interval([each[column] for each in values])}" for column in SHOWN)
            costs = f"{values[0]['train_s']} s, {values[0]['bytes']:,} bytes, {values[0]['predict_ms']} ms"
            print(f"{table:14} {said:26} {shown}  {costs}", flush=True)


def run(data: Dataset, arguments: argparse.Namespace, line: str, seed: int) -> list[dict[str, Any]]:
    """Train once; what was measured, and where the sweep of mixes asks for it the same at each."""
    modules: dict[str, float] = defaultdict(float)

    def note(event: Any) -> None:
        if event["event"] == "epoch":
            modules[event["stage"].split("-")[0]] += event["seconds"]

    algorithm, facts = fitted(data, arguments, line, seed, note)
    facts["modules_s"] = " ".join(f"{module}={spent:.1f}" for module, spent in modules.items())
    facts |= {"rest_s": round(facts["train_s"] - sum(modules.values()), 1), **served(algorithm, data)}
    swept = [row[2] for row in TABLES if row[0] == "mix" and asked_for(arguments, *row[:2])]
    mixes = MIXES if line in swept else ()
    return [facts | figures(algorithm, data), *(facts | mixed(algorithm, data, weight) for weight in mixes)]


def served(algorithm: Algorithm, data: Dataset) -> dict[str, Any]:
    """Bytes of the model's folder, and milliseconds a document of all of test at once."""
    with tempfile.TemporaryDirectory() as folder:
        algorithm.save(Path(folder) / "model")
        size = sum(path.stat().st_size for path in (Path(folder) / "model").iterdir())
        predictor = load(Path(folder) / "model")
        documents = data.split("test").documents
        started = time.perf_counter()
        predictor.predict(documents, 5)
        seconds = time.perf_counter() - started
    return {"bytes": size, "predict_ms": round(1000 * seconds / len(data.split("test")), 4)}


def mixed(algorithm: Algorithm, data: Dataset, weight: float) -> dict[str, Any]:
    """The figures with another weight of the classifiers."""
    model = algorithm.model
    assert isinstance(model.servable, Servable)
    assert isinstance(model.servable.fusion, Mix)
    fusion = dataclasses.replace(model.servable.fusion, weight=weight)
    other = dataclasses.replace(model, servable=dataclasses.replace(model.servable, fusion=fusion))
    return {"fusion_weight": weight, **figures(Predictor(other), data)}


def _arguments() -> argparse.Namespace:
    parser = table_arguments(__doc__, [row[0] for row in TABLES], [row[1] for row in TABLES])
    parser.add_argument("--plot", default="", help="draw the recorded P@1 to this file; train nothing")
    return parser.parse_args()


if __name__ == "__main__":
    main()
