"""`xc data`: what is printed where, and the exit codes."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from xclearn.cli.data import data_app
from xclearn.data import load_dataset, statistics
from xclearn.errors import ConfigError, DataError

runner = CliRunner()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [{"text": "a [b]", "labels": ["x"]}, {"text": "a [b]", "labels": ["y"]}]
    folder = tmp_path / "fruit"
    folder.mkdir()
    (folder / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


def test_list_names_the_bundled_sets() -> None:
    result = runner.invoke(data_app, ["list"])
    assert result.exit_code == 0
    assert "wordnet-related" in result.stdout


def test_stats_as_a_table_and_as_json(folder: Path) -> None:
    table = runner.invoke(data_app, ["stats", str(folder)])
    assert table.exit_code == 0
    assert "train: documents" in table.stdout
    result = runner.invoke(data_app, ["stats", str(folder), "--json"])
    assert json.loads(result.stdout) == statistics(load_dataset(folder))


def test_validate_reports_warnings_and_exits_with_0(folder: Path) -> None:
    table = runner.invoke(data_app, ["validate", str(folder)])
    assert (table.exit_code, "repeated within" in table.stdout, "a [b]" in table.stdout) == (0, True, True)
    result = runner.invoke(data_app, ["validate", str(folder), "--json"])
    assert json.loads(result.stdout) == [
        {"severity": "warning", "what": "documents repeated within train", "count": 1, "examples": ["a [b]"]}
    ]


def test_validate_exits_with_1_on_what_would_break_training(folder: Path) -> None:
    (folder / "train.jsonl").write_text('{"text": "", "labels": ["x"]}')
    result = runner.invoke(data_app, ["validate", str(folder), "--json"])
    assert result.exit_code == 1
    assert json.loads(result.stdout)[0]["severity"] == "error"


def test_convert_writes_a_folder_and_speaks_on_stderr(folder: Path, tmp_path: Path) -> None:
    result = runner.invoke(data_app, ["convert", str(folder), str(tmp_path / "new"), "--format", "csv"])
    assert (result.exit_code, result.stdout) == (0, "")
    assert "Written" in result.stderr
    assert load_dataset(tmp_path / "new").train.documents == ["a [b]", "a [b]"]


def test_user_mistakes_are_left_to_the_main_command(tmp_path: Path) -> None:
    result = runner.invoke(data_app, ["stats", str(tmp_path / "absent")])
    assert isinstance(result.exception, DataError)


def test_graph_describes_and_writes_what_edge_list_reads(tmp_path: Path) -> None:
    rows = [{"text": "a", "labels": ["x", "y"]}, {"text": "b", "labels": ["y"]}, {"text": "c", "labels": ["z"]}]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    out = tmp_path / "edges.tsv"
    arguments = ["graph", str(tmp_path), "--set", "source=cooccurrence", "--out", str(out)]
    result = runner.invoke(data_app, [*arguments, "--json"])
    assert result.exit_code == 0
    facts = json.loads(result.stdout.splitlines()[-1])
    assert (facts["labels"], facts["edges"], facts["labels_without_neighbour"]) == (3, 2, 1)
    expected = {("x", "x", "1"), ("x", "y", "1"), ("y", "x", "1"), ("y", "y", "2"), ("z", "z", "1")}
    assert {tuple(line.split("\t")) for line in out.read_text().splitlines()} == expected
    again = runner.invoke(
        data_app, ["graph", str(tmp_path), "--set", "source=edge_list", "--set", f"source.path={out}", "--json"]
    )
    assert json.loads(again.stdout) == facts
    table = runner.invoke(data_app, arguments)
    assert "labels without neighbour" in table.stdout


def test_graph_refuses_an_unknown_setting(folder: Path) -> None:
    result = runner.invoke(data_app, ["graph", str(folder), "--set", "edgess=3"])
    assert isinstance(result.exception, ConfigError)
    assert "Did you mean 'edges'" in str(result.exception)
