"""How answers are written: for people, for programs, and for spreadsheets."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pyarrow
import pytest
import scipy.sparse as sp
from pyarrow import parquet

from xclearn import OneVsAll
from xclearn.cli.answers import WRITERS, cut, label_text
from xclearn.data import Dataset, LabelSet, Split
from xclearn.data.inputs import Input
from xclearn.inference.predictor import Suggestion


def line(text: str) -> Input:
    return Input(text, {"text": text})


FOUND = [Suggestion("a\tb", 0.75, "the first"), Suggestion("plain", 0.25, None)]


def test_a_table_shows_what_a_label_says() -> None:
    assert WRITERS["table"](line("one\n  two"), FOUND) == "one two\n   0.750  a\tb  the first\n   0.250  plain\n"


def test_json_lines_keep_the_text_as_it_was() -> None:
    written = WRITERS["jsonl"](line("one\n  two ☃"), FOUND)
    assert written.count("\n") == 1
    assert "☃" in written
    assert json.loads(written) == {
        "text": "one\n  two ☃",
        "predictions": [{"label": "a\tb", "score": 0.75, "text": "the first"}, {"label": "plain", "score": 0.25}],
    }


def test_tabs_and_line_breaks_do_not_break_a_tsv() -> None:
    assert WRITERS["tsv"](line("one\n\ttwo"), FOUND) == "one two\ta b\t0.750000\none two\tplain\t0.250000\n"


def test_an_answer_without_labels_is_an_answer() -> None:
    assert [writer(line("x"), []) for writer in WRITERS.values()] == ["x\n", '{"text": "x", "predictions": []}\n', ""]


def test_what_is_cut_is_marked() -> None:
    assert cut("abcdef", 6) == "abcdef"
    assert cut("abcdefg", 6) == "abcde…"
    assert label_text(Suggestion("name", 0.5, "name")) == "name"
    assert label_text(Suggestion("name", 0.5, "what it says"), 12) == "name  what …"


# Tables, through the real command line.


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = ["paper jam", "printer jam", "no network", "network slow"] * 3
    relevance = sp.csr_matrix([[1, 0], [1, 0], [0, 1], [0, 1]] * 3, dtype="float32")
    data = Dataset("t", Split(texts, relevance), LabelSet(["prn", "net"], ["printers", "networks"]))
    folder = tmp_path_factory.mktemp("model") / "model"
    OneVsAll(epochs=30).fit(data, device="cpu").save(folder)
    return folder


def xc(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from xclearn.cli.main import main; main()", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def ask(model: Path, *arguments: object) -> str:
    done = xc("predict", model, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


ROWS = [
    {"uid": "1", "Text": "paper, jam", "labels": "net;prn"},
    {"uid": "2", "Text": "network", "labels": ""},
    {"uid": "3", "Text": "", "labels": "prn"},
]


def written(path: Path) -> Path:
    match path.suffix:
        case ".jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
        case ".parquet":
            parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
        case _:
            with path.open("w", newline="") as file:
                table = csv.DictWriter(file, list(ROWS[0]), delimiter="\t" if path.suffix == ".tsv" else ";")
                table.writeheader()
                table.writerows(ROWS)
    return path


@pytest.mark.parametrize("name", ["in.csv", "in.tsv", "in.jsonl", "in.parquet"])
def test_a_table_is_asked_its_text_column_and_keeps_the_others(tmp_path: Path, model: Path, name: str) -> None:
    lines = ask(model, written(tmp_path / name), "-k", 1, "--format", "jsonl").splitlines()
    found = [json.loads(line) for line in lines]
    assert [{key: value for key, value in row.items() if key != "predictions"} for row in found] == ROWS
    best = [row["predictions"][0] for row in found]
    assert [(answer["label"], answer["text"]) for answer in best[:2]] == [("prn", "printers"), ("net", "networks")]
    plain = tmp_path / "plain.txt"
    plain.write_text("".join(f"{row['Text']}\n" for row in ROWS))
    alone = [json.loads(line) for line in ask(model, plain, "-k", 1, "--format", "jsonl").splitlines()]
    assert best == [row["predictions"][0] for row in alone]  # neither header nor labels were part of the text


def test_answers_as_csv_and_parquet(tmp_path: Path, model: Path) -> None:
    source, out = written(tmp_path / "in.csv"), tmp_path / "out.csv"
    ask(model, source, "-k", 2, "-o", out)
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    added = ["label_1", "score_1", "label_text_1", "label_2", "score_2", "label_text_2"]
    assert list(rows[0]) == [*ROWS[0], *added]
    assert (rows[0]["Text"], rows[0]["label_1"], rows[0]["label_text_2"]) == ("paper, jam", "prn", "networks")
    ask(model, source, "-k", 2, "-o", tmp_path / "out.parquet")
    table = parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert [row["uid"] for row in table] == ["1", "2", "3"]
    assert [table[0]["predictions"][rank]["text"] for rank in (0, 1)] == ["printers", "networks"]
    assert table[0]["predictions"][0]["score"] == pytest.approx(float(rows[0]["score_1"]), abs=1e-6)


def test_a_parquet_file_keeps_the_types_of_its_columns(tmp_path: Path, model: Path) -> None:
    source = tmp_path / "in.parquet"
    table = pyarrow.table({"text": ["jam", "net"] * 3000, "day": pyarrow.array(range(6000), pyarrow.date32())})
    parquet.write_table(table, source)
    ask(model, source, "-o", tmp_path / "out.parquet")
    found = parquet.read_table(tmp_path / "out.parquet")
    assert found.drop(["predictions"]).equals(table)  # more than a block, in order


def test_one_wrong_request_of_each_kind_names_its_flag(tmp_path: Path, model: Path) -> None:
    source = written(tmp_path / "in.csv")
    words = tmp_path / "words.csv"
    words.write_text("a,b\n1,2\n")
    plain = tmp_path / "plain.txt"
    plain.write_text("text\n")
    for arguments, sentence in [
        ([words], "Name the column with --text-column."),
        ([source, "--text-column", "Txt"], "no column 'Txt' here (--text-column). Did you mean 'Text'?"),
        ([plain, "--text-column", "text"], "lines of text have no columns; got '--text-column text'"),
        ([tmp_path / "none.parquet"], "none.parquet: no such file."),
        ([source, "-o", tmp_path / "out.xlsx"], "-o: unknown format; got 'xlsx'"),
        ([source, "--format", "parquet"], "Name a file with -o."),
        ([source, "-o", source], "give --overwrite to replace it"),
    ]:
        done = xc("predict", model, *arguments)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
        assert sentence in done.stderr
    ask(model, source, "-o", tmp_path / "once.jsonl")
    done = xc("predict", model, tmp_path / "once.jsonl", "-o", tmp_path / "twice.jsonl")
    assert "already has a column that answers get; got 'predictions'" in done.stderr
    assert not (tmp_path / "twice.jsonl").exists()
