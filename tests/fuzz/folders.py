"""Damaged model folders with right hashes: loading and asking them ends in an answer or in an error of ours.

Tensors are copied to the heap one by one, so that under AddressSanitizer a read behind the end of one is seen.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from tests.fuzz.mutations import Folder, any_of, mutate
from tests.fuzz.sandbox import MEMORY, SANITIZED, Outcome, judge

from xclearn.errors import XclearnError
from xclearn.inference import Predictor, folder, load_model
from xclearn.inference.explain import explain, unknown_words
from xclearn.inference.label_editing import NewLabel, with_labels, without_labels
from xclearn.inference.labels import LabelIndex, predict_among
from xclearn.inference.neighbours import near_labels
from xclearn.inference.tensors import read_tensors, write_tensors

MODELS = Path("build/fuzz/models")
_AT_ONCE = 250  # seeds that a child is given
_IMPORTED_AHEAD = ("transformers.models.bert.modeling_bert", "transformers.models.bert.tokenization_bert")
TEXTS = ["own1 own2 noise3", "own7 noise5 own7 own7", "", "own23 own0 noise9 noise12 own11 own3 own4 own5 own6"]

NEW_LABELS = [NewLabel("of a text", "own1 own2"), NewLabel("shown", "unheard of", ["own3 noise1", "own3 own5"])]


def read_folder(path: Path) -> Folder:
    content = json.loads((path / folder.JSON_FILE).read_bytes())
    return Folder(content, dict(read_tensors(path / folder.TENSORS_FILE)[0]))


def damaged(seed: int, sound: dict[str, Folder], path: Path) -> str:
    """Write the damaged folder of a seed; says what it was made of."""
    rng = np.random.default_rng(seed)
    name = any_of(rng, sorted(sound))
    made, others = sound[name].copy(), [sound[other] for other in sorted(sound)]
    applied = mutate(rng, made, others)
    write_tensors(path / folder.TENSORS_FILE, made.tensors)
    if rng.random() < 0.1:
        applied.append(_damage_file(rng, path / folder.TENSORS_FILE))
    (path / folder.CARD_FILE).write_text("damaged")
    made.content["files"] = {file: folder._fingerprint(path / file) for file in (folder.TENSORS_FILE, folder.CARD_FILE)}
    made.content["sha256"] = folder._own_hash(made.content)
    (path / folder.JSON_FILE).write_bytes(folder._json_bytes(made.content))
    return " ".join([name, *applied])


def _damage_file(rng: np.random.Generator, path: Path) -> str:
    """A header that lies, tensors that are misaligned or overlap, a file cut short."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header, body = json.loads(raw[8 : 8 + length]), raw[8 + length :]
    entry = any_of(rng, [header[name] for name in header if name != "__metadata__"])
    way = any_of(rng, ("misalign", "dtype", "shape", "offsets", "overlap", "cut", "length"))
    if way == "misalign":
        step = int(rng.integers(1, 8))
        body = bytes(step) + body
        for each in header.values():
            each["data_offsets"] = [place + step for place in each.get("data_offsets", [])]
    elif way == "dtype":
        entry["dtype"] = any_of(rng, ("F32", "F64", "I64", "I32", "I8", "U8", "BOOL", "BF16", "", None, []))
    elif way == "shape":
        lies = ([], [0], [2**62, 4], [0, 2**63], [-1], [1.0], ["1"], [True], entry["shape"][::-1], [*entry["shape"], 1])
        entry["shape"] = any_of(rng, lies)
    elif way == "offsets":
        lies = (
            [0, 0],
            [0, 2**63],
            [-8, 0],
            [0],
            None,
            [0.0, 4.0],
            [len(body), len(body) + 8],
            entry["data_offsets"][::-1],
        )
        entry["data_offsets"] = any_of(rng, lies)
    elif way == "overlap":
        size = entry["data_offsets"][1] - entry["data_offsets"][0]
        start = int(rng.integers(max(1, len(body) - size)))
        entry["data_offsets"] = [start, start + size]
    elif way == "cut":
        body = body[: int(rng.integers(len(body) + 1))]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    said = len(text) if way != "length" else int(any_of(rng, (0, 1, 2**31, 2**63, len(text) - 1, len(text) + 8)))
    path.write_bytes(said.to_bytes(8, "little") + text + body)
    return way


def ask(path: Path, seed: int) -> None:
    """Load a folder and ask it as commands, Python and the server do; when asked, an error of ours is an answer."""
    model = load_model(path, verify=seed % 4 != 0)
    documents = documents_for(model.servable.vectoriser.reads, model.servable.vectoriser.n_features)
    predictor = Predictor(model, n_threads=1 + seed % 2)
    exclude = np.array([[0, 0], [1, model.servable.n_labels - 1]])
    for asked in (model.servable.predict, predictor.predict):
        for k, pairs in ((5, exclude), (10**6, exclude[:0])):
            _answer(asked, documents, k, pairs, model.servable.n_labels)
    if isinstance(documents, list):
        _ask_as_the_page(predictor, documents)
    _quietly(lambda: [list(table) for table in (model.labels.names, model.labels.texts or [])])
    for edit in (lambda: with_labels(model, NEW_LABELS), lambda: without_labels(model, [model.labels.names[0]])):
        edited = _quietly(edit)
        if edited is not None:
            _answer(Predictor(edited).predict, documents, 5, exclude[:0], edited.servable.n_labels)


def _ask_as_the_page(predictor: Predictor, texts: list[str]) -> None:
    """What the server's page asks besides predictions."""
    model = predictor.model
    ends = np.array([0, model.servable.n_labels - 1])
    _quietly(predictor.suggest, texts, 3)
    _quietly(predict_among, predictor, texts, ends, 3)
    _quietly(explain, predictor, texts[0], ends)
    _quietly(unknown_words, model.servable, texts[0])
    _quietly(near_labels, model.servable, 0, 3)
    _quietly(LabelIndex(model.labels, model.label_counts).search, "label 1", 3)
    if model.train_texts is not None:
        _quietly(model.train_texts.nearest, model.servable, texts[0], 0, 3)


def documents_for(reads: str, n_features: int) -> Any:
    if reads == "texts":
        return TEXTS
    rng = np.random.default_rng(0)
    if n_features > 1 << 20:
        return sp.csr_matrix((len(TEXTS), n_features), dtype=np.float32)
    rows = sp.random(len(TEXTS), n_features, density=0.2, format="csr", dtype=np.float32, rng=rng)
    return rows if reads == "sparse" else rows.toarray()


def _answer(asked: Any, documents: Any, k: int, exclude: np.ndarray, n_labels: int) -> None:
    found = _quietly(asked, documents, k, exclude)
    if found is not None:
        shape = (documents.shape[0] if hasattr(documents, "shape") else len(documents), min(k, n_labels))
        assert found.ids.shape == found.scores.shape == shape, (found.ids.shape, shape)
        assert ((found.ids >= -1) & (found.ids < n_labels)).all(), (found.ids.min(), found.ids.max())
        assert not np.isnan(found.scores).any(), found.scores


def _quietly(asked: Any, *arguments: Any) -> Any:
    try:
        return asked(*arguments)
    except XclearnError:
        return None


def main(arguments: Sequence[str]) -> None:
    """Parse and run; exits with 1 when a seed fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz folders", description=__doc__)
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 2000), metavar=("FIRST", "END"))
    parser.add_argument("--models", type=Path, default=MODELS, help="sound folders; made here if there are none")
    parser.add_argument("--record", action="store_true", help="add a row to benchmarks/results/fuzz.csv")
    chosen = parser.parse_args(arguments)
    make_models(chosen.models)
    started, failures, accepted, done = time.perf_counter(), Counter[str](), 0, 0
    with contextlib.suppress(KeyboardInterrupt):  # the row then says how far it came
        for seed, made_of, outcome in outcomes(chosen.models, range(*chosen.seeds)):
            done += 1
            accepted += outcome.kind == "done"
            if kind := failure_of(outcome):
                failures[kind] += 1
                print(f"{seed}: {outcome}  [{made_of}]", flush=True)
    row = {
        "kind": "folders",
        "sanitizers": "address undefined" if SANITIZED else "",
        "first_seed": chosen.seeds[0],
        "seeds": done,
        "accepted": accepted,
        **{name: failures[name] for name in ("crash", "hang", "foreign", "memory")},
        "seconds": round(time.perf_counter() - started),
    }
    print(row)
    if chosen.record:
        from benchmarks.record import record

        record("fuzz", row)
    sys.exit(bool(failures))


def make_models(path: Path) -> None:
    """Train the sound folders, in a process without sanitizers, unless they are there."""
    if not path.exists():
        plain = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "XCLEARN_FUZZ_NATIVE")}
        command = [sys.executable, "-m", "tests.fuzz.models", str(path.resolve())]
        subprocess.run(command, env=plain, cwd=Path(__file__).parents[2], check=True)


def outcomes(models: Path, seeds: range) -> Iterator[tuple[int, str, Outcome]]:
    """Of each seed: what it was made of, and how it ended."""
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    sound = {path.name: read_folder(path) for path in sorted(models.iterdir())}
    folder.read_tensors = _on_the_heap
    for module in _IMPORTED_AHEAD:  # once, and not in each child again
        importlib.import_module(module)
    memory = "/dev/shm"  # where a sync costs nothing
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as scratch:
        for start in range(seeds.start, seeds.stop, _AT_ONCE):
            part = range(start, min(start + _AT_ONCE, seeds.stop))
            for seed, outcome in zip(part, judge([partial(_case, seed, sound, scratch) for seed in part]), strict=True):
                made_of = damaged(seed, sound, Path(scratch)) if failure_of(outcome) else ""
                yield seed, made_of, outcome


def failure_of(outcome: Outcome) -> str:
    """crash, hang, foreign or memory; empty where all is well."""
    return "" if outcome.good and outcome.peak_mib <= MEMORY >> 20 else outcome.kind if not outcome.good else "memory"


def _case(seed: int, sound: dict[str, Folder], scratch: str) -> None:
    path = Path(scratch) / str(seed)
    path.mkdir()
    try:
        damaged(seed, sound, path)
        ask(path, seed)
    finally:
        shutil.rmtree(path)


def _on_the_heap(path: Path, mapped: np.ndarray | None = None) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    found, metadata = read_tensors(path, mapped)
    return {name: np.array(array) for name, array in found.items()}, metadata
