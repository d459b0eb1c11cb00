"""`xc tune`: trials on held-out documents, in a file from which the same call goes on."""

import contextlib
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted import planted
from typer.testing import CliRunner

from xclearn import algorithms, config
from xclearn.algorithms import algorithm_names
from xclearn.cli.main import app
from xclearn.config import Span
from xclearn.data import Dataset, LabelSet
from xclearn.data.near_copies import comparable_rows, near_pairs
from xclearn.data.write import write_dataset
from xclearn.errors import ConfigError, XclearnError

pytest.importorskip("optuna", reason="xc tune needs optuna")

from xclearn.integrations.tuning import Trial, TuningTask, best_of, held_out, spaces_of, tune

LINEAR = TuningTask("sparse_one_vs_all", {"epochs": 3}, "P@1", 0, "cpu")
DEEP = TuningTask("one_vs_all", {"epochs": 5, "embedding_dim": 16}, "nDCG@5", 0, "cpu")


@pytest.fixture(scope="module")
def data() -> Dataset:
    return planted(n_labels=12, train=12)


def plain(trials: list[Trial]) -> list[tuple[int, str, float | None, dict[str, Any]]]:
    return [(one.number, one.state, one.score, dict(one.settings)) for one in trials]


@pytest.mark.parametrize("name", algorithm_names())
def test_every_algorithm_declares_where_its_settings_are_looked_for(name: str) -> None:
    kind = algorithms.find(name)
    spaces = config.search_spaces(kind)
    assert spaces
    for setting, space in spaces.items():
        for value in space.choices or (space.low, space.high):
            config.build(kind, {setting: value})  # a value that the setting refuses would end the search
        assert space.choices or space.low < space.high
        default = getattr(kind(), setting)
        if isinstance(default, int | float):
            assert default in space.choices or space.low <= default <= space.high


def test_a_setting_that_is_given_is_not_looked_for(data: Dataset) -> None:
    assert set(spaces_of(replace(LINEAR, fixed={"cost": 1.0}), data)) == {"threshold", "label_text_weight"}
    everything = {"cost": 1.0, "threshold": 0.1, "label_text_weight": 0.1}
    with pytest.raises(ConfigError, match="there is nothing to search"):
        spaces_of(replace(LINEAR, fixed=everything), data)


@pytest.mark.parametrize("name", ["label_tree", "sparse_one_vs_all"])
def test_the_weight_of_label_texts_is_looked_for_only_where_there_are_texts(
    name: str, data: Dataset, tmp_path: Path
) -> None:
    task = TuningTask(name, {"epochs": 1}, "P@1", 0, "cpu")
    without = replace(data, labels=LabelSet(data.labels.names))
    of_features = replace(without, labels=LabelSet(data.labels.names, np.ones((len(data.labels), 2))))
    assert "label_text_weight" in spaces_of(task, data)
    assert spaces_of(task, without) == spaces_of(task, of_features)
    assert set(spaces_of(task, data)) - set(spaces_of(task, without)) == {"label_text_weight"}
    assert {one.state for one in tune(task, without, tmp_path / "study", 3)} == {"complete"}


def test_trials_are_measured_on_what_is_held_out_of_train(data: Dataset) -> None:
    cut = held_out(data)
    assert cut.test is None
    assert cut.dev is not None
    assert len(cut.dev) + len(cut.train) == len(data.train)
    assert not set(cut.dev.documents) & set(cut.train.documents)
    rows = comparable_rows([*cut.dev.documents, *cut.train.documents])
    assert rows is not None
    assert not any(len(pairs.rows) for pairs in near_pairs(rows[: len(cut.dev)], rows[len(cut.dev) :]))
    given = replace(data, dev=data.test)
    assert held_out(given).dev is data.test
    assert len(held_out(given).train) == len(data.train)


def test_test_documents_change_nothing(data: Dataset, tmp_path: Path) -> None:
    broken = replace(data, test=replace(data.split("test"), documents=["" for _ in data.split("test").documents]))
    assert plain(tune(LINEAR, data, tmp_path / "a", 2)) == plain(tune(LINEAR, broken, tmp_path / "b", 2))


def test_the_same_call_goes_on_and_ends_as_one_that_was_not_stopped(data: Dataset, tmp_path: Path) -> None:
    whole = tune(LINEAR, data, tmp_path / "whole", 4)
    assert [one.number for one in whole] == [-1, 0, 1, 2, 3]
    assert plain(tune(LINEAR, data, tmp_path / "parts", 2)) == plain(whole)[:3]
    assert plain(tune(LINEAR, data, tmp_path / "parts", 4)) == plain(whole)
    assert plain(tune(LINEAR, data, tmp_path / "parts", 4)) == plain(whole)  # nothing is left to do


def test_a_trial_that_was_killed_is_tried_again(data: Dataset, tmp_path: Path) -> None:
    @contextlib.contextmanager
    def killed(name: str, _: Any) -> Iterator[Any]:
        if name == "trial 1":
            raise KeyboardInterrupt
        yield lambda _: None

    with pytest.raises(KeyboardInterrupt):
        tune(LINEAR, data, tmp_path / "study", 3, killed)
    found = tune(LINEAR, data, tmp_path / "study", 3)
    complete = [one for one in found if one.state == "complete"]
    assert plain(complete)[:2] == plain(tune(LINEAR, data, tmp_path / "whole", 1))
    assert len(found) == 4


def test_a_study_of_something_else_is_refused(data: Dataset, tmp_path: Path) -> None:
    tune(LINEAR, data, tmp_path / "study", 1)
    for other, its_data in (
        (replace(LINEAR, metric="P@3"), data),
        (replace(LINEAR, fixed={}), data),
        (LINEAR, planted(n_labels=12, train=11)),
    ):
        with pytest.raises(ConfigError, match="the study has other data, settings or search spaces"):
            tune(other, its_data, tmp_path / "study", 2)


def test_trials_that_fall_behind_are_ended(tmp_path: Path) -> None:
    epochs: dict[str, int] = {}

    @contextlib.contextmanager
    def watch(name: str, _: Any) -> Iterator[Any]:
        yield lambda event: epochs.update({name: event["epoch"]} if event["event"] == "epoch" else {})

    found = tune(DEEP, planted(n_labels=40, train=6), tmp_path / "study", 9, watch)
    pruned = [one for one in found if one.state == "pruned"]
    assert pruned
    assert all(one.score is None and epochs[f"trial {one.number}"] < 5 for one in pruned)
    assert all(epochs[f"trial {one.number}"] == 5 for one in found[1:] if one.state == "complete")
    assert best_of(found).score == max(one.score for one in found if one.score is not None)


def test_a_trial_that_cannot_be_made_is_told_and_the_search_goes_on(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from xclearn.algorithms.sparse_one_vs_all import SparseOneVsAll

    wrong = {"cost": Span(choices=(-1.0, 1.0))}
    monkeypatch.setattr(config, "search_spaces", lambda kind: wrong if kind is SparseOneVsAll else {})
    events: list[dict[str, Any]] = []

    @contextlib.contextmanager
    def watch(name: str, _: Any) -> Iterator[Any]:
        yield lambda event: events.append({"trial": name, **event})

    states = [one.state for one in tune(LINEAR, data, tmp_path / "study", 6, watch)]
    assert set(states) == {"complete", "failed"}
    told = [event["reason"] for event in events if event["event"] == "failed"]
    assert len(told) == states.count("failed")
    assert all("cost: out of range; got -1.0" in reason for reason in told)
    assert "Traceback" not in capfd.readouterr().err
    with pytest.raises(ConfigError, match="no trial finished"):
        best_of([])


def test_a_search_in_which_every_trial_failed_is_an_error(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The defaults were measured, but nothing was looked for."""
    monkeypatch.setattr(config, "search_spaces", lambda _: {"cost": Span(choices=(-1.0, -2.0))})
    with pytest.raises(ConfigError, match=r"every trial failed; got 2\. The last one: .*cost: out of range; got -\d"):
        tune(LINEAR, data, tmp_path / "study", 2)


def test_a_metric_that_is_none(data: Dataset, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--metric: no such metric; got 'P@2'"):
        tune(replace(LINEAR, metric="P@2"), data, tmp_path / "study", 1)


def test_what_the_command_writes_is_what_train_reads(data: Dataset, tmp_path: Path) -> None:
    write_dataset(data, tmp_path / "planted")
    out = tmp_path / "tuned.toml"
    words = ["tune", str(tmp_path / "planted"), "-a", "one_vs_all", "--trials", "2", "--metric", "P@1", "-o", str(out)]
    words += ["--set", "epochs=2", "--device", "cpu"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "← best" in result.stdout
    table = tomllib.loads(out.read_text())
    task = TuningTask("one_vs_all", {"epochs": 2}, "P@1", 0, "cpu")
    best = best_of(tune(task, data, tmp_path / "tuned.study", 2))
    assert table["settings"] == {"epochs": 2, **best.settings}  # how trials are stopped is none of the user's settings
    trained = CliRunner().invoke(app, ["train", "--config", str(out), "-o", str(tmp_path / "model"), "--device", "cpu"])
    assert trained.exit_code == 0, trained.output
    refused = CliRunner().invoke(app, [*words[:-1], "cpu", "--trials", "0"])
    assert isinstance(refused.exception, XclearnError)
    assert np.isfinite(best.score or 0)
