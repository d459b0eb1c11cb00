"""Rows recorded at the same time are all kept, with the columns of all of them."""

import csv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from benchmarks.record import record


def test_no_row_is_lost_when_several_runs_record_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XCLEARN_COMMIT", "abc1234")
    with ThreadPoolExecutor(8) as runs:
        list(runs.map(lambda i: record("figures", {"run": i, f"only_{i % 2}": i}, tmp_path), range(40)))
    with (tmp_path / "figures.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert sorted(int(row["run"]) for row in rows) == list(range(40))
    assert all(row[f"only_{int(row['run']) % 2}"] == row["run"] for row in rows)
