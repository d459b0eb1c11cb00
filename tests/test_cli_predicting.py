"""How answers are written: for people, for programs, and for spreadsheets."""

import csv
import io
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
from xclearn.data.inputs import Input, read_inputs
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


def test_an_answer_without_labels_is_an_answer() -> None:
    assert [writer(line("x"), []) for writer in WRITERS.values()] == ["x\n", '{"text": "x", "predictions": []}\n']


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


def test_answers_as_tables(tmp_path: Path, model: Path) -> None:
    source, out = written(tmp_path / "in.csv"), tmp_path / "out.csv"
    ask(model, source, "-k", 2, "-o", out)
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    ask(model, source, "-k", 2, "-o", tmp_path / "out.tsv")
    for text in ((tmp_path / "out.tsv").read_text(), ask(model, source, "-k", 2, "--format", "tsv")):
        assert list(csv.DictReader(io.StringIO(text), delimiter="\t")) == rows
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
    one_field = tmp_path / "one.csv"
    one_field.write_text("a^b\n1^2\n")
    plain = tmp_path / "plain.txt"
    plain.write_text("text\n")
    for arguments, sentence in [
        ([words], "Line 1 is read as the header: add one, or name the column with --text-column."),
        ([one_field], "has only one field: give the separator with --delimiter"),
        (
            [one_field, "--text-column", "a"],
            "no column 'a' here (--text-column). Line 1 is read",
        ),
        ([source, "--label-column", "tags"], "no column 'tags' here (--label-column)"),
        ([source, "--text-column", "Txt"], "no column 'Txt' here (--text-column). Did you mean 'Text'?"),
        ([plain, "--text-column", "text"], "lines of text have no columns; got '--text-column text'"),
        ([tmp_path / "none.parquet"], "none.parquet: no such file."),
        ([source, "-o", tmp_path / "out.xlsx"], "-o: unknown format; got 'xlsx'"),
        ([source, "--format", "parquet"], "Give a file with -o."),
        ([source, "-o", source], "give --overwrite to replace it"),
    ]:
        done = xc("predict", model, *arguments)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
        assert sentence in done.stderr
    ask(model, source, "-o", tmp_path / "once.jsonl")
    done = xc("predict", model, tmp_path / "once.jsonl", "-o", tmp_path / "twice.jsonl")
    assert "already has a column of this name; got 'predictions'" in done.stderr
    assert not (tmp_path / "twice.jsonl").exists()


def test_the_flags_of_training_are_taken_and_keep_labels_out_of_the_text(tmp_path: Path, model: Path) -> None:
    """`title` would be the text, were it not named as the labels."""
    source = tmp_path / "in.csv"
    source.write_text("title;body\nnet|prn;paper jam\n")
    flags = ["--label-column", "title", "--label-separator", "|"]
    (row,) = map(json.loads, ask(model, source, "-k", 1, "--format", "jsonl", *flags).splitlines())
    assert (row["title"], row["body"], row["predictions"][0]["label"]) == ("net|prn", "paper jam", "prn")
    assert row["predictions"] == asked_by_stream(model, "paper jam\n")[0]["predictions"]


def asked_by_stream(model: Path, content: str, *arguments: object) -> list[dict[str, object]]:
    command = [sys.executable, "-m", "xclearn", "predict", model, "-k", "1", "--format", "jsonl", *arguments]
    done = subprocess.run(list(map(str, command)), input=content, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(("name", "mark"), [("comma", ","), ("semicolon", ";"), ("tab", "\t"), ("pipe", "|")])
def test_a_piped_table_is_warned_about_and_read_by_the_flag_that_is_named(model: Path, name: str, mark: str) -> None:
    content = f"uid{mark}Text\n7{mark}paper jam\n"
    command = [sys.executable, "-m", "xclearn", "predict", str(model), "-k", "1"]
    done = subprocess.run(command, input=content, capture_output=True, text=True, check=True)
    assert done.stderr == (
        f"warning: <stdin>:1 looks like the header of a table but is read as text; --delimiter {name} reads columns\n"
    )
    assert done.stdout.count("\n") == 4
    (row,) = asked_by_stream(model, content, "--delimiter", name)
    assert (row["uid"], row["Text"]) == ("7", "paper jam")
    assert row["predictions"] == asked_by_stream(model, "paper jam\n")[0]["predictions"]


@pytest.mark.parametrize(
    "first", ["body, mind and soul", "paper jam, again", "title", "", '{"text": "a"}', "text," * 999]
)
def test_texts_are_not_taken_for_a_header(first: str) -> None:
    told: list[str] = []
    assert list(read_inputs(io.BytesIO(f"{first}\n".encode()), warn=told.append))
    assert told == []


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_table_of_300_000_rows_takes_the_memory_of_a_small_one(tmp_path: Path, model: Path, suffix: str) -> None:
    """Peaks of the whole process; 300,000 rows with their answers are some 60 MB as text, and far more as objects."""
    peaks = []
    for n in (3_000, 300_000):
        source, out = tmp_path / f"{n}.csv", tmp_path / f"out-{n}.{suffix}"
        with source.open("w") as file:
            file.write("uid,text,more\n")
            file.writelines(f"{row},paper jam {row},{'x' * 100}\n" for row in range(n))
        code = (
            "import resource, sys; from xclearn.cli.main import app; "
            "app(sys.argv[1:], standalone_mode=False); "
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
        )
        command = [sys.executable, "-c", code, "predict", model, source, "-k", "2", "-o", out]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout) / 1024)
        with out.open("rb") as file:
            assert suffix == "parquet" or sum(1 for _ in file) == n + (suffix == "csv")
    assert peaks[1] < peaks[0] + 24, peaks
