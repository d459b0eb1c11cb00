"""One text to its ten label names, and many texts a second: our forms, the peers and the memory's speed, in one run.

    python -m benchmarks.speed.serve wordnet --work FOLDER --model MODEL --peer pecos=PYTHON --peer omikuji=PYTHON
    python -m benchmarks.speed.serve synthetic --work FOLDER --labels 131072 1310720
    python -m benchmarks.speed.serve pareto --work FOLDER --model MODEL --plot docs/images/serve_pareto.svg

`wordnet` exports a trained model (without --model it trains one first, minutes), trains each peer under its own
interpreter (serve_peers.py), and asks all of them in turns, block by block, so that whatever else the machine does hits
all alike; figures are medians over the blocks. `synthetic` writes models of random rows, memory-mapped like any other.
`pareto` measures every form on the hold-out. Rows go to results/serve.csv and results/serve_pareto.csv.
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
from xclearn.inference.components import Bag, Relu, Residual, Sigmoid
from xclearn.inference.export import Choice, Exporter, Form, HoldOut
from xclearn.inference.exported import Features, RowClassifier, Rows, TokenIndex
from xclearn.inference.servable import Servable
from xclearn.text.vectorisers import WordVectoriser
from xclearn.text.weighting import Weighting

K, DIM, TOKENS = 10, 300, 100_000
ROUNDS, BLOCK, BATCH = 15, 100, 2000  # turns; texts of a turn asked one by one, and all at once
WORDNET = "wordnet-related"


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
        script = [python, str(Path(__file__).with_name("serve_peers.py"))]
        quiet: dict[str, Any] = {"stderr": subprocess.DEVNULL, "text": True}
        subprocess.run([*script, "fit", name, str(folder)], check=True, stdout=subprocess.DEVNULL, **quiet)
        serve = [*script, "serve", name, str(folder)]
        process = subprocess.Popen(serve, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **quiet)
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


def wordnet(arguments: argparse.Namespace) -> None:
    """Our forms and the peers on the bundled set."""
    data = load_dataset(WORDNET)
    model = load_model(arguments.model or _trained(arguments.work / "model", data))
    exporter, held_out = Exporter(model, data), HoldOut.of(model, data)
    points = [held_out.measure(form, exporter.export(form)) for form in Choice().forms(model.servable)]
    form = Choice().pick(points).form
    save_model(exporter.export(form), arguments.work / "exported", replace=True)
    predictor, load_ms = _loaded(arguments.work / "exported")
    systems: list[System] = [
        Ours(f"xclearn {form}", predictor),
        Ours("xclearn int8, every label", Predictor(exporter.export(Form("int8", 0)), n_threads=1)),
        Ours("xclearn as trained", Predictor(model, n_threads=1)),
    ]
    folder = _peer_data(data, arguments.work / "peers")
    systems += [
        Peer.start(name, python, folder) for name, _, python in (each.partition("=") for each in arguments.peer)
    ]
    texts = [str(text) for text in data.split("test").documents]
    found = in_turns(systems, texts)
    touched = bytes_touched(predictor, texts[:BLOCK])
    for name, figures in found.items():
        ours = {"load_ms": load_ms, **_roofline(touched, figures["p50_us"])} if name == systems[0].name else {}
        _record({"set": WORDNET, "labels": data.n_labels, "system": name, **_accuracy(figures, data), **ours})


def _accuracy(figures: dict[str, Any], data: Dataset) -> dict[str, Any]:
    """The figures with P@1 in place of the names; filter pairs are passed over."""
    test, names = data.split("test"), figures.pop("names")
    void = {(row, data.labels.names[label]) for row, label in test.filter_pairs.tolist()}
    right = 0
    for row, own in enumerate(names):
        first = next((name for name in own if (row, name) not in void), None)
        right += first in {data.labels.names[label] for label in test.relevance[row].indices}
    return {**figures, "P@1": round(100 * right / len(names), 2), "texts": len(names)}


def _trained(out: Path, data: Dataset) -> Path:
    from xclearn.algorithms.one_vs_all import OneVsAll

    OneVsAll(embedding_dim=DIM).fit(data, device="cpu").save(out, replace=True)
    return out


def _peer_data(data: Dataset, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "train.jsonl").open("w", encoding="utf-8") as stream:
        for text, row in zip(data.train.documents, data.train.relevance, strict=True):
            stream.write(json.dumps({"text": text, "labels": row.indices.tolist()}) + "\n")
    (folder / "names.json").write_text(json.dumps(list(data.labels.names)), encoding="utf-8")
    return folder


def synthetic(arguments: argparse.Namespace) -> None:
    """int8 models of random rows, of several sizes, asked in turns."""
    systems, texts = [], []
    for n_labels in arguments.labels:
        folder = arguments.work / f"synthetic-{n_labels}"
        texts.append(write_synthetic(n_labels, arguments.shortlist, folder))
        predictor, load_ms = _loaded(folder)
        systems.append((n_labels, load_ms, Ours(f"xclearn int8, breadth {arguments.shortlist}", predictor)))
    found: list[dict[str, list[Any]]] = [{"blocks": [], "cpu_us": []} for _ in systems]
    for turn in range(ROUNDS):
        for (_, _, ours), own, figures in zip(systems, texts, found, strict=True):
            figures["blocks"].append(ours.ask(own[turn * BLOCK : (turn + 1) * BLOCK]))
            figures["cpu_us"].append(ours.cpu_us_at_once(own[:BATCH]))
    for (n_labels, load_ms, ours), own, figures in zip(systems, texts, found, strict=True):
        summary = _summary(figures["blocks"], figures["cpu_us"])
        right = np.mean([names[:1] == [f"label {row}"] for row, names in enumerate(summary.pop("names"))])
        roofline = _roofline(bytes_touched(ours.predictor, own[:BLOCK]), summary["p50_us"])
        row = {"set": "synthetic", "labels": n_labels, "system": ours.name, **summary, "P@1": round(100 * right, 2)}
        _record({**row, "load_ms": load_ms, **roofline})


def write_synthetic(n_labels: int, shortlist: int, folder: Path) -> list[str]:
    """A model whose labels have six tokens each, and texts: text i holds four tokens of label i and four others."""
    rng = np.random.default_rng(0)
    own = _zipf(rng, n_labels * 6).reshape(-1, 6)  # (L, 6)
    idf = np.log(1 + n_labels / (1 + np.bincount(own.ravel(), minlength=TOKENS))) + 1
    embeddings = rng.standard_normal((TOKENS, DIM), dtype=np.float32) / np.float32(DIM**0.5)
    rows = _label_rows(own, idf.astype(np.float32), embeddings)
    layers = [Relu(), Residual(rng.standard_normal((DIM, DIM), dtype=np.float32) / DIM, np.zeros(DIM, np.float32))]
    servable = Servable(
        WordVectoriser([f"t{i}" for i in range(TOKENS)], Weighting(idf, True, True)),
        {"document": Bag(embeddings, layers), "tokens": Features(TOKENS)},
        _synthetic_index(own, idf, shortlist),
        [RowClassifier("document", rows, np.empty(0, np.int32))],
        Sigmoid(),
    )
    save_model(Model(servable, LabelSet([f"label {i}" for i in range(n_labels)]), {}), folder, replace=True)
    texts = np.hstack([own[:BATCH, :4], _zipf(rng, BATCH * 4).reshape(-1, 4)])
    return [" ".join(f"t{token}" for token in row) for row in texts]


def _zipf(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.minimum(TOKENS ** rng.random(n), TOKENS - 1).astype(np.int32)  # the chance of rank r falls as 1 / r


def _label_rows(own: np.ndarray, idf: np.ndarray, embeddings: np.ndarray) -> Rows:
    """The rows of the labels' tokens, what a ReLU leaves of them, in 8 bits; a part at a time."""
    parts = []
    for begin in range(0, len(own), 1 << 17):
        part = own[begin : begin + (1 << 17)]
        bag = sp.csr_matrix((idf[part.ravel()], part.ravel(), np.arange(0, part.size + 1, 6)), (len(part), TOKENS))
        vectors = np.maximum(bag @ embeddings, 0)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        parts.append(Rows.of(vectors * 4, np.full(len(part), -8), "int8"))
    joined = [np.concatenate([getattr(part, field) for part in parts]) for field in ("values", "scale", "bias")]
    return Rows(*joined)


def _synthetic_index(own: np.ndarray, idf: np.ndarray, shortlist: int, most: int = 500) -> TokenIndex:
    """Postings of the labels' own tokens, the least labels of a token first: all weigh the same."""
    tokens, labels = own.ravel(), np.repeat(np.arange(len(own), dtype=np.int32), 6)
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
    index, (scorer,), bag = servable.candidates, servable.scorers, servable.encoders["document"]
    assert isinstance(index, TokenIndex)
    assert isinstance(scorer, RowClassifier)
    assert isinstance(bag, Bag)
    layers = sum(layer.weight.nbytes for layer in bag.layers if isinstance(layer, Residual))
    row = scorer.rows.values[:1].nbytes + 8
    total = 0
    for features in servable.vectoriser.transform(texts):
        sizes = np.minimum(np.diff(index.offsets)[features.indices], index.postings)
        found = (index.find({index.vector: features})[0] >= 0).sum()
        total += features.nnz * bag.dim * 4 + layers + int(sizes.sum()) * 8 + int(found) * row
    return total // len(texts)


def _roofline(touched: int, p50_us: float) -> dict[str, float]:
    """Bytes over time, beside what copying a large block reads and writes in the same run."""
    source, target = np.ones(1 << 28, np.uint8), np.empty(1 << 28, np.uint8)
    stream = 2 * source.nbytes / _seconds(lambda: np.copyto(target, source)) / 1e9
    speed = touched / p50_us / 1e3
    return {
        "bytes_per_text": touched,
        "gb_per_s": round(speed, 2),
        "stream_gb_per_s": round(stream, 2),
        "share_of_stream": round(speed / stream, 3),
    }


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


def pareto(arguments: argparse.Namespace) -> None:
    """Every form on the hold-out, and as a plot."""
    data = load_dataset(WORDNET)
    model = load_model(arguments.model or _trained(arguments.work / "model", data))
    exporter, held_out = Exporter(model, data), HoldOut.of(model, data)
    points = [held_out.measure(form, exporter.export(form)) for form in Choice(max_loss=0).forms(model.servable)]
    for point in points:
        losses = {f"lost_{name}": round(lost, 3) for name, lost in point.lost.items()}
        values = {name: round(value, 3) for name, value in point.values.items()}
        times = {"p50_us": round(point.p50_us, 1), "p99_us": round(point.p99_us, 1)}
        row = {**point.form._asdict(), **values, **losses, "overlap": round(point.overlap, 2), **times}
        _record({"set": WORDNET, "labels": data.n_labels, **row}, "serve_pareto")
    if arguments.plot:
        _plot(points, arguments.plot)


def _plot(points: Sequence[Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 4))
    for precision, marker in (("fp32", "s"), ("bf16", "^"), ("int8", "o")):
        own = sorted((point for point in points if point.form.precision == precision), key=lambda point: point.p50_us)
        line = [point.p50_us for point in own], [point.values["P@1"] for point in own]
        axes.plot(*line, marker=marker, label=precision, linewidth=1)
    for point in points:
        if point.form.precision == "int8":
            axes.annotate(
                str(point.form.breadth or "all"), (point.p50_us, point.values["P@1"]), (4, -11), None, "offset points"
            )
    axes.set(xscale="log", xlabel="µs, one text to ten label names, one core (p50)", ylabel="P@1 on the hold-out")
    axes.legend()
    axes.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, bbox_inches="tight")


def _record(row: dict[str, Any], name: str = "serve") -> None:
    record(name, row)
    print(" ".join(f"{key}={value}" for key, value in row.items()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["wordnet", "synthetic", "pareto"])
    parser.add_argument("--work", type=Path, required=True, help="folder for models and peers")
    parser.add_argument("--model", type=Path, help="a model trained on the bundled set")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON", help="repeat for more")
    parser.add_argument("--labels", type=int, nargs="+", default=[1 << 17, 10 << 17])
    parser.add_argument("--shortlist", type=int, default=500)
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    {"wordnet": wordnet, "synthetic": synthetic, "pareto": pareto}[arguments.part](arguments)


if __name__ == "__main__":
    main()
