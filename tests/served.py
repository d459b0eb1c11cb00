"""A small trained model, and `xc serve` as a process of its own on a free port of the loopback interface."""

import contextlib
import functools
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from xclearn import OneVsAll
from xclearn.data.dataset import Dataset, LabelSet, Split
from xclearn.inference import save_model
from xclearn.inference.train_texts import TrainTexts

WORDS = ["dog", "cat", "train", "plane", "apple", "pear", "river", "lake", "piano", "violin"]
NAMES = [word.title() for word in WORDS]
XC = [sys.executable, "-c", "from xclearn.cli.main import main; main()"]
BINS = [{"n_labels": 4, "highest_count": 5, "lowest_count": 5, "n_relevant": 8, "contribution": 12.5, "recall": 80.0}]

_FOLDERS = tempfile.TemporaryDirectory(prefix="xclearn-served-")  # gone when the tests end


@functools.cache
def model_folder(seed: int = 0) -> Path:
    """Ten labels, each with a word of its own, learnt from fifty texts."""
    texts = [f"{word} number {i} is a thing" for i in range(5) for word in WORDS]
    columns = [WORDS.index(text.split()[0]) for text in texts]
    relevance = sp.csr_matrix((np.ones(len(texts), np.float32), (range(len(texts)), columns)), shape=(len(texts), 10))
    labels = LabelSet(NAMES, [f"{word}: whatever is a {word}" for word in WORDS])
    model = OneVsAll(embedding_dim=16)
    model.fit(Dataset("things", Split(texts, relevance), labels), device="cpu", seed=seed)
    model.model.about["metrics"] = {"test": {"P@1": 91.5, "P@3": 33.25, "R@10": 100.0, "R@20": float("nan")}}
    model.model.about["purpose"] = "Names things."
    model.model.about["bins"] = {"test": BINS}
    folder = Path(_FOLDERS.name) / f"model-{seed}"
    save_model(replace(model.model, train_texts=TrainTexts.of(texts, relevance)), folder)
    return folder


class Reply(NamedTuple):
    status: int
    content: Any  # JSON, read; anything else as text
    headers: dict[str, str]


@dataclass
class Server:
    """A running `xc serve`."""

    process: subprocess.Popen[str]
    log_file: Path
    said: list[str] = field(default_factory=list)  # lines of stderr so far
    port: int = 0

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        """One request on a connection of its own."""
        with contextlib.closing(self.connect()) as connection:
            return ask_on(connection, method, path, body, **headers)

    def predict(self, **body: Any) -> Reply:
        return self.ask("POST", "/predict", body)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """The exit code."""
        self.process.send_signal(number)
        return self.process.wait(60)

    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log_file.read_text().splitlines()]


def ask_on(connection: http.client.HTTPConnection, method: str, path: str, body: Any = None, **headers: str) -> Reply:
    """One request; `body` goes as it is if it is bytes, else as JSON."""
    raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, path, raw, {"Content-Type": "application/json", **headers})
    answer = connection.getresponse()
    text = answer.read()
    is_json = answer.headers.get_content_type() == "application/json"
    found = {name.lower(): value for name, value in answer.getheaders()}
    return Reply(answer.status, json.loads(text) if is_json else text.decode(), found)


@contextlib.contextmanager
def served(folder: Path, *options: str, descriptors: int = 0, **environment: str) -> Iterator[Server]:
    """`xc serve`, ready to answer, with so many file descriptors if given; killed at the end if it still runs."""
    command, variables = [*XC, "serve", str(folder), "--port", "0", *options], {**os.environ, **environment}
    if descriptors:
        command = ["prlimit", f"--nofile={descriptors}", *command]
    with tempfile.NamedTemporaryFile("w") as log:  # a pipe that nobody reads would fill up and stop the server
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.PIPE, text=True, env=variables)
        try:
            server = Server(process, Path(log.name))
            _listen(server)
            yield server
        finally:
            process.kill()
            process.wait()


def _listen(server: Server) -> None:
    """Read until it says its address; then go on reading in a thread, and wait for a first answer."""
    lines = iter(server.process.stderr or [])
    for line in lines:
        server.said.append(line.rstrip("\n"))
        if found := re.search(r"http://127\.0\.0\.1:(\d+)/", line):
            server.port = int(found[1])
            break
    else:
        raise AssertionError(f"the server did not start: {server.said}")
    threading.Thread(target=lambda: server.said.extend(line.rstrip("\n") for line in lines), daemon=True).start()
    wait_for(lambda: server.ask("GET", "/readyz").status == 200)


def wait_for(condition: Any, seconds: float = 60) -> None:
    """Until it is true; a connection that is refused is not yet."""
    ended = threading.Event()
    for _ in range(int(20 * seconds)):
        with contextlib.suppress(OSError, http.client.HTTPException):
            if condition():
                return
        ended.wait(0.05)
    raise AssertionError("it did not happen in time")
