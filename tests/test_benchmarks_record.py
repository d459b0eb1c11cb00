"""Rows recorded at the same time are all kept, with the columns of all of them; settings have one id."""

import csv
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from benchmarks.record import record, resolved

from xclearn.algorithms.one_vs_all import OneVsAll


def test_no_row_is_lost_when_several_runs_record_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XCLEARN_COMMIT", "abc1234")
    with ThreadPoolExecutor(8) as runs:
        list(runs.map(lambda i: record("figures", {"run": i, f"only_{i % 2}": i}, tmp_path), range(40)))
    with (tmp_path / "figures.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert sorted(int(row["run"]) for row in rows) == list(range(40))
    assert all(row[f"only_{int(row['run']) % 2}"] == row["run"] for row in rows)


def test_rows_with_the_columns_that_are_there_are_added_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XCLEARN_COMMIT", "abc1234")
    for number in range(3):
        before = (tmp_path / "figures.csv").read_bytes() if number else b""
        record("figures", {"run": number, "text": "a, b"}, tmp_path)
        assert (tmp_path / "figures.csv").read_bytes().startswith(before)
    with (tmp_path / "figures.csv").open(encoding="utf-8") as stream:
        assert [(row["run"], row["text"]) for row in csv.DictReader(stream)] == [(f"{n}", "a, b") for n in range(3)]


def test_settings_are_kept_once_under_an_id_that_tells_resolved_defaults_apart(tmp_path: Path) -> None:
    first, second = OneVsAll(), OneVsAll()
    first.resolved_, second.resolved_ = {"epochs": 20}, {"epochs": 15}  # the same settings, on a GPU and on a CPU
    ids = [resolved(algorithm, tmp_path) for algorithm in (first, second, first)]
    assert ids[0] == ids[2] != ids[1]
    lines = (tmp_path / "settings.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["id"] for line in lines] == ids[:2]
    assert json.loads(lines[0])["settings"]["epochs"] == 20
    assert json.loads(lines[0])["settings"]["algorithm"] == "one_vs_all"
