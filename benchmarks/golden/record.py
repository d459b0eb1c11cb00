"""Train all golden cases with one version of xclearn and record the results. Runs in a process of its own.

    python -m benchmarks.golden.record OUT [--source FOLDER] [--only PART]

Reads only what stays the same between versions: settings, model folders, checkpoint files, the command line, and the
server's OpenAPI document. `--source` is a folder that holds the package; without it the installed one is recorded.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.golden.cases import Case, all_cases

EPOCHS, K, SEED = 2, 10, 3
_EXPORTED = "default.texts"  # cases that are exported as well
_WAIT = 60.0  # seconds for a server to answer


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--source", type=Path)
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    if asked.source is not None:
        _import_from(asked.source)
    from xclearn import algorithms

    cases = [case for case in all_cases(algorithms.algorithm_names()) if asked.only in case.name]
    found = {case.name: _train(case, asked.out / case.name) for case in cases}
    record: dict[str, Any] = {"cases": found, "settings": _settings(), "commands": _commands()}
    folder = asked.out / f"decaf.{_EXPORTED}" / "model"
    if folder.exists():
        record["openapi"] = _openapi(folder, asked.source)
    (asked.out / "record.json").write_text(json.dumps(record, indent=1, sort_keys=True))


def _import_from(source: Path) -> None:
    """Import xclearn from this folder: an editable install has a finder of its own, which would come first."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if isinstance(finder, type)]  # those of Python itself
    sys.path.insert(0, str(source))
    import xclearn

    if not Path(xclearn.__file__).is_relative_to(source):
        raise SystemExit(f"xclearn comes from {xclearn.__file__}, not from {source}")


def _train(case: Case, out: Path) -> dict[str, Any]:
    """Fit, save and predict; an error counts as a result and is recorded by its class."""
    from tests.planted import planted

    from xclearn import algorithms, config
    from xclearn.errors import XclearnError

    data = planted(case.inputs, train=case.train)
    cls = algorithms.find(case.algorithm)
    epochs = {row.name: EPOCHS for row in config.describe(cls) if row.name.endswith("epochs") and "." not in row.name}
    if case.algorithm != "astec" and "reranker_epochs" in epochs:
        del epochs["reranker_epochs"]
    if "classifier" in case.settings:
        epochs["reranker_epochs"] = 0
    started = time.perf_counter()
    try:
        algorithm = config.build(cls, {**epochs, **case.settings}, case.algorithm)
        algorithm.fit(data, device="cpu", seed=SEED, checkpoint=out / "checkpoint")
    except XclearnError as error:
        return {"error": type(error).__name__}
    algorithm.save(out / "model")
    documents = data.split("test").documents
    _predict(out, algorithm, documents)
    content = json.loads((out / "model" / "model.json").read_text())
    training = {name: value for name, value in content["about"]["training"].items() if name != "seconds"}
    return {
        "trained": _trained(out / "checkpoint"),
        "served": _digests(out / "model" / "tensors.safetensors"),
        "resolved": _plain(content["about"]["resolved"]),
        "training": training,
        "seconds": round(time.perf_counter() - started, 2),
    }


def _predict(out: Path, algorithm: Any, documents: Any) -> None:
    """TopK of every prediction path this version has."""
    import torch

    import xclearn
    from xclearn.errors import ConfigError
    from xclearn.inference import load_model

    ways: dict[str, Callable[[], Any]] = {
        "fitted": lambda: algorithm.predict(documents, K),
        "servable": lambda: load_model(out / "model").servable.predict(documents, K),
        "loaded": lambda: xclearn.load(out / "model").predict(documents, K),
    }
    if torch.cuda.is_available():
        ways["gpu"] = lambda: xclearn.load(out / "model", device="cuda").predict(documents, K)
    if out.name.endswith(_EXPORTED):
        ways["exported"] = lambda: xclearn.load(_export(out)).predict(documents, K)
    arrays = {}
    for name, way in ways.items():
        try:
            ids, scores = way()
        except (AttributeError, ConfigError):  # this version has no such way, or this model cannot be exported
            continue
        arrays[f"{name}.ids"], arrays[f"{name}.scores"] = ids, scores
    np.savez(out / "predictions.npz", **arrays)


def _export(out: Path) -> Path:
    from xclearn.cli.main import app

    app(["export", str(out / "model"), str(out / "exported"), "--int8", "--force"], standalone_mode=False)
    return out / "exported"


def _digests(path: Path) -> dict[str, str]:
    """Name → type, shape and content of each tensor of a file."""
    from safetensors.numpy import load_file

    return {
        name: f"{array.dtype} {array.shape} {hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()[:16]}"
        for name, array in load_file(path).items()
    }


def _trained(checkpoint: Path) -> dict[str, list[str]]:
    """Contents of each finished stage and kept structure; tensor names may change, contents may not."""
    return {path.stem: sorted(_digests(path).values()) for path in sorted(checkpoint.glob("*.safetensors"))}


def _settings() -> dict[str, dict[str, str]]:
    """Name, type and default of every setting of every algorithm."""
    from xclearn import algorithms, config

    return {
        name: {row.name: f"{row.type} = {row.default}" for row in config.describe(algorithms.find(name))}
        for name in algorithms.algorithm_names()
    }


def _commands() -> dict[str, dict[str, str]]:
    """Names and default of every option of every command."""
    import typer

    from xclearn.cli.main import app

    found: dict[str, dict[str, str]] = {}

    def walk(command: Any, path: str) -> None:
        found[path] = {"/".join(part.opts): repr(part.default) for part in command.params}
        for name, inner in getattr(command, "commands", {}).items():
            walk(inner, f"{path} {name}")

    walk(typer.main.get_command(app), "xc")
    return found


def _openapi(model: Path, source: Path | None) -> dict[str, Any]:
    """The OpenAPI document of a running server, without prose."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = "from xclearn.cli.main import main; main()"
    if source is not None:
        taken = f"from pathlib import Path; _import_from(Path({str(source)!r}))"
        program = f"from benchmarks.golden.record import _import_from; {taken}; {program}"
    command = [sys.executable, "-c", program, "serve", str(model), "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ))
    try:
        document = json.loads(_answer(f"http://127.0.0.1:{port}/openapi.json", server))
    finally:
        server.terminate()
        server.wait()
    kept: dict[str, Any] = _plain({key: document[key] for key in ("paths", "components")})
    return kept


def _answer(address: str, server: subprocess.Popen[bytes]) -> bytes:
    until = time.monotonic() + _WAIT
    while time.monotonic() < until and server.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=5) as reply:
                content: bytes = reply.read()
                return content
        except OSError:
            time.sleep(0.2)
    raise SystemExit(f"no server answers at {address}")


def _plain(value: Any) -> Any:
    """The value without prose; a null setting means auto."""
    if isinstance(value, dict):
        prose = ("description", "summary", "title")
        return {key: _plain(item) for key, item in value.items() if key not in prose or isinstance(item, dict)}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return "auto" if value is None else value


if __name__ == "__main__":
    main()
