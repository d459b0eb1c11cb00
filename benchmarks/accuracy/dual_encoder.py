"""The dual encoder beside other algorithms, on the hold-out, the strict hold-out or test; new labels by text alone.

    python -m benchmarks.accuracy.dual_encoder --data debian-related --split strict --grid "dual_encoder" --grid "decaf"
    python -m benchmarks.accuracy.dual_encoder --data wordnet-related --grid "dual_encoder row_epochs=0"

Rows go to results/dual_encoder.csv. `--split strict` holds out whole families of packages by their names: packages of
one source say nearly the same, and a hold-out cut text by text flatters what remembers them. Settings are chosen there.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import time
from pathlib import Path

import numpy as np
from benchmarks.accuracy.run import figures, fitted, held_out, part_of, peak_mib
from benchmarks.record import RESULTS, record

from xclearn.data import Dataset, load_dataset
from xclearn.data.splits import void_pairs

SHOWN = ("P@1", "P@3", "P@5", "PSP@1", "PSP@5", "R@10")
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
            began = time.process_time()
            algorithm, facts = fitted(data, arguments, line, seed)
            facts |= {"cpu_s": round(time.process_time() - began, 1), "peak_mib": peak_mib()}
            row = {"data": data.name, "split": arguments.split, **facts, **figures(algorithm, data)}
            record(arguments.out, row, Path(arguments.folder))
            shown = " ".join(f"{row[name]:6.2f}" for name in SHOWN)
            print(f"{shown} | {row['cpu_s']:6.1f} CPU-s {row['peak_mib']:6} MiB | seed {seed} {line}", flush=True)


def strict(data: Dataset, seed: int = 0) -> Dataset:
    """The data set with some of its families in the place of test; pairs that train gives away are void."""
    train = data.train
    assert train.names is not None
    families, of_document = np.unique([family(name) for name in train.names], return_inverse=True)
    sizes, order = np.bincount(of_document), np.random.default_rng(seed).permutation(len(families))
    small = sizes[order] <= LARGEST_FAMILY
    kept = np.zeros(len(families), dtype=bool)
    kept[order[small & (np.cumsum(np.where(small, sizes[order], 0)) <= HELD_OUT)]] = True
    held = kept[of_document]
    rest, other = train.take(np.flatnonzero(~held)), train.take(np.flatnonzero(held))
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
