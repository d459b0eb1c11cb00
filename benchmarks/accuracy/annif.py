"""Annif's omikuji backend and ours inside the same Annif, on the same corpus, by Annif's own measuring.

    make test-annif  # once: the environment
    python -m benchmarks.accuracy.annif --data finna-yso --documents 40000 --test 5000 --projects bonsai label_tree

The corpus is the data set's train, or documents of it drawn at random, as Annif reads it; each project is trained once.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from pathlib import Path

import numpy as np
from benchmarks.record import RESULTS, record

from xclearn.data import Split, load_dataset

ANNIF = Path(".bench/annif/bin/annif").absolute()
_STEMS = "analyzer=snowball(english)\nmin_df=2\n"
PROJECTS = {  # of omikuji those of Annif's documentation
    "parabel": f"backend=omikuji\n{_STEMS}",
    "bonsai": f"backend=omikuji\n{_STEMS}cluster_balanced=False\ncluster_k=100\nmax_depth=3\n",
    "bonsai-pairs": f"backend=omikuji\n{_STEMS}ngram=2\ncluster_balanced=False\ncluster_k=100\nmax_depth=3\n",
    "label_tree": "backend=xclearn\n",
    "label_tree-pairs": "backend=xclearn\nvectoriser.longest=2\n",
    "blend": "backend=xclearn\nalgorithm=blend\n",
}


def main() -> None:
    arguments = _arguments()
    folder = Path(arguments.work).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    _write_corpus(arguments, folder)
    _annif(folder, "load-vocab", "--language", "en", "labels", "labels.tsv")
    for project in arguments.projects:
        started, cpu = time.perf_counter(), _children_seconds()
        _annif(folder, "train", project, "train.tsv")
        times = {"train_s": round(time.perf_counter() - started, 1), "cpu_s": round(_children_seconds() - cpu, 1)}
        metrics = folder / f"{project}.json"
        _annif(folder, "eval", project, "test.tsv", "--limit", "10", "--metrics-file", str(metrics))
        found = {name.replace("NDCG", "nDCG"): 100 * value for name, value in json.loads(metrics.read_text()).items()}
        shown = {name: round(found[name], 2) for name in ("F1@5", "nDCG@5", "nDCG@10", "Precision@1", "Precision@5")}
        row = {"data": Path(arguments.data).name, "documents": arguments.documents, "test": arguments.test}
        record("annif", row | {"project": project, "settings": _line(project), "seed": 0} | shown | times, RESULTS)
        print(project, shown, times, flush=True)


def _line(project: str) -> str:
    return " ".join(PROJECTS[project].split())


def _write_corpus(arguments: argparse.Namespace, folder: Path) -> None:
    """The files that Annif reads: projects.cfg, a vocabulary, and documents for training and for measuring."""
    data = load_dataset(arguments.data)
    uris = [f"http://example.org/{name}" for name in data.labels.names]
    texts = data.labels.texts or uris
    (folder / "labels.tsv").write_text("".join(f"<{uri}>\t{text}\n" for uri, text in zip(uris, texts, strict=True)))
    for role, n in (("train", arguments.documents), ("test", arguments.test)):
        split = data.split(role)
        rows = np.sort(np.random.default_rng(0).permutation(len(split))[: n or len(split)])
        (folder / f"{role}.tsv").write_text("".join(_lines(split.take(rows), uris)))
    sections = (f"[{project}]\nlanguage=en\nvocab=labels\nlimit=100\n{said}" for project, said in PROJECTS.items())
    (folder / "projects.cfg").write_text("\n".join(sections))


def _lines(split: Split, uris: list[str]) -> list[str]:
    rows = zip(split.documents, split.relevance, strict=True)
    return [
        f"{' '.join(str(text).split())}\t{' '.join(f'<{uris[label]}>' for label in row.indices)}\n"
        for text, row in rows
    ]


def _annif(folder: Path, *arguments: str) -> None:
    subprocess.run([ANNIF, *arguments], cwd=folder, check=True)


def _children_seconds() -> float:
    found = os.times()
    return found.children_user + found.children_system


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="a data set's folder")
    parser.add_argument("--documents", type=int, default=0, help="of train, drawn at random; 0: all")
    parser.add_argument("--test", type=int, default=0, help="of test, drawn at random; 0: all")
    parser.add_argument("--projects", nargs="+", choices=list(PROJECTS), default=["parabel", "bonsai", "label_tree"])
    parser.add_argument("--work", default=".bench/annif-data", help="where Annif keeps its projects")
    return parser.parse_args()


if __name__ == "__main__":
    main()
