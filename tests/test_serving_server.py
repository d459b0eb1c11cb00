"""The life of a server: what it starts with, what it says, how it changes its model, and how it ends."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import handmade
import numpy as np
import psutil
import pytest
from planted import planted
from served import XC, Server, ask_on, model_folder, served, wait_for

from xclearn import OneVsAll
from xclearn.data import LabelSet
from xclearn.inference import Model, load_model, save_model
from xclearn.inference.components import Bag, Classifier

TOKEN = "a-token-of-many-characters"


def start_and_end(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`xc serve` that is expected to end by itself."""
    command = [*XC, "serve", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **environment}
    )


# Starting


def test_a_server_says_that_it_verified_and_listens_only_on_loopback() -> None:
    with served(model_folder()) as server:
        assert server.said[0].startswith(f"verified: every byte of {model_folder()} hashed in ")
        assert server.said[0].endswith(" s, 10 labels")
        listening = [c.laddr for c in psutil.Process(server.process.pid).net_connections() if c.status == "LISTEN"]
        assert listening == [("127.0.0.1", server.port)]


@pytest.mark.parametrize("name", ["model.json", "tensors.safetensors", "README.md"])
def test_a_model_with_one_byte_changed_does_not_start(tmp_path: Path, name: str) -> None:
    folder = shutil.copytree(model_folder(), tmp_path / "model")
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    ended = start_and_end(str(folder), "--port", "0")
    assert ended.returncode == 2
    assert ended.stderr.startswith("Error: ")
    assert name in ended.stderr
    assert "serving" not in ended.stderr


def test_a_model_that_does_not_read_texts_does_not_start(tmp_path: Path) -> None:
    OneVsAll(epochs=1).fit(planted("sparse", n_labels=5), device="cpu").save(tmp_path / "model")
    ended = start_and_end(str(tmp_path / "model"), "--port", "0")
    assert (ended.returncode, "the server needs a model for texts; got 'sparse features'" in ended.stderr) == (2, True)


def test_without_the_extra_the_command_to_install_it_is_told() -> None:
    program = "import sys; sys.modules['fastapi'] = None; from xclearn.cli.main import main; main()"
    command = [sys.executable, "-c", program, "serve", str(model_folder())]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == (
        "Error: xc serve needs fastapi, which is not installed. Run pip install 'xclearn[serve]'.\n"
    )


def test_a_port_in_use_and_wrong_settings_are_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = start_and_end(str(model_folder()), "--port", str(taken.getsockname()[1]))
        assert (ended.returncode, "cannot listen here" in ended.stderr) == (2, True)
    assert "--port: " in start_and_end(str(model_folder()), "--port", "70000").stderr
    told = start_and_end(str(model_folder()), "--host", "192.0.2.1").stderr  # an address of no machine
    assert "warning: anyone who can reach 192.0.2.1 has access; set a token by --token-file or XCLEARN_TOKEN" in told
    assert "--workers: must be above 0; got 0." in start_and_end(str(model_folder()), "--workers", "0").stderr
    assert "XCLEARN_TOKEN: the token is invalid" in start_and_end(str(model_folder()), XCLEARN_TOKEN="short").stderr


# Who may ask, and how long


def test_a_token_guards_all_but_the_page_and_the_probes(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    options = ("--token-file", str(tmp_path / "token"), "--cors-origin", "https://friend.example")
    with served(model_folder(), *options, XCLEARN_TOKEN="another-token-not-used") as server:
        question, right = {"text": "a dog", "k": 1}, {"Authorization": f"Bearer {TOKEN}"}
        for path in ("/", "/healthz", "/readyz", "/page/page.js", "/page/page.css", "/page/icon.svg"):
            assert server.ask("GET", path).status == 200
        for path in ("/model", "/labels", "/metrics", "/openapi.json"):
            assert (server.ask("GET", path).status, server.ask("GET", path, **right).status) == (401, 200)
        for wrong in (
            "",
            "Bearer",
            f"Bearer {TOKEN}x",
            f"Basic {TOKEN}",
            "Bearer another-token-not-used",
            "Bearer \xe9",
        ):
            reply = server.ask("POST", "/predict", question, Authorization=wrong)
            assert (reply.status, reply.headers["www-authenticate"]) == (401, "Bearer")
            assert reply.content == {"error": "Authorization: this server requires a token; allowed: Bearer TOKEN."}
        assert server.ask("POST", "/predict", question, **right).content["predictions"][0][0]["label"] == "Dog"
        asked_by_friend = server.ask(
            "OPTIONS",
            "/predict",
            **{"Origin": "https://friend.example", "Access-Control-Request-Method": "POST"},
        )
        assert asked_by_friend.headers["access-control-allow-origin"] == "https://friend.example"
        reply = server.ask("GET", "/model", Origin="https://other.example", **right)
        assert "access-control-allow-origin" not in reply.headers
        server.stop()
        assert TOKEN not in server.log_file.read_text() + "".join(server.said)


def test_a_body_that_does_not_come_in_time_is_refused() -> None:
    with served(model_folder(), "--timeout", "1") as server:
        with contextlib.closing(server.connect()) as slow:
            slow.putrequest("POST", "/predict")
            slow.putheader("Content-Type", "application/json")
            slow.putheader("Content-Length", "100")
            slow.endheaders(b'{"text": ')
            answer = slow.getresponse()
            said = "body: the body did not arrive in time; allowed: 1 s."
            assert (answer.status, json.loads(answer.read())["error"]) == (408, said)
        assert server.predict(text="a dog", k=1).status == 200


def test_what_takes_too_long_is_ended_and_the_next_request_served(tmp_path: Path) -> None:
    n_labels, dim = 200_000, 64  # 25.6 GFLOP for a thousand texts: seconds of a core, where 0.2 are allowed
    rng = np.random.default_rng(0)
    weight, bias = rng.standard_normal((n_labels, dim), dtype=np.float32), np.zeros(n_labels, np.float32)
    parts = {
        "encoders": {"document": Bag(np.ones((len(handmade.COLOURS), dim), np.float32), [])},
        "scorers": [Classifier("document", weight, bias)],
    }
    about = handmade.model().about
    large = Model(handmade.servable(**parts), LabelSet([f"label {i}" for i in range(n_labels)]), about)
    save_model(large, tmp_path / "large")
    with served(tmp_path / "large", "--timeout", "0.2") as server:
        reply = server.predict(texts=1000 * ["blue"])
        said = {"error": "no response within 0.2 s. Try again later, or with a smaller request."}
        assert (reply.status, reply.content) == (503, said)
        wait_for(lambda: server.predict(text="blue", k=1).status == 200)


# The log


def test_the_log_is_json_and_holds_no_text() -> None:
    with served(model_folder()) as server:
        server.predict(texts=["a secret dog", "a cat"])
        server.ask("GET", "/labels?q=secretcat")
        server.ask("POST", "/predict", b"{")
        assert server.stop() == 0
        events = server.log()
        assert [one["event"] for one in (events[0], events[-1])] == ["start", "stop"]
        assert "secret" not in server.log_file.read_text()
        requests = [one for one in events if one["event"] == "request" and one["path"] != "/readyz"]
        assert [(one["method"], one["path"], one["status"], one.get("texts")) for one in requests] == [
            ("POST", "/predict", 200, 2),
            ("GET", "/labels", 200, None),
            ("POST", "/predict", 422, None),
        ]
        assert all(one["ms"] > 0 and one["client"] == "127.0.0.1" and one["time"] for one in requests)


# Ending and reloading


def test_a_request_in_flight_is_finished_when_told_to_stop() -> None:
    with served(model_folder()) as server, contextlib.closing(server.connect()) as connection:
        body = b'{"text": "a dog", "k": 1}'
        connection.putrequest("POST", "/predict")
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body[:9])
        wait_for(lambda: in_flight(server) == 2)  # this one and the one that asks
        server.process.send_signal(signal.SIGTERM)
        wait_for(lambda: not accepts(server))
        assert server.process.poll() is None
        connection.send(body[9:])
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())["predictions"][0][0]["label"]) == (200, "Dog")
        assert server.process.wait(60) == 0
        assert server.log()[-1]["event"] == "stop"


def in_flight(server: Server) -> float:
    lines = server.ask("GET", "/metrics").content.splitlines()
    return float(next(line for line in lines if line.startswith("xclearn_requests_in_flight ")).split()[1])


def accepts(server: Server) -> bool:
    with contextlib.closing(server.connect()) as connection:
        try:
            connection.connect()
        except OSError:
            return False
        return True


class Fire:
    """Threads that ask without a pause, each on one connection, until told to stop."""

    def __init__(self, server: Server, n_threads: int) -> None:
        self.statuses: Counter[Any] = Counter()
        self._stop, self._server = threading.Event(), server
        self._threads = [threading.Thread(target=self._ask) for _ in range(n_threads)]

    def _ask(self) -> None:
        with contextlib.closing(self._server.connect()) as connection:
            while not self._stop.is_set():
                try:
                    reply = ask_on(connection, "POST", "/predict", {"texts": ["a dog", "a cat"], "k": 1})
                    found = [row[0]["label"] for row in reply.content["predictions"]]
                    self.statuses[reply.status if found == ["Dog", "Cat"] else str(found)] += 1
                except Exception as error:
                    self.statuses[repr(error)] += 1
                    return

    def __enter__(self) -> "Fire":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def replace_model(folder: Path, note: str) -> None:
    model = load_model(folder)
    model.about["note"] = note
    save_model(model, folder, replace=True)


def note_of(server: Server) -> str | None:
    return server.ask("GET", "/model").content["about"].get("note")


def test_a_new_model_is_taken_without_dropping_a_request_and_a_bad_one_is_not(tmp_path: Path) -> None:
    folder = shutil.copytree(model_folder(), tmp_path / "model")
    with served(folder) as server:
        with Fire(server, 4) as fire:
            for note in ("second", "third"):
                replace_model(folder, note)
                assert note_of(server) != note
                server.process.send_signal(signal.SIGHUP)
                wait_for(lambda note=note: note_of(server) == note)
                answered = fire.statuses.total()
                wait_for(lambda answered=answered: fire.statuses.total() > answered + 8)
            (folder / "README.md").write_text("changed")
            server.process.send_signal(signal.SIGHUP)
            metric = 'xclearn_reloads_total{result="refused"} 1'
            wait_for(lambda: metric in server.ask("GET", "/metrics").content)
        assert list(fire.statuses) == [200]
        assert note_of(server) == "third"
        assert server.stop() == 0
        assert [one["event"] for one in server.log() if "reload" in one["event"]] == 2 * ["reload"] + ["reload refused"]


def test_workers_share_one_model_and_one_count_and_one_that_dies_is_replaced(tmp_path: Path) -> None:
    folder = shutil.copytree(model_folder(), tmp_path / "model")
    with served(folder, "--workers", "2") as server:

        def workers() -> set[int]:
            return {one["pid"] for one in server.log() if one["event"] == "start"}

        wait_for(lambda: len(workers()) == 2)
        first, second = workers()
        with Fire(server, 4):
            wait_for(lambda: {one["pid"] for one in server.log() if one["event"] == "request"} == {first, second})

        def counted() -> str:
            asked = sum(one["event"] == "request" and one["path"] == "/predict" for one in server.log())
            return f'xclearn_requests_total{{path="/predict",status="200"}} {asked}\n'

        wait_for(lambda: counted() in server.ask("GET", "/metrics").content)  # lines come in a moment

        replace_model(folder, "second")
        server.process.send_signal(signal.SIGHUP)
        wait_for(lambda: {one["pid"] for one in server.log() if one["event"] == "reload"} == {first, second})

        os.kill(first, signal.SIGKILL)
        wait_for(lambda: len(workers()) == 3)
        wait_for(lambda: any(f"worker {first} died with exit code -9" in line for line in server.said))
        assert server.predict(text="a dog", k=1).status == 200
        alive = psutil.Process(server.process.pid).children(recursive=True)
        assert server.stop(signal.SIGINT) == 0
        assert psutil.wait_procs(alive, timeout=30)[1] == []


def test_workers_end_when_their_supervisor_is_killed() -> None:
    with served(model_folder(), "--workers", "2") as server:
        wait_for(lambda: len([one for one in server.log() if one["event"] == "start"]) == 2)
        alive = psutil.Process(server.process.pid).children(recursive=True)
        server.process.kill()
        assert psutil.wait_procs(alive, timeout=30)[1] == []
