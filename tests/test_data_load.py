"""From files to a Dataset: label ids, splits, names, and the sentence that each kind of bad input gets."""

import gzip
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from xclearn.data import Reading, bundled_datasets, load_dataset
from xclearn.errors import DataError, XclearnError


def jsonl(path: Path, *rows: dict[str, Any]) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def document(text: str, *labels: str | int) -> dict[str, object]:
    return {"text": text, "labels": list(labels)}


def test_without_a_label_file_labels_are_trains_names_in_order_then_those_of_other_splits(tmp_path: Path) -> None:
    jsonl(tmp_path / "train.jsonl", document("a", "pear", "fig"), document("b"), document("c", "pear", "pear"))
    jsonl(tmp_path / "test.jsonl", document("d", "quince", "fig", "apple"))
    data = load_dataset(tmp_path)
    assert data.labels.names == ["fig", "pear", "apple", "quince"]
    assert data.labels.texts is None
    np.testing.assert_array_equal(data.train.relevance.toarray(), [[1, 1, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0]])
    np.testing.assert_array_equal(data.split("test").relevance.toarray(), [[1, 0, 1, 1]])
    assert data.train.relevance.dtype == np.float32


def test_with_a_label_file_names_and_row_numbers_mean_its_rows(tmp_path: Path) -> None:
    jsonl(tmp_path / "labels.jsonl", {"uid": "z", "text": "Z"}, {"uid": "a"}, {"uid": "m", "text": "M"})
    jsonl(tmp_path / "train.jsonl", document("x", 2, "z"), document("y", "a"))
    (tmp_path / "filter_train.txt").write_text("1 0\n")
    data = load_dataset(tmp_path, name="mine")
    assert (data.name, data.labels.names, data.labels.texts) == ("mine", ["z", "a", "m"], ["Z", "", "M"])
    np.testing.assert_array_equal(data.train.relevance.toarray(), [[1, 0, 1], [0, 1, 0]])
    np.testing.assert_array_equal(data.train.filter_pairs, [[1, 0]])


def test_a_single_file_is_a_train_set_named_after_it(tmp_path: Path) -> None:
    path = tmp_path / "fruit.csv.gz"
    path.write_bytes(gzip.compress(b"text,labels\na,x|y\n"))
    data = load_dataset(path, label_separator="|")
    assert (data.name, data.labels.names, data.test, data.dev) == ("fruit", ["x", "y"], None, None)


def test_formats_of_splits_may_differ(tmp_path: Path) -> None:
    jsonl(tmp_path / "train.jsonl", document("a", "x"))
    (tmp_path / "dev.csv").write_text("text,labels\nb,x\n")
    (tmp_path / "test.txt").write_text("__label__x c\n")
    data = load_dataset(tmp_path)
    assert [data.split(name).documents for name in ("train", "dev", "test")] == [["a"], ["b"], ["c"]]


def test_the_old_xc_format_with_label_names(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("2 3 2\n1 0:1\n 2:1\n")
    (tmp_path / "test.txt").write_text("1 3 2\n0,1 1:2\n")
    data = load_dataset(tmp_path)
    assert data.labels.names == ["0", "1"]
    np.testing.assert_array_equal(data.train.documents.toarray(), [[1, 0, 0], [0, 0, 1]])
    (tmp_path / "labels.txt").write_text("no\nyes\n")
    assert load_dataset(tmp_path).labels.names == ["no", "yes"]


def test_matrices_with_label_features(tmp_path: Path) -> None:
    sp.save_npz(tmp_path / "X.trn.npz", sp.csr_matrix(np.eye(3)))
    sp.save_npz(tmp_path / "Y.trn.npz", sp.csr_matrix(np.array([[0, 1], [1, 0], [0, 0]])))
    (tmp_path / "Yf.txt").write_text("2 3\n0:1\n1:1 2:1\n")
    (tmp_path / "Y.txt").write_text("sofa\nsofa\n")
    data = load_dataset(tmp_path)
    assert data.labels.names == ["sofa", "sofa #1"]
    np.testing.assert_array_equal(data.labels.texts.toarray(), [[1, 0, 0], [0, 1, 1]])


def test_propensity_comes_from_the_file_then_the_name_then_the_default(tmp_path: Path) -> None:
    jsonl(tmp_path / "train.jsonl", document("a", "x"))
    assert load_dataset(tmp_path).propensity == (0.55, 1.5)
    assert load_dataset(tmp_path, name="Amazon-670K").propensity == (0.6, 2.6)
    (tmp_path / "dataset.json").write_text('{"name": "Amazon-670K", "propensity": [0.1, 0.2]}')
    data = load_dataset(tmp_path)
    assert (data.name, data.propensity) == ("Amazon-670K", (0.1, 0.2))


def test_one_label_and_an_empty_text_work(tmp_path: Path) -> None:
    jsonl(tmp_path / "train.jsonl", document("", "x"))
    assert load_dataset(tmp_path).train.relevance.shape == (1, 1)


@pytest.mark.parametrize(
    ("files", "what"),
    [
        ({"train.jsonl": ""}, "train.jsonl: the file is empty"),
        ({"train.csv": "text,labels\n"}, "train.csv: the file has a header and no rows"),
        ({"train.txt": ""}, "neither an XC nor a fastText file|the file is empty"),
        ({"train.jsonl": '{"text": "a", "labels": []}'}, "train.jsonl: no document has a label"),
        ({"train.txt": "1 1 1\n 0:1\n"}, "train.txt: no document has a label"),
        ({"train.jsonl": '{"text": "a", "labels": [0]}'}, "train.jsonl:1: an integer is a row .* there is none"),
        (
            {"train.jsonl": '{"text": "a", "labels": [1]}', "labels.txt": "x\n"},
            r"train.jsonl:1: no such row in the label file; got 1; allowed: 0 to 0",
        ),
        (
            {"train.jsonl": '{"text": "a", "labels": ["x"]}\n{"text": "a", "labels": ["q"]}', "labels.txt": "x\n"},
            "train.jsonl:2: this label is not in the label file; got 'q'",
        ),
        (
            {"train.jsonl": '{"text": "a", "labels": ["x"]}', "labels.txt": "x\ny\nx\n"},
            "labels.txt:1 and .*labels.txt:3: a label occurs twice in the file; got 'x'",
        ),
        ({"train.jsonl": '{"text": "a", "labels": ["x"]}', "labels.jsonl": ""}, "labels.jsonl: the file is empty"),
        (
            {"train.jsonl": '{"text": "a", "labels": ["x"], "uid": "1"}\n{"text": "b", "labels": ["x"]}'},
            "train.jsonl:2: some documents have a 'uid'",
        ),
        (
            {"train.jsonl": '{"text": "a", "labels": ["x"]}', "test.txt": "1 1 1\n0 0:1\n"},
            "some splits have texts, others features",
        ),
        ({"train.txt": "1 1 2\n0 0:1\n", "labels.txt": "x\n"}, "train has 2 labels, but the label file .*; got 1"),
        ({"train.txt": "1 1 2\n0 0:1\n", "Yf.txt": "1 1\n0:1\n"}, "train has 2 labels, but the label file .*; got 1"),
        ({"train.txt": "1 1 2000000000\n0 0:1\n"}, "train.txt: more labels than the library supports"),
        ({"train.txt": "1 1 1\n0 0:1\n", "test.txt": "1 2 1\n0 0:1\n"}, r"differ .* \(features, labels\)"),
        (
            {"trn_X_Xf.txt": "1 1\n0:1\n", "trn_X_Y.txt": "2 1\n0:1\n0:1\n"},
            r"documents and their labels differ in rows; got \(1, 2\)",
        ),
        (
            {"train.txt": "1 1 1\n0 0:1\n", "Yf.txt": "1 1\n0:1\n", "labels.csv": "label,text\nx,X\n"},
            "both texts and features",
        ),
        ({"train.jsonl": '{"text": "a", "labels": ["x"]}', "Yf.txt": "1 1\n0:1\n"}, "documents are texts, labels are"),
    ],
)
def test_bad_folders_get_a_sentence_that_names_the_file(tmp_path: Path, files: dict[str, str], what: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=what):
        load_dataset(tmp_path)


def test_an_unknown_name_gets_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="Did you mean 'wordnet-related'"):
        load_dataset("wordnet-relatd")
    with pytest.raises(DataError, match="Known: wordnet-related"):
        load_dataset(tmp_path / "absent.jsonl")


def test_the_bundled_set_is_what_was_counted_when_it_was_made() -> None:
    assert bundled_datasets() == ["wordnet-related"]
    start = time.process_time()
    data = load_dataset("wordnet-related")
    seconds = time.process_time() - start
    assert data.test is not None
    assert (len(data.train), len(data.test), data.n_labels) == (93_445, 9_279, 103_849)
    assert (data.name, data.propensity, len(data.test.filter_pairs)) == ("wordnet-related", (0.55, 1.5), 30_271)
    assert data.labels.texts is not None
    assert data.labels.names[:1] == ["a00001740"]
    first = data.train.relevance[0].indices
    assert data.train.names is not None
    assert (data.train.names[0], first.tolist()) == ("n00001740", [15_320, 15_321, 38_174])
    assert seconds < 8, f"loading took {seconds:.1f} s of CPU"  # 1.5 s where this was written


def test_the_bundled_set_carries_its_licence() -> None:
    import xclearn.data.load

    folder = Path(xclearn.data.load.__file__).parent / "bundled" / "wordnet-related"
    assert "WordNet 3.1 Copyright 2011 by Princeton University" in (folder / "LICENSE").read_text()


CAFE = "text,labels\ncafé au lait,drink\n"


@pytest.mark.parametrize(
    ("name", "content", "asked", "help"),
    [
        ("a.csv", CAFE.encode("cp1252"), {}, "iconv -f WINDOWS-1252 -t UTF-8"),
        ("a.csv", CAFE.encode("utf-16"), {}, "iconv -f UTF-16 -t UTF-8"),
        ("a.csv", b"", {}, "the file is empty"),
        ("a.csv", b"id;Message;Team\n1;paper jam;printer\n", {}, "--text-column and --label-column"),
        ("a.csv", b"text,labels\npaper,jam,printer\n", {}, "--delimiter"),
        ("a.txt", b"id\ttext\tlabels\n1\tpaper jam\tprinter\n", {}, "Rename a table with columns to .csv or .tsv"),
        ("a.json", b'[{"text": "paper jam", "labels": ["printer"]}]', {}, "jq -c '.[]'"),
        ("a.xlsx", b"PK\x03\x04", {}, "CSV (UTF-8)"),
        ("a.tsv", b"<http://example.org/printer>\tprinter\n", {}, "--vocab"),
        ("a.csv", CAFE.encode(), {"language": "fi"}, "--vocab. To stem words, use --set vectoriser.language"),
        ("a.csv", CAFE.encode(), {"vocab": "nowhere.tsv"}, "--vocab: no such file"),
        ("a.csv", CAFE.encode(), {"vocab": "a.csv"}, "a vocabulary for --vocab has uri and label_en"),
    ],
)
def test_a_wrong_file_is_told_with_what_would_help(tmp_path, monkeypatch, name, content, asked, help):
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(content)
    with pytest.raises(XclearnError) as caught:
        load_dataset(name, reading=Reading(**asked))
    assert help in str(caught.value)
    assert "\n" not in str(caught.value)
