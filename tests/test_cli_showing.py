"""Tables on stdout: whole in a pipe, copyable on a terminal, nothing in them taken for markup."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from xclearn.algorithms.decaf import Decaf
from xclearn.algorithms.one_vs_all import OneVsAll
from xclearn.cli.showing import print_table, show_algorithm, show_algorithms, show_label, show_model
from xclearn.data import Dataset, LabelSet, Split
from xclearn.errors import ConfigError
from xclearn.parts.game import GameStep


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("showing") / "model"
    split = Split(["red apple", "green pear"], sp.csr_matrix(np.eye(2, dtype=np.float32)))
    algorithm = OneVsAll(epochs=1, encoder_lr=0.000_01, label_lr=2 / 3)
    algorithm.fit(Dataset("fruit", split, LabelSet(["apple", "pear"])), device="cpu").save(folder)
    return folder


def rows_of(table: str) -> list[list[str]]:
    return [re.split(r"  +", line.strip()) for line in table.splitlines()]


def test_a_table_in_a_pipe_is_neither_wrapped_nor_cut(capsys: pytest.CaptureFixture[str]) -> None:
    long = "word " * 300
    print_table(("name", "value"), [("a", long), ("[bold]b[/bold]", "[red]")])
    printed = capsys.readouterr().out
    assert rows_of(printed) == [["name", "value"], ["a", long.strip()], ["[bold]b[/bold]", "[red]"]]
    assert all(line == line.rstrip() for line in printed.splitlines())


def test_a_table_on_a_narrow_terminal_keeps_its_names_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    print_table(("name", "value"), [("n" * 30, "word " * 20)])
    lines = capsys.readouterr().out.splitlines()[1:]
    assert sum("n" * 30 in line for line in lines) == 1
    assert max(map(len, lines)) <= 40
    assert len(lines) == 20


def test_a_model_shows_its_settings_as_they_were_given(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show_model(model, as_json=False)
    shown = dict(row for row in rows_of(capsys.readouterr().out) if len(row) == 2)
    assert shown["settings.encoder_lr"] == "1e-05"
    assert shown["settings.label_lr"] == "0.666667"
    assert shown["settings.batch_size"] == "auto"
    assert shown["resolved.batch_size"] == "16"
    assert (shown["algorithm"], shown["data.name"], shown["n_labels"]) == ("one_vs_all", "fruit", "2")
    assert int(shown["bytes"]) == sum(path.stat().st_size for path in model.iterdir())


def test_a_model_as_json(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show_model(model, as_json=True)
    facts = json.loads(capsys.readouterr().out)
    assert facts["settings"]["encoder_lr"] == 0.000_01
    assert facts["settings"]["batch_size"] is None
    assert facts["n_features"] == 4


def test_algorithms_and_the_settings_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    show_algorithms()
    assert "one_vs_all" in [row[0] for row in rows_of(capsys.readouterr().out)]
    show_algorithm("one_vs_all")
    shown = capsys.readouterr()
    defaults = {row[0]: row[1] for row in rows_of(shown.out)}
    assert defaults["epochs"] == "auto"
    assert defaults["vectoriser[word_piece].vocabulary_size"] == "40000"
    assert "--set part=kind --set part.name=VALUE" in shown.err


def test_a_label_shows_its_neighbours_by_classifier_and_where_there_is_one_in_the_graph(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    show_label(model, "apple", as_json=True)
    facts = json.loads(capsys.readouterr().out)
    assert (facts["label"], facts["graph"]) == ("apple", None)
    assert isinstance(facts["classifier"], list)
    both = Split(["red apple", "green pear"], sp.csr_matrix(np.array([[1, 1, 0], [0, 0, 1]], dtype=np.float32)))
    algorithm = Decaf(surrogate_epochs=1, ranker_epochs=1, game=GameStep())
    algorithm.fit(Dataset("fruit", both, LabelSet(["apple", "red", "pear"])), device="cpu").save(tmp_path / "game")
    show_label(tmp_path / "game", "apple", as_json=False)
    rows = [row for row in rows_of(capsys.readouterr().out) if row[0] == "graph"]
    assert [row[1] for row in rows] == ["red"]
    show_label(model, "apple", as_json=False)
    assert "has no label graph" in capsys.readouterr().err


def test_an_unknown_label_is_named(model: Path) -> None:
    with pytest.raises(ConfigError, match="--label: no such label; got 'aple'"):
        show_label(model, "aple", as_json=False)
