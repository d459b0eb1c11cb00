"""The dual encoder beside other algorithms, on the hold-out, the strict hold-out or test; new labels by text alone.

    python -m benchmarks.accuracy.dual_encoder --data debian-related --split strict --grid "dual_encoder" --grid "decaf"
    python -m benchmarks.accuracy.dual_encoder --data wordnet-related --grid "dual_encoder row_epochs=0"

    python -m benchmarks.accuracy.dual_encoder --data debian-related --grid dual_encoder --new-labels 1000

Rows go to results/dual_encoder.csv. `--split strict` holds out whole families of packages by their names: packages of
one source say nearly the same, and a hold-out cut text by text flatters what remembers them. Settings are chosen there.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from benchmarks.accuracy.run import figures, fitted, held_out, part_of, peak_mib
from benchmarks.record import RESULTS, record

from xclearn.data import Dataset, LabelSet, load_dataset
from xclearn.data.dataset import NO_PAIRS
from xclearn.data.splits import void_pairs
from xclearn.inference import Predictor
from xclearn.inference.folder import Model
from xclearn.inference.label_editing import NewLabel, with_labels

SHOWN = ("P@1", "P@3", "P@5", "PSP@1", "PSP@5", "R@10")
EXAMPLES = (1, 5)  # of a label that is added
HELD_OUT, LARGEST_FAMILY = 5_000, 60  # documents, at most
# First words of package names that say a language or a project that has very many packages, not a source.
_KINDS = """
python python2 python3 golang ruby node r php perl haskell libghc ghc rust librust elpa fonts gir1 task tasksel lib
texlive kodi gnome kde xfce4 qml qml6 ocaml octave erlang lua vim emacs puppet linux gcc g cl mate xserver science med
debian education hunspell aspell myspell firmware collectd nagios asterisk bareos postgresql obs gap coq cpp dh apache2
libapache2 gstreamer1 vlc wine sugar uwsgi ceph designate neutron nova horizon android clang llvm
"""
_HOSTS = "github com org golang gopkg in x perl cran bioc pear horde django ruby"
KINDS, HOSTS = frozenset(_KINDS.split()), frozenset(_HOSTS.split())


def main() -> None:
    arguments = _arguments()
    data = load_dataset(arguments.data)
    data = {"test": lambda: data, "hold_out": lambda: held_out(data), "strict": lambda: strict(data)}[arguments.split]()
    data = part_of(data, arguments.documents)
    print(f"{data.name}: {len(data.train):,} documents, {data.n_labels:,} labels; {arguments.split}; {' '.join(SHOWN)}")
    for line in arguments.grid:
        for seed in arguments.seeds:
            if arguments.new_labels:
                added_later(data, arguments, line, seed)
                continue
            began = time.process_time()
            algorithm, facts = fitted(data, arguments, line, seed)
            facts |= {"cpu_s": round(time.process_time() - began, 1), "peak_mib": peak_mib()}
            row = {"data": data.name, "split": arguments.split, **facts, **figures(algorithm, data)}
            record(arguments.out, row, Path(arguments.folder))
            shown = " ".join(f"{row[name]:6.2f}" for name in SHOWN)
            print(f"{shown} | {row['cpu_s']:6.1f} CPU-s {row['peak_mib']:6} MiB | seed {seed} {line}", flush=True)


def added_later(data: Dataset, arguments: argparse.Namespace, line: str, seed: int) -> None:
    """R@10 of labels that training did not know, added by their texts and 0, 1 and 5 examples, and of those it knew."""
    rng = np.random.default_rng(seed)
    counts = np.asarray(data.train.relevance.sum(axis=0)).ravel()
    asked = np.asarray(data.split("test").relevance.sum(axis=0)).ravel() > 0
    new = np.sort(rng.permutation(np.flatnonzero(asked & (counts >= EXAMPLES[-1])))[: arguments.new_labels])
    kept = np.setdiff1d(np.arange(data.n_labels), new)
    whole, facts = fitted(data, arguments, line, seed)
    facts |= {"data": data.name, "split": arguments.split}
    report(whole.model, data, new, facts | {"row": "trained with them"}, arguments)
    texts = data.labels.texts
    assert isinstance(texts, Sequence)
    labels = LabelSet([data.labels.names[i] for i in kept], [texts[i] for i in kept])
    narrow = dataclasses.replace(data.train, relevance=data.train.relevance[:, kept], filter_pairs=NO_PAIRS)
    less = narrow.take(np.flatnonzero(np.diff(narrow.relevance.indptr)))
    algorithm, _ = fitted(dataclasses.replace(data, train=less, labels=labels), arguments, line, seed)
    by_label = data.train.relevance[:, new].tocsc()
    order = np.concatenate([kept, new])
    moved = dataclasses.replace(data.split("test"), relevance=data.split("test").relevance[:, order])
    place = np.argsort(order)
    pairs = np.column_stack([moved.filter_pairs[:, 0], place[moved.filter_pairs[:, 1]]])
    changed = dataclasses.replace(data, test=dataclasses.replace(moved, filter_pairs=pairs))
    for n in (0, *EXAMPLES):
        own = [by_label.indices[by_label.indptr[i] : by_label.indptr[i + 1]][:n] for i in range(len(new))]
        added = [
            NewLabel(data.labels.names[i], texts[i], [data.train.documents[row] for row in rows])
            for i, rows in zip(new, own, strict=True)
        ]
        began = time.perf_counter()
        grown = with_labels(algorithm.model, added)
        facts["add_s"] = round(time.perf_counter() - began, 2)
        here = np.arange(len(kept), len(order))
        report(grown, changed, here, facts | {"row": f"added by text and {n} examples"}, arguments)


def report(model: Model, data: Dataset, new: np.ndarray, facts: dict[str, Any], arguments: argparse.Namespace) -> None:
    """R@10 of these labels among all, over the test documents that have one."""
    test = data.split("test")
    only = sp.csr_matrix((np.ones(len(new), np.float32), (new, new)), (data.n_labels, data.n_labels))
    asked = dataclasses.replace(test, relevance=sp.csr_matrix(test.relevance @ only))
    asked = asked.take(np.flatnonzero(np.diff(asked.relevance.indptr)))
    found = Predictor(model).predict(asked.documents, 10, asked.filter_pairs).ids
    hits = np.take_along_axis(asked.relevance.toarray() > 0, np.maximum(found, 0), axis=1) & (found >= 0)
    recall = float((hits.sum(axis=1) / np.diff(asked.relevance.indptr)).mean())
    row = facts | {"new_labels": len(new), "asked": len(asked), "R@10": round(100 * recall, 3)}
    record("new_labels", row, Path(arguments.folder))
    print(f"{row['row']:32} R@10 {row['R@10']:6.2f} of {len(asked):,} documents; {row.get('add_s', '')}", flush=True)


def strict(data: Dataset, seed: int = 0) -> Dataset:
    """The data set with some of its families in the place of test; pairs that train gives away are void."""
    train = data.train
    assert train.names is not None
    families, of_document = np.unique([family(name) for name in train.names], return_inverse=True)
    sizes = np.bincount(of_document)
    order = np.random.default_rng(seed).permutation(len(families))
    small = sizes[order] <= LARGEST_FAMILY
    kept = np.zeros(len(families), dtype=bool)
    kept[order[small & (np.cumsum(np.where(small, sizes[order], 0)) <= HELD_OUT)]] = True
    held = kept[of_document]
    rest = train.take(np.flatnonzero(~held))
    other = train.take(np.flatnonzero(held))
    void = void_pairs(rest, other, data.labels)
    left = (other.relevance - other.relevance.multiply(void)).tocsr()
    left.eliminate_zeros()
    left.sort_indices()
    pairs = np.unique(np.vstack([other.filter_pairs, np.column_stack(void.nonzero())]), axis=0)
    other = dataclasses.replace(other, relevance=left, filter_pairs=pairs)
    return dataclasses.replace(data, train=rest, test=other.take(np.flatnonzero(np.diff(left.indptr))), dev=None)


def family(name: str) -> str:
    """What a package's name begins with, without the words before it that say its kind, and without its version."""
    parts = [part for part in re.split(r"[-.+_]", name.lower()) if part]
    parts = [_stem(part) for part in parts]
    if parts and (parts[0] in KINDS or parts[0].rstrip("0123456789") in KINDS):
        parts = parts[1:] or parts
        while len(parts) > 1 and parts[0] in HOSTS:
            parts = parts[1:]
    return parts[0] if parts else name


def _stem(part: str) -> str:
    bare = re.sub(r"^lib(?=[a-z]{2})", "", part)
    return re.sub(r"\d+[a-z]*$", "", bare) or part


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="wordnet-related")
    parser.add_argument("--split", choices=("hold_out", "strict", "test"), default="hold_out")
    parser.add_argument("--documents", type=int, default=0, help="of train, drawn at random; 0: all")
    parser.add_argument("--new-labels", type=int, default=0, help="labels that are added after training; 0: none")
    parser.add_argument("--grid", action="append", required=True, help='"algorithm setting=value …"; repeat for more')
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="of every algorithm that has it"
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", default="dual_encoder", help="name of the results file, without .csv")
    parser.add_argument("--folder", default=str(RESULTS), help="folder of the results file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
