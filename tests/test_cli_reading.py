"""Tables as people have them: other columns, delimiters and separators, through the real command line."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from xclearn.data import Dataset, Reading, load_dataset, validate
from xclearn.errors import ConfigError, DataError


def xc(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from xclearn.cli.main import main; main()", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def rows_of(data: Dataset) -> list[tuple[str, list[str]]]:
    rows = zip(data.train.documents, data.train.relevance, strict=True)
    return [(text, [data.labels.names[label] for label in row.indices]) for text, row in rows]


EXPECTED = [("paper jam", ["printer"]), ("print, slowly", ["network", "printer"])]


@pytest.mark.parametrize(
    ("name", "content", "reading"),
    [
        ("t.csv", 'Id;Text;Tags\n1;paper jam;printer\n2;print, slowly;"network;printer"\n', Reading()),
        ("t.csv", "\ufeffTITLE\tLabel\npaper jam\tprinter\nprint, slowly\tnetwork;printer\n", Reading()),
        ("t.csv", "body|Categories\npaper jam|printer\nprint, slowly|network;printer\n", Reading()),
        ("t.csv", 'text,labels\npaper jam,printer\n"print, slowly",network;printer\n', Reading()),
        (
            "t.csv",
            "Ticket;Team;text\npaper jam;printer;x\nprint, slowly;network / printer;y\n",
            Reading("Ticket", "Team", "/", ";"),
        ),
        (
            "t.csv",
            "text,labels\npaper jam,['printer']\n\"print, slowly\",\"['network', 'printer']\"\n",
            Reading(label_separator="list"),
        ),
        ("t.tsv", "text^tag\npaper jam^printer\nprint, slowly^network;printer\n", Reading(delimiter="^")),
        (
            "t.jsonl",
            '{"Body": "paper jam", "tags": "printer"}\n{"Body": "print, slowly", "tags": "network|printer"}\n',
            Reading(label_separator="|"),
        ),
    ],
)
def test_columns_delimiter_and_separator_are_found_or_given(
    tmp_path: Path, name: str, content: str, reading: Reading
) -> None:
    (tmp_path / name).write_text(content)
    assert rows_of(load_dataset(tmp_path / name, reading=reading)) == EXPECTED


def test_parquet_columns_by_other_names(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    texts, labels = [text for text, _ in EXPECTED], [names for _, names in EXPECTED]
    parquet.write_table(pyarrow.table({"day": [1, 2], "Words": texts, "Tags": labels}), path)
    assert rows_of(load_dataset(path, reading=Reading("Words"))) == EXPECTED
    with pytest.raises(DataError, match=r"no 'text' here; got 'day, Words, Tags'.*--text-column"):
        load_dataset(path)


def test_one_wrong_file_of_each_kind_names_its_flag(tmp_path: Path) -> None:
    good = "text,labels\na,x\n"
    for content, flags, sentence in [
        (
            "words,marks\na,x\n",
            [],
            "Line 1 is read as the header: add one, or name the column with --text-column and --label-column.",
        ),
        ("text^labels\na^x\n", [], "has only one field: give the separator with --delimiter"),
        ("text^labels\na^x\n", ["--text-column", "text"], "has only one field: give the separator with --delimiter"),
        (good, ["--text-column", "texts"], "no column 'texts' here (--text-column). Did you mean 'text'?"),
        (good, ["--label-column", "tags"], "no column 'tags' here (--label-column)"),
        (good, ["--delimiter", "::"], "--delimiter: not a delimiter; got '::'"),
        (good, ["--label-separator", "list"], "the cell is not a list of labels; got 'x'"),
        ("text,labels\na,b,x\n", [], "Fields are separated by ','; --delimiter sets another."),
    ]:
        (tmp_path / "t.csv").write_text(content)
        done = xc("data", "stats", tmp_path / "t.csv", *flags)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
        assert sentence in done.stderr
    (tmp_path / "t.jsonl").write_text('{"text": "a", "labels": []}')
    with pytest.raises(ConfigError, match="only CSV and TSV have a delimiter"):
        load_dataset(tmp_path / "t.jsonl", reading=Reading(delimiter=","))
    (tmp_path / "t.txt").write_text("1 1 1\n0 0:1\n")
    with pytest.raises(ConfigError, match="features have no text columns; got '--text-column a'"):
        load_dataset(tmp_path / "t.txt", reading=Reading("a"))


@pytest.mark.parametrize(
    ("cells", "flag"),
    [
        (["a|b", "b|c", "c"], "--label-separator '|'"),
        (["a,b", "b,c", "c"], "--label-separator ,"),
        (["['a']", "['b', 'c']"], "--label-separator list"),
        ([f"a b{row} c" for row in range(20)], "is a --label-separator missing?"),
    ],
)
def test_a_missed_separator_is_a_warning_with_the_flag(tmp_path: Path, cells: list[str], flag: str) -> None:
    rows = [{"text": f"text {row}", "labels": [cell]} for row, cell in enumerate(cells)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = [finding.what for finding in validate(load_dataset(tmp_path / "t.jsonl")) if "separator" in finding.what]
    assert len(found) == 1
    assert flag in found[0]


@pytest.mark.parametrize("labels", [[["Paris, France"], ["x"]], [["a|b", "b|c"], ["c", "d"]], [["a"], ["b"]] * 30])
def test_labels_that_were_cut_are_not_suspected(tmp_path: Path, labels: list[list[str]]) -> None:
    rows = [{"text": f"text {row}", "labels": names} for row, names in enumerate(labels)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert not [finding for finding in validate(load_dataset(tmp_path / "t.jsonl")) if "separator" in finding.what]


def test_train_says_how_it_reads_warns_and_repeats_the_flags(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("Words;Tags\npaper jam;printer\nprint slowly;network|printer\nslow;network|disk\n")
    model = tmp_path / "model"
    done = xc("train", tmp_path / "t.csv", "--text-column", "Words", "-o", model)
    assert done.returncode == 0, done.stderr
    assert "read: t.csv: delimiter ';', text from 'Words', labels from 'Tags'" in done.stderr
    assert "--label-separator '|' would separate them, for example: network|disk" in done.stderr
    done = xc("evaluate", model, tmp_path / "t.csv", "--text-column", "Words", "--split", "train", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["R@100"] == 100


def test_a_separator_missed_in_measuring_is_a_warning_with_the_flag(tmp_path: Path) -> None:
    """Three documents would say too little, were it not for the labels that the model knows."""
    colours, things = ["red", "green", "blue"], ["hat", "coat", "belt"]
    (tmp_path / "t.csv").write_text(
        "text,labels\n" + "".join(f"a {colour} {thing},{colour};{thing}\n" for colour in colours for thing in things)
    )
    assert xc("train", tmp_path / "t.csv", "-a", "sparse_one_vs_all", "-o", tmp_path / "m").returncode == 0
    (tmp_path / "new.csv").write_text("text,labels\na red hat,red|hat\na blue belt,blue|belt\na coat,coat\n")
    warning = "--label-separator '|' would separate them, for example: blue|belt"
    for command in (
        ["evaluate", tmp_path / "m"],
        ["report", tmp_path / "m"],
        ["compare", tmp_path / "m", tmp_path / "m"],
    ):
        out = ["-o", tmp_path / "r.html", "--overwrite"] if command[0] == "report" else []
        done = xc(*command, tmp_path / "new.csv", *out)
        assert done.returncode == 0, done.stderr
        assert warning in done.stderr
        done = xc(*command, tmp_path / "new.csv", *out, "--label-separator", "|")
        assert "would separate them" not in done.stderr
    (tmp_path / "new.csv").write_text('text,labels\na red hat,hat\nof paris,"Paris, France"\n')
    assert "would separate" not in xc("evaluate", tmp_path / "m", tmp_path / "new.csv").stderr


def test_a_single_file_is_split_trained_on_and_measured(tmp_path: Path) -> None:
    """Every text stands there twice; both copies come to the same side. The folder holds what `train` held out."""
    colours, things = ["red", "green", "blue", "white", "black"], ["hat", "coat", "belt", "shoe", "sock"]
    rows = [f"a {colour} {thing};{colour}|{thing}\n" for colour in colours for thing in things] * 2
    (tmp_path / "all.csv").write_text("text;labels\n" + "".join(rows))
    flags = ["--label-separator", "|", "--test-share", "0.2"]
    done = xc("data", "split", tmp_path / "all.csv", tmp_path / "cut", *flags)
    assert done.returncode == 0, done.stderr
    cut = load_dataset(tmp_path / "cut")
    assert cut.test is not None
    assert set(cut.train.documents).isdisjoint(cut.test.documents)
    assert (len(cut.train) + len(cut.test), len(cut.test)) == (50, 10)
    done = xc("train", tmp_path / "all.csv", "-a", "sparse_one_vs_all", "-o", tmp_path / "model", *flags)
    assert done.returncode == 0, done.stderr
    assert "documents: 40 train, 10 test" in done.stderr
    model_card = json.loads(xc("inspect", tmp_path / "model", "--json").stdout)["metrics"]["test"]
    (tmp_path / "new.tsv").write_text(
        "".join(f"{text}\t{label}\n" for text, label in [("Text", "Tags"), ("a red hat", "red;hat"), ("tie", "tie")])
    )
    done = xc("evaluate", tmp_path / "model", tmp_path / "new.tsv", "--json")
    assert done.returncode == 0, done.stderr
    assert "1 labels (1 of 3 pairs) are unknown to the model and count as misses: tie (1)" in done.stderr
    assert json.loads(done.stdout)["R@100"] == 50
    both = json.loads(xc("evaluate", tmp_path / "model", tmp_path / "cut", "--json").stdout)
    assert model_card["P@1"] == both["P@1"]
    for command, sentence in [
        (
            ["train", tmp_path / "cut", "--test-share", "0.1", "-o", tmp_path / "m"],
            "--test-share: the data already has a test split",
        ),
        (
            ["train", tmp_path / "all.csv", "--test-share", "2", "-o", tmp_path / "m"],
            "--test-share: out of range; got 2",
        ),
        (["data", "split", tmp_path / "new.tsv", tmp_path / "m"], "too few documents to hold some out (--test-share)"),
        (
            ["evaluate", tmp_path / "model", tmp_path / "new.tsv", "--bins"],
            "--bins: a single file has no label frequencies",
        ),
    ]:
        done = xc(*command)
        assert done.returncode == 2
        assert sentence in done.stderr.splitlines()[-1]
