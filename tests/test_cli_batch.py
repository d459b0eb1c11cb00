"""`xc predict` over many files: one file of answers for each, whatever dies in between."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from planted import planted
from pyarrow import parquet

from xclearn.algorithms.one_vs_all import OneVsAll
from xclearn.cli.batch import files_of, is_many
from xclearn.inference.predictor import Predictor

N_FILES, N_TEXTS = 6, 40


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "model"
    OneVsAll(epochs=5).fit(planted(), device="cpu").save(folder)
    return folder


def write_inputs(folder: Path, n_files: int = N_FILES, n_texts: int = N_TEXTS) -> list[list[str]]:
    """Parquet files, of which the first has two row groups; gives the texts of each."""
    folder.mkdir()
    texts = [[f"own{(file + row) % 60} noise{row % 200}" for row in range(n_texts)] for file in range(n_files)]
    for file, column in enumerate(texts):
        table = pa.table({"id": pa.array(range(n_texts), pa.int16()), "text": column})
        parquet.write_table(table, folder / f"part{file}.parquet", row_group_size=n_texts // 2 if file == 0 else None)
    return texts


def start(model: Path, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "xclearn", "predict", str(model), *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True)


def xc(model: Path, *arguments: object) -> tuple[int, str]:
    process = start(model, *arguments)
    said = process.communicate(timeout=120)[1]
    return process.returncode, said


def assert_answered(model: Path, out: Path, texts: list[list[str]]) -> None:
    """A file for each, which holds the columns that came and what the model answers alone."""
    predictor = Predictor.load(model)
    assert {path.name for path in out.iterdir()} == {"_job.json", *(f"part{i}.parquet" for i in range(len(texts)))}
    for file, column in enumerate(texts):
        table = parquet.read_table(out / f"part{file}.parquet")
        assert table.schema.field("id").type == pa.int16()
        assert table.column("id").to_pylist() == list(range(len(column)))
        assert table.column("text").to_pylist() == column
        labels = [[answer["label"] for answer in answers] for answers in table.column("predictions").to_pylist()]
        assert labels == [[each.label for each in found] for found in predictor.suggest(column, 3)]


@pytest.mark.parametrize("more", [[], ["--workers", 2]], ids=["one worker", "two workers"])
def test_every_file_gets_its_answers(model: Path, tmp_path: Path, more: list[object]) -> None:
    texts = write_inputs(tmp_path / "in")
    assert xc(model, tmp_path / "in" / "*.parquet", "-k", 3, "-o", tmp_path / "out", *more)[0] == 0
    assert_answered(model, tmp_path / "out", texts)
    assert parquet.read_table(tmp_path / "out").num_rows == N_FILES * N_TEXTS  # as a folder: `_job.json` is passed over


def test_json_lines_stay_json_lines(model: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"text": "own1", "x": [1]}\n{"text": "own2", "x": null}\n')
    (tmp_path / "in" / "b.txt").write_text("own3\n")
    assert xc(model, tmp_path / "in", "-k", 1, "-o", tmp_path / "out")[0] == 0
    rows = [json.loads(line) for line in (tmp_path / "out" / "a.jsonl").read_text().splitlines()]
    rows.append(json.loads((tmp_path / "out" / "b.jsonl").read_text()))
    expected = [found[0].label for found in Predictor.load(model).suggest(["own1", "own2", "own3"], 1)]
    assert [row["predictions"][0]["label"] for row in rows] == expected
    assert [row.get("x") for row in rows] == [[1], None, None]


def wait_for_answers(job: subprocess.Popen[str], out: Path) -> None:
    while not list(out.glob("*.parquet")):
        assert job.poll() is None
        time.sleep(0.01)


def workers_of(job: subprocess.Popen[str]) -> list[int]:
    """Ids of the processes that answer; Python starts another one that only counts their resources."""
    children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
    return [int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes by /proc")
def test_a_worker_that_dies_is_replaced(model: Path, tmp_path: Path) -> None:
    texts = write_inputs(tmp_path / "in", 12, 4000)
    job = start(model, tmp_path / "in", "-k", 3, "-o", tmp_path / "out", "--workers", 2)
    wait_for_answers(job, tmp_path / "out")
    os.kill(workers_of(job)[0], signal.SIGKILL)
    said = job.communicate(timeout=120)[1]
    assert job.returncode == 0
    assert "a worker died: " in said
    assert_answered(model, tmp_path / "out", texts)


def test_a_killed_job_goes_on_without_asking_twice(model: Path, tmp_path: Path) -> None:
    texts = write_inputs(tmp_path / "in", 12, 4000)
    out = tmp_path / "out"
    asked = [model, tmp_path / "in", "-k", 3, "-o", out]
    job = start(*asked)
    wait_for_answers(job, out)
    os.killpg(job.pid, signal.SIGKILL)
    job.communicate(timeout=60)
    done = {path: path.stat().st_mtime_ns for path in out.glob("*.parquet")}
    assert 0 < len(done) < 12
    code, said = xc(*asked)
    assert (code, "the folder is not empty" in said) == (2, True)
    code, said = xc(*asked, "-k", 4, "--resume")
    assert (code, "the job to resume had other options; got 'k'" in said.replace(str(out), "")) == (2, True)
    code, said = xc(*asked, "--resume")
    assert code == 0
    assert f"{len(done)} of 12 files are already done" in said
    assert {path: path.stat().st_mtime_ns for path in done} == done
    assert_answered(model, out, texts)


def test_an_error_in_a_file_names_it_and_the_rest_can_be_asked(model: Path, tmp_path: Path) -> None:
    texts = write_inputs(tmp_path / "in", 2)
    (tmp_path / "in" / "part2.parquet").write_bytes(b"no parquet")
    code, said = xc(model, tmp_path / "in", "-k", 3, "-o", tmp_path / "out", "--workers", 2)
    assert code == 2
    assert "part2.parquet" in said.splitlines()[-1]
    assert "Traceback" not in said
    (tmp_path / "in" / "part2.parquet").unlink()
    assert xc(model, tmp_path / "in", "-k", 3, "-o", tmp_path / "out", "--resume")[0] == 0
    assert_answered(model, tmp_path / "out", texts)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["in"], "-o: the output of many files must be a folder."),
        (["in", "-o", "out", "--format", "csv"], "--format: unknown format; got 'csv'; allowed: jsonl, parquet."),
        (["in", "-o", "out", "--engine", "spark"], "--engine: unknown engine; got 'spark'"),
        (["in", "-o", "out", "--workers", "0"], "--workers: at least one worker is needed; got 0."),
        (["none*", "-o", "out"], "FILE: no such files; got 'none*'."),
        (["*/part0.parquet", "-o", "out"], "FILE: two files would have the same output file"),
        (["in", "-o", "in/part0.parquet"], "-o: the output of many files must be a folder; got"),
    ],
)
def test_what_cannot_be_done_is_said(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    for name in ("in", "other"):
        write_inputs(tmp_path / name, 1)
    monkeypatch.chdir(tmp_path)
    code, message = xc(model, *arguments)
    assert (code, message.splitlines()[-1].startswith(f"Error: {said}")) == (2, True), message


def test_a_file_whose_name_is_a_pattern_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "a[1].txt").touch()
    (tmp_path / "_job.json").touch()
    assert not is_many(str(tmp_path / "a[1].txt"))
    assert is_many(str(tmp_path / "a[12].txt"))
    assert is_many(str(tmp_path))
    assert not is_many("-")
    assert files_of(str(tmp_path)) == [tmp_path / "a[1].txt"]
