"""Clients that are silent, slow, many or greedy, and a server that is told to stop while it is asked."""

import contextlib
import http.client
import json
import os
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import handmade
import numpy as np
import psutil
import pytest
from served import Server, ask_on, model_folder, served, wait_for
from test_serving_listening import deaf_client, hear_again

from xclearn.data import LabelSet
from xclearn.inference import Model, save_model
from xclearn.inference.components import Bag, Classifier

HEAD = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@contextlib.contextmanager
def connected(server: Server, n: int = 1, sending: bytes = b"") -> Iterator[list[socket.socket]]:
    """Connections of their own, and what each sends at once."""
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(n):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=30))
            if sending:
                one.sendall(sending)
            found.append(one)
        yield found


def read_all(connection: socket.socket) -> bytes:
    """Until the server closes."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def metric(server: Server, name: str) -> float:
    lines = server.ask("GET", "/metrics").content.splitlines()
    return next((float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{name} ")), 0)


# Silent and slow


def test_silent_and_half_header_connections_are_closed() -> None:
    one_and_a_half = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /he"
    with served(model_folder(), "--header-timeout", "1", "--idle-timeout", "1") as server:
        with contextlib.ExitStack() as stack:
            ((silent,), (half,), (second,)) = (
                stack.enter_context(connected(server, sending=sending)) for sending in (b"", HEAD, one_and_a_half)
            )
            assert read_all(silent) == b""
            told = read_all(half)
            assert told.startswith(b"HTTP/1.1 408 ")
            assert b"the header did not arrive in time; allowed: 1 s" in told
            assert read_all(second).startswith(b"HTTP/1.1 200 ")
        assert server.predict(text="a dog", k=1).status == 200


def test_a_header_that_trickles_is_not_waited_for() -> None:
    with served(model_folder(), "--header-timeout", "1") as server, connected(server, sending=HEAD) as (slow,):
        slow.settimeout(0.1)
        for _ in range(300):
            try:
                slow.sendall(b"x")
                if slow.recv(1):
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        else:
            raise AssertionError("it was waited for")


def test_an_idle_connection_is_closed_and_a_busy_one_is_not() -> None:
    ask = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with (
        served(model_folder(), "--idle-timeout", "1") as server,
        connected(server, sending=ask) as (idle,),
        contextlib.closing(server.connect()) as busy,
    ):
        busy.connect()
        first = busy.sock
        for _ in range(15):
            assert ask_on(busy, "POST", "/predict", {"text": "a dog", "k": 1}).status == 200
            time.sleep(0.2)
        assert busy.sock is first  # never connected again
        assert read_all(idle).startswith(b"HTTP/1.1 200 ")


def test_a_body_that_trickles_is_not_waited_for() -> None:
    with served(model_folder(), "--body-timeout", "1") as server:
        with connected(server, sending=HEAD + b"Content-Length: 100\r\n\r\n{") as (slow,):
            told = read_all(slow)
        assert told.startswith(b"HTTP/1.1 408 ")
        assert b"body: the body did not arrive in time; allowed: 1 s." in told
        assert b"connection: close" in told.lower()


def test_answers_that_nobody_reads_are_given_up() -> None:
    with served(model_folder(), "--body-timeout", "1") as server:
        question = json.dumps({"texts": 1000 * ["a dog"], "k": 10}).encode()
        ask = HEAD + f"Content-Length: {len(question)}\r\n\r\n".encode() + question
        with connected(server, 3) as deaf:
            for one in deaf:
                one.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    for _ in range(200):
                        one.send(ask)
            wait_for(lambda: metric(server, "xclearn_connections_open") == 1)  # the one that asks


# Many


def test_silent_connections_beyond_the_descriptors_stop_nothing() -> None:
    with served(model_folder(), descriptors=128) as server, connected(server, 140, HEAD):
        before = os.path.getsize(server.log_file) + sum(map(len, server.said))
        for _ in range(10):
            assert server.ask("GET", "/healthz").status == 200
            assert server.predict(text="a dog", k=1).content["predictions"][0][0]["label"] == "Dog"
        wait_for(lambda: metric(server, 'xclearn_connections_ended_total{reason="crowded"}') > 0)
        assert os.path.getsize(server.log_file) + sum(map(len, server.said)) < before + 50_000


def test_more_requests_than_connections_allowed_are_told_to_come_again(slow_folder: Path) -> None:
    with served(slow_folder, "--max-connections", "8") as server:
        question = json.dumps({"texts": 200 * ["blue"], "k": 1}).encode()
        ask = HEAD + f"Content-Length: {len(question)}\r\n\r\n".encode() + question
        with connected(server, 8, ask):
            wait_for(lambda: asked_again(server) == 503)
            reply = server.ask("GET", "/healthz")
            assert reply.status == 200


def asked_again(server: Server) -> int:
    reply = server.predict(text="blue", k=1)
    if reply.status == 503:
        assert (reply.headers["retry-after"], reply.headers["connection"]) == ("1", "close")
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert "the server has too many connections" in reply.content["error"]
    return reply.status


def test_withheld_bodies_take_no_more_memory_than_allowed() -> None:
    limits = ("--max-bodies", str(16 << 20), "--max-wait", "60")  # the wait on a busy machine is not what is tested
    with served(model_folder(), *limits) as server:
        process = psutil.Process(server.process.pid)
        before = process.memory_info().rss
        size = 8 << 20
        with connected(server, 60, HEAD + f"Content-Length: {size}\r\n\r\n".encode()) as greedy:
            statuses = Counter()
            threads = [threading.Thread(target=withhold, args=(one, size, statuses)) for one in greedy]
            for thread in threads:
                thread.start()
            peak = before
            for _ in range(40):
                peak = max(peak, process.memory_info().rss)
                assert server.predict(text="a dog", k=1).status == 200  # a small body is none of these
                time.sleep(0.05)
            wait_for(lambda: statuses[503] > 0)
            assert peak - before < 150 << 20, f"{(peak - before) >> 20} MiB"
        for thread in threads:
            thread.join()
        assert set(statuses) <= {503, "sent"}


def withhold(connection: socket.socket, size: int, statuses: Counter[Any]) -> None:
    """All of a body but its last byte."""
    with contextlib.suppress(OSError):
        connection.settimeout(5)
        for _ in range(size >> 16):
            connection.sendall(bytes((1 << 16) - 1))
    with contextlib.suppress(OSError):
        told = connection.recv(64)
        statuses[int(told.split()[1]) if told else "sent"] += 1
        return
    statuses["sent"] += 1


# Greedy


@pytest.fixture(scope="module")
def slow_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every label is scored for every text: milliseconds a text."""
    n_labels, dim = 100_000, 64
    rng = np.random.default_rng(0)
    weight, bias = rng.standard_normal((n_labels, dim), dtype=np.float32), np.zeros(n_labels, np.float32)
    parts = {
        "encoders": {"document": Bag(np.ones((len(handmade.COLOURS), dim), np.float32), [])},
        "scorers": [Classifier("document", weight, bias)],
    }
    large = Model(handmade.servable(**parts), LabelSet([f"label {i}" for i in range(n_labels)]), handmade.model().about)
    save_model(large, tmp_path_factory.mktemp("slow") / "model")
    return tmp_path_factory.getbasetemp() / "slow0" / "model"


def test_single_texts_do_not_wait_behind_bulk(slow_folder: Path) -> None:
    """Behind one bulk request a single text waits for a part of it; in its queue, for all of forty."""
    with served(slow_folder) as server:
        bulk = Bulk(server, 20)
        with bulk:
            wait_for(lambda: bulk.statuses.total() > 0)
            seconds = []
            for _ in range(10):
                started = time.perf_counter()
                reply = server.predict(text="blue", k=1)
                seconds.append(time.perf_counter() - started)
                assert reply.status == 200
        assert bulk.statuses[200] > 0
        assert set(bulk.statuses) <= {200, 503}
        assert np.median(seconds) < np.median(bulk.seconds) / 5, (seconds, bulk.seconds)


class Bulk:
    """Clients that send 200 texts at once, again and again."""

    def __init__(self, server: Server, n: int) -> None:
        self.statuses: Counter[int] = Counter()
        self.seconds: list[float] = []
        self._stop, self._server = threading.Event(), server
        self._threads = [threading.Thread(target=self._ask) for _ in range(n)]

    def _ask(self) -> None:
        while not self._stop.is_set():
            started = time.perf_counter()
            reply = self._server.predict(texts=200 * ["blue"], k=1)
            self.statuses[reply.status] += 1
            if reply.status == 200:
                self.seconds.append(time.perf_counter() - started)

    def __enter__(self) -> "Bulk":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


# Told to stop


@pytest.mark.parametrize("workers", [1, 2])
def test_no_connection_is_reset_when_the_server_is_told_to_stop_under_load(workers: int) -> None:
    with served(model_folder(), "--workers", str(workers)) as server:
        wait_for(lambda: sum(one["event"] == "start" for one in server.log()) == workers)
        outcomes: Counter[str] = Counter()
        threads = [threading.Thread(target=ask_until_refused, args=(server, outcomes)) for _ in range(16)]
        for thread in threads:
            thread.start()
        wait_for(lambda: outcomes["200"] > 200)
        server.process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join()
        assert server.process.wait(60) == 0
        assert set(outcomes) == {"200", "refused"}, outcomes
        assert outcomes["refused"] == 16  # each once, by a port that nobody listens on


def ask_until_refused(server: Server, outcomes: Counter[str]) -> None:
    with contextlib.closing(server.connect()) as connection:
        while True:
            try:
                connection.sock or connection.connect()
                outcomes[str(ask_on(connection, "POST", "/predict", {"text": "a dog", "k": 1}).status)] += 1
            except (OSError, http.client.HTTPException) as error:
                outcomes["refused" if isinstance(error, ConnectionRefusedError) else repr(error)] += 1
                return


@pytest.mark.skipif(sys.platform != "linux", reason="packet filters of Linux")
@pytest.mark.parametrize("workers", [1, 2])
def test_who_is_about_to_connect_when_the_server_is_told_to_stop_is_answered(workers: int) -> None:
    with served(model_folder(), "--workers", str(workers)) as server:
        wait_for(lambda: sum(one["event"] == "start" for one in server.log()) == workers)
        with deaf_client(("127.0.0.1", server.port)) as client:
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.5)  # longer than a handshake takes, shorter than the server waits for one
            hear_again(client)
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert read_all(client).startswith(b"HTTP/1.1 200 ")
        assert server.process.wait(60) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="packet filters of Linux")
def test_a_server_told_to_stop_does_not_wait_for_a_handshake_without_end() -> None:
    with served(model_folder()) as server, deaf_client(("127.0.0.1", server.port)):
        assert server.stop() == 0


# Who is asked


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST.:80", 200),
        ("my.localhost", 200),
        ("127.0.0.1:8080", 200),
        ("[::1]:8080", 200),
        ("192.0.2.7", 200),  # an address is no name that could be bound to another
        ("Friend.Example:99", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example", 421),
        ("friend.example.evil.example:8080", 421),
        ("[::1].evil.example", 421),
        ("", 421),
    ],
)
def test_only_known_hosts_are_answered(hosted: Server, host: str, status: int) -> None:
    for path in ("/", "/healthz", "/model"):
        reply = hosted.ask("GET", path, Host=host)
        assert reply.status == status
        assert reply.headers["x-content-type-options"] == "nosniff"
    if status != 200:
        assert "this server does not serve this host name" in reply.content["error"]
        assert "--allow-host" in reply.content["error"]


@pytest.fixture(scope="module")
def hosted() -> Iterator[Server]:
    with served(model_folder(), "--allow-host", "friend.example") as server:
        yield server


def test_a_request_of_http_1_0_needs_no_host(hosted: Server) -> None:
    with connected(hosted, sending=b"GET /healthz HTTP/1.0\r\n\r\n") as (old,):
        assert read_all(old).startswith(b"HTTP/1.1 200 ")


def test_every_answer_forbids_guessing_its_type(hosted: Server) -> None:
    for path in ("/", "/page/page.js", "/metrics", "/openapi.json", "/labels", "/nothing", "/readyz"):
        assert hosted.ask("GET", path).headers["x-content-type-options"] == "nosniff"
    assert hosted.ask("POST", "/predict", b"{").headers["x-content-type-options"] == "nosniff"
    with connected(hosted, sending=b"no http\r\n\r\n") as (strange,):
        told = read_all(strange)
    assert told.startswith(b"HTTP/1.1 400 ")
    assert b"x-content-type-options: nosniff" in told
    assert "error" in json.loads(told.partition(b"\r\n\r\n")[2])
