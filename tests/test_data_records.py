"""Text records of every format, by hand-written files; and what each kind of bad record is told."""

import io
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from xclearn.data.columns import Reading
from xclearn.data.folder import data_file
from xclearn.data.inputs import read_documents
from xclearn.data.records import read_label_rows, read_records
from xclearn.errors import DataError


def records(
    path: Path, content: str | bytes, separator: str | None = None
) -> list[tuple[str | None, str, list[str | int]]]:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    found = read_records(data_file(path), Reading(label_separator=separator))
    return [(record.name, record.text, record.labels) for record in found]


def refusal(path: Path, content: str | bytes) -> DataError:
    with pytest.raises(DataError) as caught:
        records(path, content)
    return caught.value


def test_jsonl(tmp_path: Path) -> None:
    content = '{"uid": "u", "text": "a", "labels": ["x", 3]}\n\n{"text": "b\\n", "labels": [], "more": 1}\n'
    assert records(tmp_path / "train.jsonl", content) == [("u", "a", ["x", 3]), (None, "b\n", [])]


def test_the_raw_files_of_the_xc_repository(tmp_path: Path) -> None:
    content = (
        '{"uid": "u", "title": "T", "content": "C", "target_ind": [4], "target_rel": [1.0]}\n'
        '{"uid": "v", "title": "T", "content": "", "target_ind": []}\n'
    )
    assert records(tmp_path / "trn.json", content) == [("u", "T C", [4]), ("v", "T", [])]


def test_csv_with_quotes_line_breaks_and_its_own_separator(tmp_path: Path) -> None:
    content = '\ufefftext,labels,extra\n"a, ""b""\nc",x| y |,1\nd,,2\n'
    assert records(tmp_path / "t.csv", content, "|") == [(None, 'a, "b"\nc', ["x", "y"]), (None, "d", [])]


def test_tsv_names_are_names_even_where_they_are_digits(tmp_path: Path) -> None:
    assert records(tmp_path / "t.tsv", "uid\ttext\tlabels\n1\ta\t12;7\n") == [("1", "a", ["12", "7"])]


def test_parquet_with_lists_of_names_of_rows_and_joined_names(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    for labels, expected in (
        ([["x"], []], [["x"], []]),
        ([[1, 2], [0]], [[1, 2], [0]]),
        (["x;y", ""], [["x", "y"], []]),
    ):
        parquet.write_table(pyarrow.table({"text": ["a", "b"], "labels": labels, "vector": [[0.5], [1.5]]}), path)
        assert [record.labels for record in read_records(data_file(path))] == expected


def test_fasttext(tmp_path: Path) -> None:
    content = "__label__x __label__y some  text\nno label here\n__label__z\n"
    expected = [(None, "some text", ["x", "y"]), (None, "no label here", []), (None, "", ["z"])]
    assert records(tmp_path / "train.txt", content) == expected


def test_a_text_of_ten_megabytes_is_read(tmp_path: Path) -> None:
    text = "word " * 2_000_000
    assert records(tmp_path / "t.csv", f"text,labels\n{text},x\n")[0][1] == text
    assert records(tmp_path / "t.jsonl", f'{{"text": "{text}", "labels": ["x"]}}')[0][1] == text


@pytest.mark.parametrize(
    ("name", "content", "line", "what"),
    [
        ("t.jsonl", '{"text": "a", "labels": []}\n{"text": ', 2, "not a JSON object"),
        ("t.jsonl", '[{"text": "a", "labels": []}]', 1, "not a JSON object"),
        ("t.jsonl", "[" * 100_000, 1, "not a JSON object"),
        ("t.jsonl", '{"text": "a"}', 1, "no 'labels' here; got 'text'"),
        ("t.jsonl", '{"words": "a"}', 1, "no 'text' and 'labels' here; got 'words'"),
        ("t.jsonl", '{"text": "a", "label": ["x"]}\n{"text": "b", "tags": ["y"]}', 2, "no 'label' here"),
        ("t.jsonl", '{"text": 3, "labels": []}', 1, "'text' must be a text; got 3"),
        ("t.jsonl", '{"uid": 3, "text": "a", "labels": []}', 1, "'uid' must be a text"),
        ("t.jsonl", '{"text": "a", "labels": "x;y"}', 1, "separator of labels with --label-separator"),
        ("t.jsonl", '{"text": "a", "labels": [1.5]}', 1, "'labels' cannot be read"),
        ("t.jsonl", '{"text": "a", "labels": [true]}', 1, "'labels' cannot be read"),
        ("t.jsonl", '{"text": "a", "labels": [""]}', 1, "'labels' cannot be read"),
        ("t.jsonl", '{"text": "a", "labels": [["x"]]}', 1, "'labels' cannot be read"),
        ("t.jsonl", '{"text": "\\ud800", "labels": []}', 1, "surrogates not allowed"),
        ("t.jsonl", b'{"text": "a", "labels": []}\n{"text": "\xff"}', 2, "not UTF-8"),
        ("t.csv", "text,labels\na,x\nb\n", 3, "2 fields expected; got 1"),
        ("t.csv", 'text,labels\n"a\nb",x\n"c,y\n', 4, "not readable as a table"),
        ("t.csv", "words,marks\na,x\n", 2, "no 'text' and 'labels' here; got 'words, marks'"),
        ("t.csv", "words,marks\na,x\n", 2, "Line 1 is read as the header: add one, or name the column with"),
        ("t.csv", "text,labels\na,x,y\n", 2, "2 fields expected; got 3. Fields are separated by ','; --delimiter"),
        ("t.tsv", "text,labels\na,x\n", 2, "no 'text' and 'labels' here; got 'text,labels'"),
        ("t.parquet", b"PAR1 and nothing else", 1, "not readable as Parquet"),
        ("t.txt", "just text\n", 1, "neither an XC nor a fastText file"),
        ("t.txt", "10 20\n", 1, "neither an XC nor a fastText file"),
        ("t.txt", "__label__a b\n__label__ c\n", 2, "'labels' cannot be read"),
    ],
)
def test_bad_records_name_their_line(tmp_path: Path, name: str, content: str | bytes, line: int, what: str) -> None:
    error = refusal(tmp_path / name, content)
    assert error.where == f"{tmp_path / name}:{line}"
    assert what in str(error)


def test_parquet_without_the_columns(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    for table in ({"text": ["a"], "marks": [["x"]]}, {"words": ["a"]}):
        parquet.write_table(pyarrow.table(table), path)
        with pytest.raises(DataError, match="'labels'"):
            list(read_records(data_file(path)))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"use_dictionary": False, "compression": "zstd"},
        {"row_group_size": 700, "data_page_size": 500, "dictionary_pagesize_limit": 2000},  # turns plain in mid-group
        {"row_group_size": 5000, "data_page_version": "2.0"},
    ],
)
def test_parquet_however_it_was_packed(tmp_path: Path, settings: dict[str, Any]) -> None:
    """Row groups have dictionaries of their own, a batch crosses pages; texts and lists come out as they went in."""
    texts = [f"text {row % 997} {'x' * (row % 50)}" for row in range(6000)]
    labels = [[f"label {label}" for label in range(row % 1500, row % 1500 + row % 4)] for row in range(6000)]
    path = tmp_path / "t.parquet"
    parquet.write_table(pyarrow.table({"labels": labels, "text": texts}), path, **settings)
    read = list(read_records(data_file(path)))
    assert [record.text for record in read] == texts
    assert [record.labels for record in read] == labels


def test_an_unknown_suffix_says_what_is_read(tmp_path: Path) -> None:
    assert "jsonl, json, csv" in str(refusal(tmp_path / "t.docx", "x"))


def label_rows(path: Path, content: str | bytes) -> list[tuple[str, str | None]]:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return [(row.name, row.text) for row in read_label_rows(data_file(path))]


def test_label_files(tmp_path: Path) -> None:
    assert label_rows(tmp_path / "labels.jsonl", '{"label": "x", "text": "X"}\n{"uid": "y"}') == [
        ("x", "X"),
        ("y", None),
    ]
    assert label_rows(tmp_path / "labels.csv", "label,text\nx,X\n") == [("x", "X")]
    assert label_rows(tmp_path / "labels.tsv", "label\nx\n") == [("x", None)]
    assert label_rows(tmp_path / "labels.txt", "x\ny z\n") == [("x", None), ("y z", None)]
    assert label_rows(tmp_path / "lbl.json", '{"uid": "x", "title": "X", "content": "more"}') == [("x", "X more")]


def test_descriptive_label_lines_of_the_xc_repository(tmp_path: Path) -> None:
    content = "café\n".encode("latin-1") + b"bed\nbed\n\n"
    assert [name for name, _ in label_rows(tmp_path / "Y.txt", content)] == ["café", "bed", "bed #2", "#3"]


@pytest.mark.parametrize("content", ['{"text": "x"}', '{"label": ""}', '{"label": 3}'])
def test_a_label_needs_a_name(tmp_path: Path, content: str) -> None:
    with pytest.raises(DataError, match="'label'") as caught:
        label_rows(tmp_path / "labels.jsonl", content)
    assert caught.value.where == f"{tmp_path / 'labels.jsonl'}:1"


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ("a\n\nb", ["a", "", "b"]),
        ("\n\n", ["", ""]),
        ("", []),
        ("\na", ["", "a"]),
        ('\n{"text": "a"}\n\n{"text": "b", "uid": "1"}\n', ["a", "b"]),
        ("{a\n", ["{a"]),
        ("[1]\n{}\n", ["[1]", "{}"]),
    ],
)
def test_documents_to_predict_for(content: str, texts: list[str]) -> None:
    assert list(read_documents(io.BytesIO(content.encode()))) == texts


@pytest.mark.parametrize("second", ["plain", "[]", '{"labels": []}', '{"text": 1}'])
def test_once_json_always_json(second: str) -> None:
    with pytest.raises(DataError) as caught:
        list(read_documents(io.BytesIO(f'{{"text": "a"}}\n{second}\n'.encode())))
    assert caught.value.where is not None
    assert caught.value.where.endswith(":2")


@given(lines=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n{\ufeff"), min_size=1)))
def test_plain_lines_come_back_one_document_each(lines: list[str]) -> None:
    assert list(read_documents(io.BytesIO("\n".join(lines).encode()))) == lines
