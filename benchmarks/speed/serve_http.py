"""`xc serve` under load: requests per second and p99 at 1, 16 and 256 connections, beside an empty handler.

    python -m benchmarks.speed.serve_http --model .bench/exported

The empty handler is FastAPI under uvicorn, with the server's own settings of it, that answers a constant and reads
nothing. Both servers run all the time and are asked in turns by wrk (`apt install wrk`), with load.lua.
Predictions without a server are timed between the turns. Figures are medians over the rounds; `cpu_us` is the
processor's time of the server, which other work on the machine changes less. Rows go to results/serve_http.csv;
`allowed_us` and `allowed_cpu_us` are 1.5 times the empty handler and one prediction.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
from benchmarks.speed.serve import WORDNET, record_row

from xclearn.data import load_dataset
from xclearn.inference import Predictor

CONNECTIONS, ROUNDS, SECONDS, K = (1, 16, 256), 9, 2, 10
TIMES = ("p50_us", "p99_us", "cpu_us")
LOAD = Path(__file__).with_name("load.lua")
XC = "from xclearn.cli.main import main; main()"
EMPTY = """
import uvicorn
from fastapi import FastAPI, Response
app = FastAPI()
@app.post("/predict")
async def empty() -> Response:
    return Response(b"{}", media_type="application/json")
settings = dict(lifespan="off", ws="none", access_log=False, server_header=False)
uvicorn.run(app, host="127.0.0.1", port=0, **settings)
"""


class Server(NamedTuple):
    port: int
    process: psutil.Process

    def asked(self, connections: int, bodies: Path) -> dict[str, float]:
        """What wrk says, and the CPU time of the server for one request."""
        before = sum(self.process.cpu_times()[:2])
        options = ["-t", "1", "-c", str(connections), "-d", f"{SECONDS}s", "-s", str(LOAD)]
        command = ["wrk", *options, f"http://127.0.0.1:{self.port}/predict", "--", str(bodies)]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found: dict[str, float] = json.loads(said.splitlines()[-1])
        return found | {"cpu_us": 1e6 * (sum(self.process.cpu_times()[:2]) - before) / max(1, found["requests"])}


@contextlib.contextmanager
def running(*command: str) -> Iterator[Server]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        lines = (re.search(r"http://127\.0\.0\.1:(\d+)", line) for line in process.stderr)
        yield Server(int(next(found for found in lines if found)[1]), psutil.Process(process.pid))
    finally:
        process.terminate()
        process.wait()


def measure(arguments: argparse.Namespace) -> None:
    texts = [str(text) for text in load_dataset(WORDNET).split("test").documents[:2000]]
    bodies = arguments.work / "bodies.jsonl"
    bodies.write_text("".join(json.dumps({"text": text, "k": K}) + "\n" for text in texts), encoding="utf-8")
    found: dict[tuple[str, int], list[dict[str, float]]] = {}
    predictor, predicted = Predictor.load(arguments.model), []
    ours = [sys.executable, "-c", XC, "serve", str(arguments.model), "--port", "0"]
    with running(*ours) as server, running(sys.executable, "-c", EMPTY) as empty:
        time.sleep(1)  # the address is said before the first answer
        for _ in range(ROUNDS):
            for n in CONNECTIONS:
                for name, own in (("empty handler", empty), ("xc serve", server)):
                    found.setdefault((name, n), []).append(own.asked(n, bodies))
            predicted.append(prediction(predictor, texts))
    wall, cpu = np.median(predicted, axis=0).round(1).tolist()
    for (name, n), runs in found.items():
        row: dict[str, Any] = {"set": WORDNET, "system": name, "connections": n, **summary(runs)}
        if name == "xc serve":
            least = summary(found["empty handler", n])
            row |= {"prediction_us": wall, "allowed_us": round(1.5 * least["p50_us"] + wall, 1)}
            row |= {"prediction_cpu_us": cpu, "allowed_cpu_us": round(1.5 * least["cpu_us"] + cpu, 1)}
        record_row("serve_http", row)


def summary(runs: list[dict[str, float]]) -> dict[str, float]:
    rate = float(np.median([run["requests"] / run["seconds"] for run in runs]))
    times = {name: round(float(np.median([run[name] for run in runs])), 1) for name in TIMES}
    return {"requests_per_s": round(rate), **times, "failed": sum(run["failed"] for run in runs)}


def prediction(predictor: Predictor, texts: list[str]) -> tuple[float, float]:
    """Microseconds from one text to its names: the median, and the mean of the processor's time."""
    times, before = [], time.thread_time()
    for text in texts:
        start = time.perf_counter()
        predictor.suggest([text], K)
        times.append(1e6 * (time.perf_counter() - start))
    return float(np.median(times)), 1e6 * (time.thread_time() - before) / len(texts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path(".bench"))
    parser.add_argument("--model", type=Path, default=Path(".bench/exported"))
    measure(parser.parse_args())


if __name__ == "__main__":
    main()
