"""Thresholds and the dial between head and tail over a real server, beside what the predictor says."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from served import Server, model_folder, served
from test_training_calibrating import noisy

from xclearn import Threshold, algorithms
from xclearn.inference import Predictor

TEXTS = list(noisy().split("test").documents[:12])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("calibrated") / "model"
    algorithms.find("label_tree")(calibrate=True).fit(noisy(), device="cpu").save(path)
    return path


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with served(folder) as running:
        yield running


@pytest.fixture(scope="module")
def predictor(folder: Path) -> Predictor:
    return Predictor.load(folder)


def rounded(rows: Any) -> list[list[tuple[str, float]]]:
    return [[(one["label"], round(one["score"], 5)) for one in row] for row in rows]


@pytest.mark.parametrize(
    ("asked", "threshold"),
    [
        ({"target_precision": 0.6}, Threshold(target_precision=0.6)),
        ({"target_precision": 0.6, "by_frequency": True}, Threshold(target_precision=0.6, by_frequency=True)),
        ({"best_f1": True}, Threshold(best_f1=True)),
        ({"threshold": 0.3, "best_f1": True}, Threshold(0.3, best_f1=True)),
        ({"tail": 0.7}, Threshold()),
        ({"tail": 1.0, "target_precision": 0.6}, Threshold(target_precision=0.6)),
    ],
)
def test_the_server_gives_what_the_predictor_gives(
    server: Server, predictor: Predictor, asked: dict[str, Any], threshold: Threshold
) -> None:
    reply = server.predict(texts=TEXTS, k=5, **asked)
    assert reply.status == 200, reply.content
    expected = predictor.suggest(TEXTS, 5, threshold=threshold, tail=asked.get("tail"))
    assert rounded(reply.content["predictions"]) == rounded([[one._asdict() for one in row] for row in expected])


def test_questions_of_different_tails_at_once(server: Server, predictor: Predictor) -> None:
    """They may be joined into one call: each gets its own order."""
    tails = [None, 0.0, 0.5, 1.0] * 10
    expected = {
        tail: rounded([[one._asdict() for one in predictor.suggest(TEXTS[:1], 8, tail=tail)[0]]]) for tail in tails
    }
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda tail: server.predict(text=TEXTS[0], k=8, tail=tail).content["predictions"], tails))
    assert [rounded(rows) for rows in found] == [expected[tail] for tail in tails]


def test_among_chosen_labels_the_order_is_the_tail_s_too(server: Server, predictor: Predictor) -> None:
    names = predictor.labels.names[:40]
    ((*found,),) = server.predict(text=TEXTS[0], k=40, include=list(names), tail=1.0).content["predictions"]
    every = predictor.suggest(TEXTS[:1], 60, tail=1.0)[0]
    assert [one["label"] for one in found] == [one.label for one in every if one.label in set(names)]


def test_the_model_says_what_can_be_asked(server: Server) -> None:
    found = server.ask("GET", "/model").content
    assert (found["thresholds"], found["tail"]) == (True, 0.0)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"target_precision": 0.5, "best_f1": True}, "Give one of them"),
        ({"by_frequency": True}, "target precision too"),
        ({"target_precision": 1.5}, "less than or equal to 1"),
        ({"tail": -0.1}, "greater than or equal to 0"),
        ({"tail": "much"}, "valid number"),
    ],
)
def test_what_makes_no_sense_is_refused(server: Server, asked: dict[str, Any], said: str) -> None:
    reply = server.predict(text="own1", **asked)
    assert reply.status == 422
    assert said in reply.content["error"]


def test_a_model_without_thresholds_refuses_them() -> None:
    with served(model_folder()) as plain:
        for asked in ({"target_precision": 0.9}, {"best_f1": True}, {"tail": 0.5}):
            reply = plain.predict(text="a dog", **asked)
            assert reply.status == 422
            assert "the model has no" in reply.content["error"]
        found = plain.ask("GET", "/model").content
        assert (found["thresholds"], found["tail"]) == (False, None)
