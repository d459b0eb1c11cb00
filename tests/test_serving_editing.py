"""`POST /labels` over a real server: in the folder and in all workers, behind the token, whole or not at all."""

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from served import Reply, Server, model_folder, served, wait_for
from test_serving_thresholds import noisy

from xclearn import algorithms
from xclearn.inference import load_model

TOKEN = "a-token-of-many-characters"
TEXTS = [f"own{i} noise{i}" for i in range(8)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tree") / "model"
    algorithms.find("label_tree")(label_text_weight=0.15).fit(noisy(), device="cpu").save(path)
    return path


@pytest.fixture(scope="module", params=[1, 2])
def server(request: Any, trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = shutil.copytree(trained, tmp_path_factory.mktemp("served") / "model")
    limits = ("--timeout", "120")  # how long a change takes on a busy machine is not what is tested
    with served(folder, "--workers", str(request.param), *limits, XCLEARN_TOKEN=TOKEN) as running:
        running.folder = folder  # type: ignore[attr-defined]
        yield running


def ask(server: Server, method: str, path: str, body: Any = None) -> Reply:
    return server.ask(method, path, body, Authorization=f"Bearer {TOKEN}")


def names(server: Server) -> set[str]:
    labels = ask(server, "GET", "/labels?q=brand&limit=100").content["labels"]
    return {one["label"] for one in labels}


def test_an_added_label_is_answered_by_every_worker_and_stands_in_the_folder(server: Server) -> None:
    before = ask(server, "GET", "/model").content
    added = [{"label": f"brand {i}", "text": f"noise{i + 100} noise{i + 101}"} for i in range(3)]
    reply = ask(server, "POST", "/labels", {"add": added})
    assert reply.status == 200, reply.content
    assert reply.content["in_service"]
    assert reply.content["n_labels"] == before["n_labels"] + 3
    assert list(load_model(server.folder).labels.names[-3:]) == ["brand 0", "brand 1", "brand 2"]  # type: ignore[attr-defined]
    wait_for(lambda: all(names(server) == {"brand 0", "brand 1", "brand 2"} for _ in range(20)))
    asked = [ask(server, "POST", "/predict", {"text": "noise102 noise103", "k": 3}).content for _ in range(20)]
    assert all("brand 2" in [one["label"] for one in found["predictions"][0]] for found in asked)
    after = ask(server, "GET", "/model").content
    assert (after["version"], after["stale"]) == (reply.content["version"], False)
    gone = ask(server, "POST", "/labels", {"remove": ["brand 0", "brand 1", "brand 2"]})
    assert gone.content["n_labels"] == before["n_labels"]
    wait_for(lambda: all(names(server) == set() for _ in range(20)))


def test_changes_at_once_are_made_one_after_the_other(server: Server) -> None:
    before = ask(server, "GET", "/model").content["n_labels"]
    bodies = [{"add": [{"label": f"brand x{i}", "text": f"noise{i}"}]} for i in range(4)]
    with ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(lambda body: ask(server, "POST", "/labels", body), bodies))
    assert [reply.status for reply in replies] == [200] * 4
    assert sorted(reply.content["n_labels"] for reply in replies) == [before + i for i in range(1, 5)]
    wait_for(lambda: all(len(names(server)) == 4 for _ in range(20)))
    ask(server, "POST", "/labels", {"remove": [f"brand x{i}" for i in range(4)]})


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"add": [{"label": "label 3", "text": "again"}]}, "the model already has this label"),
        ({"add": [{"label": "new", "text": "one"}, {"label": "new", "text": "two"}]}, "already has this label"),
        ({"remove": ["label 3", "no such"]}, "no such label"),
        ({"add": [{"label": "new", "text": " "}]}, "needs a text"),
        ({"add": [{"label": "new"}]}, "add[0][text]"),
        ({"add": [{"label": "new", "text": "x", "kind": "y"}]}, "add[0][kind]"),
        ({}, "no labels are given"),
        ({"remove": ["x"] * 2000}, "too many labels"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_changes(server: Server, body: Any, said: str) -> None:
    before = ask(server, "GET", "/model").content["version"]
    reply = ask(server, "POST", "/labels", body)
    assert reply.status == 422
    assert said in reply.content["error"]
    assert ask(server, "GET", "/model").content["version"] == before


def test_nobody_without_the_token_changes_a_label(server: Server) -> None:
    assert server.ask("POST", "/labels", {"remove": ["label 3"]}).status == 401


def test_a_server_without_a_token_lets_nobody_change_its_labels() -> None:
    with served(model_folder()) as plain:
        reply = plain.ask("POST", "/labels", {"remove": ["Dog"]})
        assert reply.status == 403
        assert "on a server with a token" in reply.content["error"]
        assert plain.ask("GET", "/labels?q=dog").content["labels"][0]["label"] == "Dog"
