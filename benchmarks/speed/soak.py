"""`xc serve` under load and abuse: every answer is compared with what the model says without a server.

    python -m benchmarks.speed.soak --seconds 600

Capacity is measured first, by clients that ask again as soon as they are answered. Then requests come at random times,
at 80 % of it, nine single texts for each request of 32, while the folder gets good and broken models, workers are
killed, and other clients send nothing, half a header, bytes one by one, too much, and nonsense. Finally they come at
three times the capacity. Latency includes the wait for a connection. The machine is shared with whoever sends: how late
requests were sent is in `sent_late_p99_ms`.

It fails if an answer is wrong, a status is above 499 but not 503, a request is lost but for a killed worker, or memory
grows. Rows go to results/soak.csv.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from benchmarks.record import record

from xclearn.data import LabelSet
from xclearn.inference import Model, Predictor, save_model
from xclearn.inference.components import AllLabels, Bag, Classifier, Relu, Sigmoid
from xclearn.inference.servable import Servable
from xclearn.text import Words

TOKENS, DIM, K, TEXTS, BULK = 1000, 64, 3, 300, 32
PATIENCE = 40.0  # seconds for an answer; the server gives up after 30
JSON_HEAD = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
XC = "from xclearn.cli.main import main; main()"
WORKERS, OPTIONS = 2, ("--header-timeout", "3", "--body-timeout", "3")


def write_model(folder: Path, n_labels: int, seed: int) -> None:
    """Random rows, every one of which is scored for every text."""
    rng = np.random.default_rng(seed)
    weight = 0.2 * rng.standard_normal((n_labels, DIM), dtype=np.float32)  # scores far enough from 0 and 1
    servable = Servable(
        Words().learn([f"t{i}" for i in range(TOKENS) for _ in range(2)]),
        {"document": Bag(rng.standard_normal((TOKENS, DIM), dtype=np.float32), [Relu()])},
        AllLabels(),
        [Classifier("document", weight, np.full(n_labels, -3, np.float32))],
        Sigmoid(),
    )
    about = {"xclearn": "0", "algorithm": "random", "settings": {}, "resolved": {}, "data": {"name": "random"}}
    save_model(Model(servable, LabelSet([f"label {i}" for i in range(n_labels)]), about), folder)


@dataclass
class Outcome:
    """What came of the requests of a phase."""

    seconds: float = 0.0
    statuses: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    lost: Counter[str] = field(default_factory=Counter)  # connections that ended instead of an answer
    single: list[float] = field(default_factory=list)  # seconds of those that were answered with 200
    bulk: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=lambda: [0.0])  # seconds that our own requests were sent too late

    def row(self) -> dict[str, Any]:
        times = {"single": self.single or [float("nan")], "bulk": self.bulk or [float("nan")]}
        quantiles = {
            f"{kind}_p{q}_ms": round(1000 * float(np.percentile(found, q)), 1)
            for kind, found in times.items()
            for q in (50, 99)
        }
        other = sum(n for status, n in self.statuses.items() if status > "499" and status != "503")
        return {
            "seconds": round(self.seconds),
            "requests": self.statuses.total() + self.lost.total(),
            "answered_per_s": round(self.statuses["200"] / max(1e-9, self.seconds), 1),
            "wrong": len(self.wrong),
            "5xx": other,
            "shed": self.statuses["503"],
            "lost": self.lost.total(),
            **quantiles,
            "sent_late_p99_ms": round(1000 * float(np.percentile(self.late, 99)), 1),
        }


class Clients:
    """Connections to the server, kept where it keeps them, and the right answers."""

    def __init__(self, port: int, models: list[Path], seed: int) -> None:
        self._port, self._random = port, random.Random(seed)
        rng = np.random.default_rng(seed)
        self._texts = [" ".join(f"t{token}" for token in rng.integers(0, TOKENS, 8)) for _ in range(TEXTS)]
        self._right = [Predictor.load(folder).suggest(self._texts, K) for folder in models]
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, outcome: Outcome, due: float) -> None:
        """One request, and a look at its answer; another try on a new connection if a kept one had ended."""
        n = 1 if self._random.random() < 0.9 else BULK
        asked = [self._random.randrange(TEXTS) for _ in range(n)]
        body = json.dumps({"texts": [self._texts[i] for i in asked], "k": K}).encode()
        status, answer = await self._exchange(body, outcome)
        if status:
            outcome.statuses[status] += 1
        if status == "200":
            (outcome.single if n == 1 else outcome.bulk).append(time.perf_counter() - due)
            if not any(self._same(answer, right, asked) for right in self._right):
                outcome.wrong.append(answer[:200].decode())
        elif status and status != "503":
            outcome.wrong.append(f"{status}: {answer[:200].decode()}")

    async def _exchange(self, body: bytes, outcome: Outcome) -> tuple[str, bytes]:
        sent = JSON_HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
        while True:
            kept = bool(self._idle)
            try:
                async with asyncio.timeout(PATIENCE):
                    reader, writer = self._idle.pop() if kept else await self._connect()
                    writer.write(sent)
                    status, answer, stays = await read_answer(reader)
            except (OSError, EOFError, TimeoutError) as error:
                if kept and not isinstance(error, TimeoutError):
                    continue  # as any client with a pool does
                outcome.lost[type(error).__name__] += 1
                return "", b""
            if stays:
                self._idle.append((reader, writer))
            else:
                writer.close()
            return status, answer

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self._port)

    def _same(self, answer: bytes, right: list[Any], asked: list[int]) -> bool:
        """The same labels in the same order, and the same scores but for rounding; ties may stand either way."""
        found = json.loads(answer)["predictions"]
        for row, i in zip(found, asked, strict=True):
            scores = [one["score"] for one in row]
            expected = {one.label: one.score for one in right[i]}
            if not np.allclose(scores, sorted(expected.values(), reverse=True), atol=1e-5):
                return False
            known = [one for one in row if one["label"] in expected]
            if any(abs(expected[one["label"]] - one["score"]) > 1e-5 for one in known) or not known:
                return False
        return len(found) == len(asked)


async def read_answer(reader: asyncio.StreamReader) -> tuple[str, bytes, bool]:
    """Status, body, and whether the connection stays."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = re.search(r"content-length: (\d+)", head)
    body = await reader.readexactly(int(length[1]) if length else 0)
    return head.split()[1], body, "connection: close" not in head


# Load


async def closed_loop(clients: Clients, seconds: float, n: int = 16) -> Outcome:
    """Each client asks again as soon as it is answered."""
    outcome, started = Outcome(), time.perf_counter()

    async def one() -> None:
        while time.perf_counter() < started + seconds:
            await clients.ask(outcome, time.perf_counter())

    await asyncio.gather(*(one() for _ in range(n)))
    outcome.seconds = time.perf_counter() - started
    return outcome


async def open_loop(clients: Clients, rate: float, seconds: float, seed: int) -> Outcome:
    """Requests come at random times, whatever becomes of those before them."""
    outcome = Outcome()
    started = time.perf_counter()
    rng = random.Random(seed)
    tasks: set[asyncio.Task[None]] = set()
    due = started
    while due < started + seconds:
        due += rng.expovariate(rate)
        if (wait := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        outcome.late.append(time.perf_counter() - due)
        task = asyncio.create_task(clients.ask(outcome, time.perf_counter()))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    while tasks:
        await asyncio.wait(tasks)
    outcome.seconds = time.perf_counter() - started
    return outcome


# Abuse


class Abuse:
    """What else happens to the server. `beat` is the time between two models or two killed workers."""

    def __init__(self, server: Server, models: list[Path], beat: float) -> None:
        self._server, self._models, self._beat = server, models, beat
        self.done: Counter[str] = Counter()

    async def run(self) -> None:
        every = self._beat
        await asyncio.gather(
            self._repeat(every, self._good_model),
            self._repeat(every, self._broken_model, every / 2),
            self._repeat(1.5 * every, self._kill, every / 3),
            *(self._repeat(0.01, self._silent) for _ in range(10)),
            *(self._repeat(0.01, self._half_header) for _ in range(10)),
            *(self._repeat(0.01, self._trickle) for _ in range(5)),
            self._repeat(every / 4, self._too_large),
            self._repeat(every / 40, self._nonsense),
        )

    async def _repeat(self, pause: float, act: Callable[[], Awaitable[None]], first: float = 0.0) -> None:
        await asyncio.sleep(first)
        while True:
            with contextlib.suppress(OSError, EOFError, psutil.NoSuchProcess):
                await act()
            await asyncio.sleep(pause)

    async def _good_model(self) -> None:
        """By turns another folder in its place, and another model copied over the files."""
        chosen = self._models[self.done["good model"] % len(self._models)]
        if self.done["good model"] % 4 < 2:
            new = self._server.folder.with_name("new")
            shutil.copytree(chosen, new)
            shutil.rmtree(self._server.folder)
            new.rename(self._server.folder)
        else:
            self._server.folder.mkdir(exist_ok=True)
            for file in chosen.iterdir():
                shutil.copyfile(file, self._server.folder / file.name)
        self._reload("good model")

    async def _broken_model(self) -> None:
        tensors = self._server.folder / "tensors.safetensors"
        kind = self.done["broken model"] % 3
        if kind == 0:
            os.truncate(tensors, tensors.stat().st_size // 2)
        elif kind == 1:
            with tensors.open("r+b") as stream:
                stream.seek(-9, os.SEEK_END)
                stream.write(b"\xff")
        else:
            (self._server.folder / "model.json").unlink()
        self._reload("broken model")

    def _reload(self, name: str) -> None:
        self._server.process.send_signal(signal.SIGHUP)
        self.done[name] += 1

    async def _kill(self) -> None:
        """The youngest worker; the eldest lives through, so that its memory can be seen."""
        *elder, youngest = self._server.workers()
        if elder:  # the other must live on
            youngest.kill()
            self.done["killed"] += 1

    async def _silent(self) -> None:
        await self._send(b"")

    async def _half_header(self) -> None:
        await self._send(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Le")

    async def _trickle(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._server.port)
        with contextlib.closing(writer):
            writer.write(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n")
            for _ in range(100):
                writer.write(b" ")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(1), 0.1)
                    break
            self.done["slow"] += 1

    async def _too_large(self) -> None:
        size = 9 << 20
        await self._send(JSON_HEAD + b"Content-Length: %d\r\n\r\n" % size + bytes(size), "413")

    async def _nonsense(self) -> None:
        body = random.choice([b"{", b"[1]", b'{"text": 5}', b"\xff\xfe", b'{"text": "a", "k": -1}'])
        await self._send(JSON_HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body, "422")
        await self._send(b"\x16\x03\x01 nonsense\r\n\r\n", "400")

    async def _send(self, sent: bytes, expected: str = "") -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._server.port)
        with contextlib.closing(writer):
            writer.write(sent)
            answer = await reader.read()
        said = answer.split()[1].decode() if answer else "closed"
        self.done[f"asked badly: {said}" if expected else "slow"] += 1


@dataclass
class Server:
    process: subprocess.Popen[str]
    folder: Path
    port: int
    log: Path
    _started: dict[int, psutil.Process] = field(default_factory=dict)
    _read: int = 0  # bytes of the log

    def workers(self) -> list[psutil.Process]:
        """Those that serve, the eldest first."""
        with self.log.open("rb") as stream:
            stream.seek(self._read)
            lines = [line for line in stream if line.endswith(b"\n")]
        self._read += sum(map(len, lines))
        for line in lines:
            if b'"event":"start"' in line:
                with contextlib.suppress(psutil.NoSuchProcess):
                    pid = json.loads(line)["pid"]
                    self._started[pid] = psutil.Process(pid)
        return [one for one in self._started.values() if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]

    def memory(self) -> dict[str, int]:
        """Bytes of the supervisor and of its eldest worker, the shared copy of the model included."""
        return {
            "supervisor": psutil.Process(self.process.pid).memory_info().rss,
            "worker": self.workers()[0].memory_info().rss,
        }


@contextlib.contextmanager
def running(folder: Path, log: Path) -> Iterator[Server]:
    command = [sys.executable, "-c", XC, "serve", str(folder), "--port", "0", "--workers", str(WORKERS), *OPTIONS]
    errors = log.with_suffix(".errors")
    with log.open("w") as stdout, errors.open("w") as stderr:
        process = subprocess.Popen(command, stdout=stdout, stderr=stderr, text=True)
    try:
        port = None
        while port is None:
            assert process.poll() is None, errors.read_text()
            time.sleep(0.1)
            port = re.search(r"http://127\.0\.0\.1:(\d+)", errors.read_text())
        while log.read_text().count('"event":"start"') < WORKERS:
            assert process.poll() is None, errors.read_text()
            time.sleep(0.1)
        yield Server(process, folder, int(port[1]), log)
        process.terminate()
        assert process.wait(60) == 0, errors.read_text()[-2000:]
    finally:
        process.kill()


async def watch_memory(server: Server, found: list[dict[str, int]]) -> None:
    while True:
        await asyncio.sleep(1)
        with contextlib.suppress(psutil.NoSuchProcess, IndexError):  # one is killed just now
            found.append(server.memory())


async def soak(server: Server, clients: Clients, abuse: Abuse, arguments: argparse.Namespace) -> list[str]:
    """Both phases; what is wrong with them."""
    await closed_loop(clients, arguments.capacity_seconds / 4)  # warm
    best = await closed_loop(clients, arguments.capacity_seconds)
    capacity = best.statuses["200"] / best.seconds
    print(f"capacity: {capacity:.0f} requests/s", flush=True)
    facts = {"capacity_per_s": round(capacity, 1), "labels": arguments.labels, "workers": WORKERS}
    memory: list[dict[str, int]] = []
    tasks = [asyncio.create_task(watch_memory(server, memory)), asyncio.create_task(abuse.run())]
    steady = await open_loop(clients, 0.8 * capacity, arguments.seconds, seed=1)
    for task in tasks:
        task.cancel()
    print(f"abuse: {dict(abuse.done)}", flush=True)
    grown = grown_memory(memory)
    report("80 %", steady, {**facts, **grown, "killed": abuse.done["killed"]}, arguments)
    over = await open_loop(clients, 3 * capacity, arguments.overload_seconds, seed=2)
    report("3 x", over, facts, arguments)
    return faults(steady, over, grown, abuse, arguments.room)


def grown_memory(samples: list[dict[str, int]]) -> dict[str, float]:
    """MiB of the second tenth of the time and of the last: the first holds what is read once."""
    tenth = max(1, len(samples) // 10)
    return {
        f"{name}_{when}_MiB": round(float(np.median([one[name] for one in part])) / (1 << 20), 1)
        for name in ("supervisor", "worker")
        for when, part in (("start", samples[tenth : 2 * tenth]), ("end", samples[-tenth:]))
    }


def report(phase: str, outcome: Outcome, facts: dict[str, Any], arguments: argparse.Namespace) -> None:
    row = {"phase": phase, **outcome.row(), **facts}
    print(f"{row} statuses={dict(outcome.statuses)} lost={dict(outcome.lost)}", flush=True)
    for wrong in outcome.wrong[:5]:
        print(f"wrong: {wrong}", flush=True)
    if arguments.record:
        record("soak", row)


def faults(steady: Outcome, over: Outcome, grown: dict[str, float], abuse: Abuse, room: float) -> list[str]:
    rows = {"80 %": steady.row(), "3 x": over.row()}
    found = [f"{name}: {row}" for name, row in rows.items() if row["wrong"] or row["5xx"]]
    most = abuse.done["killed"] * 64  # requests that a worker may have had in hand
    if steady.lost.total() > most or over.lost:
        found.append(f"lost: {dict(steady.lost)} of at most {most}, and {dict(over.lost)}")
    for name in ("supervisor", "worker"):
        start, end = grown[f"{name}_start_MiB"], grown[f"{name}_end_MiB"]
        if end > 1.1 * start + room:
            found.append(f"{name}: {start} MiB became {end} MiB")
    if min(abuse.done["good model"], abuse.done["broken model"], abuse.done["killed"]) == 0:
        found.append(f"not all was tried: {dict(abuse.done)}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600, help="at 80 %% of the capacity")
    parser.add_argument("--overload-seconds", type=float, default=60, help="at three times the capacity")
    parser.add_argument("--capacity-seconds", type=float, default=20)
    parser.add_argument("--beat", type=float, default=20, help="seconds between two models, or two killed workers")
    parser.add_argument("--labels", type=int, default=100_000)
    parser.add_argument("--room", type=float, default=20, help="MiB, and a tenth, that memory may grow by")
    parser.add_argument("--record", action=argparse.BooleanOptionalAction, default=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="xclearn-soak-") as name:
        work = Path(name)
        models = [work / "first", work / "second"]
        for seed, folder in enumerate(models):
            write_model(folder, arguments.labels, seed)
        shutil.copytree(models[0], work / "served")
        with running(work / "served", work / "log") as server:
            abuse = Abuse(server, models, arguments.beat)
            found = asyncio.run(soak(server, Clients(server.port, models, seed=0), abuse, arguments))
        errors = (work / "log.errors").read_text()
        if "Traceback" in errors:
            found.append(errors[-2000:])
    for fault in found:
        print(f"fault: {fault}", flush=True)
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
