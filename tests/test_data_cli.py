"""`xc data`: what is printed where, and the exit codes."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from xclearn.cli.data import data_app
from xclearn.data import load_dataset, statistics
from xclearn.errors import DataError

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
