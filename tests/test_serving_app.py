"""The HTTP interface over a real server: what it answers, and what bad input gets."""

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from served import NAMES, Reply, Server, ask_on, model_folder, served

from xclearn.inference import Predictor
from xclearn.inference.neighbours import near_by_classifier


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with served(model_folder(), "--max-texts", "101", "--max-characters", "1000") as running:
        yield running
        assert running.process.poll() is None, "the server ended by itself"


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    return Predictor.load(model_folder())


def labels_of(reply: Reply) -> list[list[str]]:
    assert reply.status == 200, reply.content
    return [[one["label"] for one in row] for row in reply.content["predictions"]]


# Answers


def test_one_list_a_text_with_the_predictor_s_own_scores(server: Server, predictor: Predictor) -> None:
    texts = ["a dog", "two violins and a river", "", "nothing known here"]
    reply = server.predict(texts=texts, k=3)
    assert reply.content.keys() == {"predictions"}
    for found, expected in zip(reply.content["predictions"], predictor.suggest(texts, 3), strict=True):
        assert [one["label"] for one in found] == [one.label for one in expected]
        np.testing.assert_allclose([one["score"] for one in found], [one.score for one in expected], rtol=1e-5)
    alone = server.predict(text=texts[0], k=3).content["predictions"]
    assert [one["label"] for one in alone[0]] == [one["label"] for one in reply.content["predictions"][0]]


def test_the_planted_label_comes_first(server: Server) -> None:
    assert [row[0] for row in labels_of(server.predict(texts=[f"a {name.lower()}" for name in NAMES]))] == NAMES


def test_k_is_clipped_to_the_labels_there_are_and_five_by_default(server: Server) -> None:
    assert [len(row) for row in labels_of(server.predict(text="a dog", k=1000))] == [10]
    assert [len(row) for row in labels_of(server.predict(text="a dog"))] == [5]


def test_no_text_gives_no_list(server: Server) -> None:
    assert labels_of(server.predict(texts=[])) == []


def test_threshold_leaves_out_what_scores_lower(server: Server) -> None:
    found = server.predict(text="a dog", k=10).content["predictions"][0]
    threshold = found[3]["score"]
    assert server.predict(text="a dog", k=10, threshold=threshold).content["predictions"] == [found[:4]]


def test_exclude_gives_the_next_labels_instead(server: Server) -> None:
    ((first, second, third, *_),) = labels_of(server.predict(text="a dog", k=10))
    assert labels_of(server.predict(text="a dog", k=2, exclude=[first])) == [[second, third]]


def test_include_ranks_only_those_labels_with_their_own_scores(server: Server) -> None:
    found = server.predict(text="a dog", k=10).content["predictions"][0]
    score = {one["label"]: one["score"] for one in found}
    reply = server.predict(texts=["a dog", "a dog"], include=["Pear", "Dog", "Lake"], exclude=["Lake"])
    for row in reply.content["predictions"]:
        assert [one["label"] for one in row] == ["Dog", "Pear"]
        np.testing.assert_allclose([one["score"] for one in row], [score["Dog"], score["Pear"]], rtol=1e-5)
    assert labels_of(server.predict(text="a dog", include=["Dog"], exclude=["Dog"])) == [[]]


def test_labels_are_found_by_a_part_of_name_or_text(server: Server) -> None:
    reply = server.ask("GET", "/labels?q=WHATEVER%20is%20a%20p&limit=2").content
    assert reply == {
        "labels": [
            {"label": "Plane", "text": "plane: whatever is a plane", "count": 5},
            {"label": "Pear", "text": "pear: whatever is a pear", "count": 5},
        ],
        "more": True,
        "total": 3,
    }
    assert server.ask("GET", "/labels?q=nonsense").content == {"labels": [], "more": False, "total": 0}


def test_labels_near_to_one_are_those_with_the_likest_classifiers(server: Server, predictor: Predictor) -> None:
    reply = server.ask("GET", "/labels?near=Dog&limit=3").content
    near = near_by_classifier(predictor.model.servable, NAMES.index("Dog"), 3)
    assert near is not None
    assert [one["label"] for one in reply["labels"]] == [NAMES[label] for label, _ in near]
    refused = server.ask("GET", "/labels?near=nonsense")
    assert (refused.status, refused.content["error"].split(";")[0]) == (422, "near: no such label")


def test_an_explanation_sums_to_the_logit_of_the_score(server: Server) -> None:
    ((found, *_),) = server.predict(text="a small dog is a thing", k=1).content["predictions"]
    reply = server.ask("POST", "/explain", {"text": "a small dog is a thing", "labels": [found["label"]]})
    (told,) = reply.content["explanations"]
    assert (told["label"], told["text"], told["exact"]) == ("Dog", "dog: whatever is a dog", True)
    logit = np.log(found["score"] / (1 - found["score"]))
    assert sum(one["part"] for one in told["tokens"]) + told["rest"] == pytest.approx(logit, abs=1e-4)
    assert told["tokens"][0]["token"] == "dog"
    assert told["count"] == 5
    assert reply.content["unknown"] == ["small"]
    assert {one["token"] for one in told["tokens"]} == {"a", "dog", "is", "thing"}


def test_an_explanation_holds_the_nearest_training_texts_of_the_label(server: Server) -> None:
    reply = server.ask("POST", "/explain", {"text": "dog number 3 is a thing", "labels": ["Dog", "Cat"]})
    dog, cat = (one["nearest"] for one in reply.content["explanations"])
    assert dog[0] == {"text": "dog number 3 is a thing", "cosine": pytest.approx(1, abs=1e-5)}
    assert [len(dog), len(cat)] == [3, 3]
    assert all(one["text"].startswith("cat number") for one in cat)
    assert 1 > dog[1]["cosine"] >= dog[2]["cosine"] > cat[0]["cosine"]


def test_the_model_tells_what_training_recorded(server: Server) -> None:
    found = server.ask("GET", "/model").content
    assert (found["n_labels"], found["about"]["algorithm"]) == (10, "one_vs_all")
    assert found["about"]["metrics"]["test"] == {"P@1": 91.5, "P@3": 33.25, "R@10": 100.0, "R@20": None}
    assert found["limits"]["max_texts"] == 101
    assert found["examples"] == [f"{word.lower()} number 0 is a thing" for word in NAMES[:3]]


def test_probes_answer(server: Server) -> None:
    assert server.ask("GET", "/healthz").content == {"status": "alive"}
    version = server.ask("GET", "/model").content["version"]
    assert server.ask("GET", "/readyz").content == {"status": "ready", "version": version, "stale": False}


def test_metrics_count_what_was_asked(server: Server) -> None:
    def count() -> float:
        lines = server.ask("GET", "/metrics").content.splitlines()
        values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return float(values.get('xclearn_requests_total{path="/predict",status="422"}', 0))

    before = count()
    server.predict(text="a dog", k=0)
    server.predict(text="a dog", k=0)
    assert count() == before + 2


def test_no_answer_waits_for_an_acknowledgement(server: Server) -> None:
    """With Nagle's algorithm on, each takes the 40 ms that the other side waits before it acknowledges."""
    with contextlib.closing(server.connect()) as connection:
        seconds = []
        for _ in range(30):
            started = time.perf_counter()
            ask_on(connection, "GET", "/healthz")
            seconds.append(time.perf_counter() - started)
    assert min(seconds[1:]) < 0.03


def test_the_interface_is_documented(server: Server) -> None:
    paths = server.ask("GET", "/openapi.json").content["paths"]
    assert set(paths) == {"/predict", "/explain", "/labels", "/model", "/healthz", "/readyz", "/metrics"}


def test_pages_of_other_hosts_may_not_ask(server: Server) -> None:
    reply = server.ask("GET", "/model", Origin="https://elsewhere.example")
    assert not any(name.startswith("access-control") for name in reply.headers)


# Bad input: our sentence, and the next request is served


def refused(server: Server, status: int, sentence: str, body: Any, path: str = "/predict", **headers: str) -> None:
    reply = server.ask("POST", path, body, **headers)
    assert (reply.status, list(reply.content)) == (status, ["error"])
    assert sentence in reply.content["error"]
    assert labels_of(server.predict(text="a cat", k=1)) == [["Cat"]]


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "body, character 0: the body is not JSON"),
        (b"{", "the body is not JSON"),
        (b'{"text": "a\0b"}', "the body is not JSON"),
        (b'{"text": "a"} trailing', "the body is not JSON"),
        (b"[1, 2]", "body: input should be a valid dictionary"),
        (b"null", "body: "),
        (b'"text"', "body: "),
        (b'{"text": 5}', "text: input should be a valid string; got 5."),
        (b'{"text": ["a"]}', "text: "),
        (b'{"texts": "a"}', "texts: "),
        (b'{"texts": ["a", null]}', "texts[1]: "),
        (b'{"text": "a", "texts": ["b"]}', "body: give either text or texts"),
        (b"{}", "body: give either text or texts"),
        (b'{"text": "a", "k": "5"}', "k: "),
        (b'{"text": "a", "k": true}', "k: "),
        (b'{"text": "a", "k": 1.5}', "k: "),
        (b'{"text": "a", "k": 0}', "k: out of range; got 0; allowed: 1 to 1,000."),
        (b'{"text": "a", "k": -3}', "k: out of range; got -3"),
        (b'{"text": "a", "k": 1000000}', "k: out of range; got 1000000"),
        (b'{"text": "a", "k": 1' + 5000 * b"0" + b"}", "body: the body is not JSON"),
        (b'{"text": "a", "threshold": "high"}', "threshold: "),
        (b'{"text": "a", "threshold": null}', "threshold: "),
        (b'{"text": "a", "threshold": NaN}', "threshold: "),
        (b'{"text": "a", "threshold": 1e999}', "threshold: "),
        (b'{"text": "a", "tresh": 1}', "tresh: extra inputs are not permitted"),
        (b'{"text": "a", "\\ud800": 1}', "body: "),
        (b'{"text": "a\\u0000b"}', "texts[0], character 1: the text contains a NUL or a lone surrogate"),
        (b'{"text": "a\\ud800b"}', "texts[0], character 1: the text contains a NUL or a lone surrogate"),
        (b'{"texts": ["fine", "\\udfff"]}', "texts[1], character 0: "),
        (b'{"text": "' + 1001 * b"a" + b'"}', "texts[0]: the text is too long; got 1001"),
        (b'{"text": "a", "include": ["Dogs"]}', "include: no such label; got 'Dogs'."),
        (b'{"text": "a", "exclude": ["\\ud800"]}', "exclude: no such label"),
        (b'{"text": "a", "include": [7]}', "include[0]: "),
        (100_000 * b"[", "body: the body is not JSON"),
        (b'{"text": "\xff\xfe"}', "body: the body is not JSON"),
    ],
)
def test_what_cannot_be_read_is_told(server: Server, body: bytes, sentence: str) -> None:
    reply = server.ask("POST", "/predict", body)
    assert reply.status in (400, 422), reply
    refused(server, reply.status, sentence, body)


def test_too_many_texts_are_refused(server: Server) -> None:
    sentence = "texts: too many texts in one request; got 10000; allowed: at most 101. Send them in several requests."
    refused(server, 422, sentence, {"texts": 10_000 * ["a"]})


def test_too_many_labels_are_refused(server: Server) -> None:
    sentence = "k: too many labels in one response; got 1000; allowed: at most 100,000 labels for all texts."
    refused(server, 422, sentence, {"texts": 101 * ["a"], "k": 1000})
    refused(server, 422, "include, exclude: too many labels", {"text": "a", "exclude": 1001 * ["Dog"]})
    refused(server, 422, "labels: too many labels", {"text": "a", "labels": 1001 * ["Dog"]}, "/explain")


def test_a_body_of_100_megabytes_is_refused(server: Server) -> None:
    refused(server, 413, "body: the body is too large; allowed: at most 8,388,608 bytes.", bytes(100_000_000))


def test_a_body_of_unknown_length_is_refused_when_it_is_too_large(server: Server) -> None:
    connection = server.connect()
    chunks = (bytes(1 << 20) for _ in range(20))
    connection.request("POST", "/predict", chunks, {"Content-Type": "application/json"}, encode_chunked=True)
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read()).keys()) == (413, {"error"})


def test_another_content_type_is_named(server: Server) -> None:
    sentence = "Send Content-Type: application/json."
    refused(server, 422, sentence, b'{"text": "a dog"}', **{"Content-Type": "text/plain"})


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/page/../app.py", 404),
        ("GET", "/page/%2e%2e/app.py", 404),
        ("PUT", "/predict", 405),
        ("GET", "/predict", 405),
        ("GET", "/labels?limit=0", 422),
        ("GET", "/labels?limit=many", 422),
        ("GET", "/labels?q=" + 201 * "a", 422),
    ],
)
def test_an_unknown_path_method_or_parameter_is_told(server: Server, method: str, path: str, status: int) -> None:
    reply = server.ask(method, path)
    assert (reply.status, list(reply.content)) == (status, ["error"])


@pytest.mark.parametrize("query", ["%00", "%ff%fe", "%ed%a0%80", "%F0%9F%90%95", "\\", "%0A", ".*"])
def test_any_search_is_answered(server: Server, query: str) -> None:
    assert server.ask("GET", f"/labels?q={query}").status == 200
