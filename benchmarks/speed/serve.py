"""One text to its ten label names, and many texts a second: our forms, the peers and the memory's speed, in one run.

    python -m benchmarks.speed.serve fit --peer pecos=PYTHON --peer omikuji=PYTHON --peer fasttext=PYTHON
    python -m benchmarks.speed.serve wordnet --peer pecos=PYTHON --peer omikuji=PYTHON --peer fasttext=PYTHON
    python -m benchmarks.speed.serve trees --peer pecos=PYTHON
    python -m benchmarks.speed.serve synthetic --labels 131072 1310720 10485760

`fit` trains our models and each peer, under its own interpreter (serve_peers.py), on the bundled set; it takes a
quarter of an hour. `wordnet` exports our model and asks all of them in turns, block by block, so that whatever else the
machine does hits all alike; figures are medians over the blocks. `trees` asks label_tree, by the native core and in
NumPy. `synthetic` writes models of random rows, memory-mapped like any other, and asks them in turns too; with --peer,
those peers are trained on texts of the first size and asked beside it. Rows go to results/serve.csv. Everything else
stays in --work, by default .bench.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import scipy.sparse as sp
from benchmarks.record import record

from xclearn.data import Dataset, LabelSet, load_dataset
from xclearn.inference import Model, Predictor, load_model, save_model
from xclearn.inference.components import Bag, GatedBlock, Relu, Residual, Sigmoid
from xclearn.inference.export import Choice, Exporter, Form, HoldOut
from xclearn.inference.exported import PackedClassifier, PackedRows, TokenFeatures, TokenIndex
from xclearn.inference.servable import Servable
from xclearn.text.vectorisers import WordVectoriser
from xclearn.text.weighting import Weighting

K, DIM, TOKENS = 10, 300, 100_000
ROUNDS, BLOCK, BATCH = 15, 100, 2000  # turns; texts of a turn asked one by one, and all at once
WORDNET = "wordnet-related"
PEERS = Path(__file__).with_name("serve_peers.py")


class Block(NamedTuple):
    """One turn of one system."""

    times_us: list[float]  # of each text
    names: list[list[str]]


class System(ABC):
    """Something that is asked."""

    name: str

    @abstractmethod
    def ask(self, texts: list[str]) -> Block: ...

    @abstractmethod
    def cpu_us_at_once(self, texts: list[str]) -> float:
        """CPU time of one text among many."""


@final
class Ours(System):
    def __init__(self, name: str, predictor: Predictor) -> None:
        self.name, self.predictor = name, predictor

    def ask(self, texts: list[str]) -> Block:
        times, names = [], []
        for text in texts:
            start = time.perf_counter()
            (found,) = self.predictor.suggest([text], K)
            times.append(1e6 * (time.perf_counter() - start))
            names.append([suggestion.label for suggestion in found])
        return Block(times, names)

    def cpu_us_at_once(self, texts: list[str]) -> float:
        start = time.process_time()
        self.predictor.suggest(texts, K)
        return 1e6 * (time.process_time() - start) / len(texts)


@final
class Peer(System):
    """A process of its own, asked over a pipe; it takes its own times."""

    def __init__(self, name: str, process: subprocess.Popen[str]) -> None:
        self.name, self.process = name, process

    @classmethod
    def start(cls, name: str, python: str, folder: Path) -> Peer:
        serve = [python, str(PEERS), "serve", name, str(folder)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(serve, text=True, **pipes)
        peer = cls(name, process)
        peer._answer()  # ready
        return peer

    def ask(self, texts: list[str]) -> Block:
        answer = self._answer({"texts": texts, "at_once": False})
        return Block(answer["times_us"], answer["names"])

    def cpu_us_at_once(self, texts: list[str]) -> float:
        return float(self._answer({"texts": texts, "at_once": True})["cpu_us"])

    def _answer(self, question: dict[str, Any] | None = None) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if question is not None:
            self.process.stdin.write(json.dumps(question) + "\n")
            self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def in_turns(systems: Sequence[System], texts: list[str]) -> dict[str, dict[str, Any]]:
    """p50, p99 and texts per second and core of each system, and what it answered to each text."""
    for system in systems:
        system.ask(texts[:BLOCK])  # what is loaded on first use
    blocks: dict[str, list[Block]] = {system.name: [] for system in systems}
    many: dict[str, list[float]] = {system.name: [] for system in systems}
    for turn in range(ROUNDS):
        some = texts[turn * BLOCK : (turn + 1) * BLOCK]
        for system in systems:
            blocks[system.name].append(system.ask(some))
        if turn % 5 == 0:
            for system in systems:
                many[system.name].append(system.cpu_us_at_once(texts[:BATCH]))
    return {system.name: _summary(blocks[system.name], many[system.name]) for system in systems}


def _summary(blocks: list[Block], cpu_us: list[float]) -> dict[str, Any]:
    return {
        "p50_us": round(float(np.median([np.median(block.times_us) for block in blocks])), 1),
        "p99_us": round(float(np.median([np.percentile(block.times_us, 99) for block in blocks])), 1),
        "texts_per_core_second": round(1e6 / float(np.median(cpu_us))),
        "names": [names for block in blocks for names in block.names],
    }


def fit(arguments: argparse.Namespace) -> None:
    """Our models and the peers', on the bundled set."""
    from xclearn.algorithms.decaf import Decaf  # as `xc demo` trains it
    from xclearn.algorithms.label_tree import LabelTree

    data = load_dataset(WORDNET)
    Decaf().fit(data, device="cpu").save(arguments.work / "model", replace=True)
    LabelTree().fit(data, device="cpu").save(arguments.work / "label_tree", replace=True)
    labels = [row.indices.tolist() for row in data.train.relevance]
    fit_peers(arguments, "wordnet-peers", data.train.documents, labels, data.labels.names)


def fit_peers(arguments: argparse.Namespace, name: str, texts: Any, labels: Any, names: Sequence[str]) -> None:
    """Write texts and their labels to a folder, train every peer there."""
    folder = arguments.work / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "train.jsonl").open("w", encoding="utf-8") as stream:
        for text, own in zip(texts, labels, strict=True):
            stream.write(json.dumps({"text": text, "labels": own}) + "\n")
    (folder / "names.json").write_text(json.dumps(list(names)), encoding="utf-8")
    for peer, python in arguments.peer:
        subprocess.run([python, str(PEERS), "fit", peer, str(folder)], check=True, capture_output=True)


def wordnet(arguments: argparse.Namespace) -> None:
    """Our forms and the peers on the bundled set."""
    data = load_dataset(WORDNET)
    model = load_model(arguments.work / "model")
    exporter, held_out = Exporter(model, data), HoldOut.of(model, data)
    chosen = Choice().pick([held_out.measure(form, exporter.export(form)) for form in Choice().forms(model.servable)])
    save_model(exporter.export(chosen.form), arguments.work / "exported", replace=True)
    predictor, load_ms = _loaded(arguments.work / "exported")
    systems: list[System] = [
        Ours(f"xclearn {chosen.form}", predictor),
        Ours("xclearn int8, every label", Predictor(exporter.export(Form("int8", 0)), n_threads=1)),
        Ours("xclearn as trained", Predictor(model, n_threads=1)),
        *(Peer.start(name, python, arguments.work / "wordnet-peers") for name, python in arguments.peer),
    ]
    texts = [str(text) for text in data.split("test").documents]
    found = in_turns(systems, texts)
    touched = bytes_touched(predictor, texts[:BLOCK])
    lost = {f"lost_{name}": round(chosen.lost[name], 3) for name in ("P@1", "PSP@5")}  # on the hold-out
    for name, figures in found.items():
        first = name == systems[0].name
        ours = {"load_ms": load_ms, **lost, **_roofline(touched, figures["p50_us"])} if first else {}
        record_row(
            "serve", {"set": WORDNET, "labels": data.n_labels, "system": name, **_accuracy(figures, data), **ours}
        )


def trees(arguments: argparse.Namespace) -> None:
    """Label trees on the bundled set: native, in NumPy, and the peers."""
    data = load_dataset(WORDNET)
    predictor, load_ms = _loaded(arguments.work / "label_tree")
    in_numpy = Predictor(predictor.model, n_threads=1)
    in_numpy.__dict__["_answers"] = predictor.model.servable  # in place of the native core
    systems: list[System] = [
        Ours("xclearn label_tree", predictor),
        Ours("xclearn label_tree, NumPy", in_numpy),
        *(Peer.start(name, python, arguments.work / "wordnet-peers") for name, python in arguments.peer),
    ]
    found = in_turns(systems, [str(text) for text in data.split("test").documents])
    for name, figures in found.items():
        ours = {"load_ms": load_ms} if name == systems[0].name else {}
        record_row(
            "serve", {"set": WORDNET, "labels": data.n_labels, "system": name, **_accuracy(figures, data), **ours}
        )


def _accuracy(figures: dict[str, Any], data: Dataset) -> dict[str, Any]:
    """The figures with P@1 in place of the names; filter pairs are passed over."""
    test, names = data.split("test"), figures.pop("names")
    void = {(row, data.labels.names[label]) for row, label in test.filter_pairs.tolist()}
    right = 0
    for row, own in enumerate(names):
        first = next((name for name in own if (row, name) not in void), None)
        right += first in {data.labels.names[label] for label in test.relevance[row].indices}
    return {**figures, "P@1": round(100 * right / len(names), 2), "texts": len(names)}


def synthetic(arguments: argparse.Namespace) -> None:
    """int8 models of random rows, of several sizes, asked in turns; peers beside the first size."""
    systems: list[tuple[int, float | None, System]] = []
    texts: dict[int, list[str]] = {}
    for n_labels in arguments.labels:
        folder = arguments.work / f"synthetic-{n_labels}"
        texts[n_labels] = write_synthetic(n_labels, arguments.shortlist, folder)
        predictor, milliseconds = _loaded(folder)
        systems.append((n_labels, milliseconds, Ours(f"xclearn int8, breadth {arguments.shortlist}", predictor)))
    if arguments.peer:
        first = arguments.labels[0]
        own = _label_tokens(np.random.default_rng(0), first)
        trained = [*_texts(own, np.random.default_rng(1)), *_texts(own[:, ::-1], np.random.default_rng(2))]
        fit_peers(arguments, "synthetic-peers", trained, [[i % first] for i in range(2 * first)], _names(first))
        peers = [Peer.start(name, python, arguments.work / "synthetic-peers") for name, python in arguments.peer]
        systems += [(first, None, peer) for peer in peers]
    found: list[tuple[list[Block], list[float]]] = [([], []) for _ in systems]
    for turn in range(ROUNDS):
        for (n_labels, _, system), (blocks, cpu_us) in zip(systems, found, strict=True):
            blocks.append(system.ask(texts[n_labels][turn * BLOCK : (turn + 1) * BLOCK]))
            cpu_us.append(system.cpu_us_at_once(texts[n_labels]))
    for (n_labels, load_ms, system), (blocks, cpu_us) in zip(systems, found, strict=True):
        summary = _summary(blocks, cpu_us)
        right = np.mean([names[:1] == [f"label {row}"] for row, names in enumerate(summary.pop("names"))])
        row = {"set": "synthetic", "labels": n_labels, "system": system.name, **summary, "P@1": round(100 * right, 2)}
        if isinstance(system, Ours):
            touched = bytes_touched(system.predictor, texts[n_labels][:BLOCK])
            row |= {"load_ms": load_ms, **_roofline(touched, summary["p50_us"])}
        record_row("serve", row)


def write_synthetic(n_labels: int, shortlist: int, folder: Path) -> list[str]:
    """A model whose labels have six tokens each, and texts: text i holds four tokens of label i and four others."""
    rng = np.random.default_rng(0)
    own = _label_tokens(rng, n_labels)
    idf = np.log(1 + n_labels / (1 + np.bincount(own.ravel(), minlength=TOKENS))) + 1
    embeddings = rng.standard_normal((TOKENS, DIM), dtype=np.float32) / np.float32(DIM**0.5)
    rows = _label_rows(own, idf.astype(np.float32), embeddings)
    layers = [Relu(), Residual(rng.standard_normal((DIM, DIM), dtype=np.float32) / DIM, np.zeros(DIM, np.float32))]
    servable = Servable(
        WordVectoriser([f"t{i}" for i in range(TOKENS)], Weighting(idf, True, True)),
        {"document": Bag(embeddings, layers), "tokens": TokenFeatures(TOKENS)},
        _synthetic_index(own, idf, shortlist),
        [PackedClassifier("document", rows, np.empty(0, np.int32))],
        Sigmoid(),
    )
    save_model(Model(servable, LabelSet(_names(n_labels)), {}), folder, replace=True)
    return _texts(own[:BATCH], rng)


def _label_tokens(rng: np.random.Generator, n_labels: int) -> np.ndarray:
    return _zipf(rng, n_labels * 6).reshape(-1, 6)  # (L, 6)


def _names(n_labels: int) -> list[str]:
    return [f"label {i}" for i in range(n_labels)]


def _texts(own: np.ndarray, rng: np.random.Generator) -> list[str]:
    """A text for each row: four of its tokens and four others."""
    tokens = np.hstack([own[:, :4], _zipf(rng, len(own) * 4).reshape(-1, 4)])
    return [" ".join(f"t{token}" for token in row) for row in tokens]


def _zipf(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.minimum(TOKENS ** rng.random(n), TOKENS - 1).astype(np.int32)  # the chance of rank r falls as 1 / r


def _label_rows(own: np.ndarray, idf: np.ndarray, embeddings: np.ndarray) -> PackedRows:
    """The rows of the labels' tokens, what a ReLU leaves of them, in 8 bits; a part at a time."""
    parts = []
    for begin in range(0, len(own), 1 << 17):
        part = own[begin : begin + (1 << 17)]
        bag = sp.csr_matrix((idf[part.ravel()], part.ravel(), np.arange(0, part.size + 1, 6)), (len(part), TOKENS))
        vectors = np.maximum(bag @ embeddings, 0)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        parts.append(PackedRows.of(vectors * 4, np.full(len(part), -8), "int8"))
    joined = [np.concatenate([getattr(part, field) for part in parts]) for field in ("values", "scale", "bias")]
    return PackedRows(*joined)


def _synthetic_index(own: np.ndarray, idf: np.ndarray, shortlist: int, most: int = 500) -> TokenIndex:
    """Postings of the labels' own tokens, the least labels of a token first: all weigh the same."""
    tokens = own.ravel()
    labels = np.repeat(np.arange(len(own), dtype=np.int32), 6)
    order = np.argsort(tokens, kind="stable")
    tokens, labels = tokens[order], labels[order]
    kept = np.arange(len(tokens)) - np.searchsorted(tokens, tokens) < most
    tokens, labels = tokens[kept], labels[kept]
    offsets = np.searchsorted(tokens, np.arange(TOKENS + 1)).astype(np.int64)
    always = np.arange(64, dtype=np.int32)
    weights = idf[tokens].astype(np.float32)
    return TokenIndex("tokens", offsets, labels, weights, always, 32, max(1, shortlist // 4), shortlist)


def bytes_touched(predictor: Predictor, texts: list[str]) -> int:
    """Mean bytes of the model that one text reads: embeddings, layers, postings, label rows."""
    servable = predictor.model.servable
    assert isinstance(servable, Servable)
    index, (scorer,) = servable.candidates, servable.scorers
    assert isinstance(index, TokenIndex)
    assert isinstance(scorer, PackedClassifier)
    bag = servable.encoders[scorer.vector]
    assert isinstance(bag, Bag)
    layers = sum(layer.weight.nbytes for layer in bag.layers if isinstance(layer, Residual | GatedBlock))
    row = scorer.rows.values[:1].nbytes + 8
    total = 0
    for features in servable.vectoriser.transform(texts):
        sizes = np.minimum(np.diff(index.offsets)[features.indices], index.postings)
        found = (index.find({index.vector: features})[0] >= 0).sum()
        total += features.nnz * bag.dim * 4 + layers + int(sizes.sum()) * 8 + int(found) * row
    return total // len(texts)


def _roofline(touched: int, p50_us: float) -> dict[str, float]:
    """Bytes over time, beside what copying memory reads and writes in the same run."""
    stream, speed = _stream(), touched / p50_us / 1e3
    return {
        "bytes_per_text": touched,
        "gb_per_s": round(speed, 2),
        "stream_gb_per_s": round(stream, 2),
        "share_of_stream": round(speed / stream, 3),
    }


def _stream(pieces: int = 128, size: int = 4 << 20) -> float:
    """GB/s of a copy: the median over pieces, each so short that it is rarely held up by others."""
    source = np.ones((pieces, size), np.uint8)
    target = np.ones((pieces, size), np.uint8)  # both are in memory
    rows = iter(range(pieces))

    def copy() -> None:
        row = next(rows)
        np.copyto(target[row], source[row])

    return 2 * size / _seconds(copy, pieces) / 1e9


def _seconds(run: Callable[[], object], repeats: int = 5) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def _loaded(folder: Path) -> tuple[Predictor, float]:
    """A mapped model for one core, and the milliseconds that loading took, the median of five."""
    seconds = _seconds(lambda: Predictor.load(folder, verify=False))
    return Predictor.load(folder, verify=False, n_threads=1), round(1e3 * seconds, 1)


def record_row(name: str, row: dict[str, Any]) -> None:
    """Into results/ and onto the screen."""
    record(name, {"seed": 0, **row})
    print(" ".join(f"{key}={value}" for key, value in row.items()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["fit", "wordnet", "trees", "synthetic"])
    parser.add_argument("--work", type=Path, default=Path(".bench"), help="folder for models and peers")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON", help="repeat for more")
    parser.add_argument("--labels", type=int, nargs="+", default=[1 << 17, 10 << 17])
    parser.add_argument("--shortlist", type=int, default=500)
    arguments = parser.parse_args()
    arguments.peer = [each.split("=", 1) for each in arguments.peer]
    {"fit": fit, "wordnet": wordnet, "trees": trees, "synthetic": synthetic}[arguments.part](arguments)


if __name__ == "__main__":
    main()
