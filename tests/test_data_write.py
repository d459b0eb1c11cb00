"""Writing then reading is the identity, for every format; damaged files are read or refused, never anything else."""

import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from xclearn.data import Dataset, LabelSet, Split, load_dataset, write_dataset
from xclearn.data.write import FORMATS
from xclearn.errors import ConfigError, DataError, XclearnError

TEXT_FORMATS, FEATURE_FORMATS = ("jsonl", "csv", "parquet"), ("xc", "npz")
numbers = st.floats(width=32, allow_nan=False, allow_infinity=False)


@st.composite
def relevances(draw: Any, n_rows: int, n_labels: int) -> sp.csr_matrix:
    rows = draw(st.lists(st.sets(st.integers(0, n_labels - 1)), min_size=n_rows, max_size=n_rows))
    dense = np.zeros((n_rows, n_labels), dtype=np.float32)
    for row, labels in enumerate(rows):
        dense[row, sorted(labels)] = 1.0
    dense[0, 0] = 1.0  # a set without any label is refused
    return sp.csr_matrix(dense)


@st.composite
def features(draw: Any, n_rows: int, width: int, kind: str) -> sp.csr_matrix | np.ndarray:
    values = draw(st.lists(numbers, min_size=n_rows * width, max_size=n_rows * width))
    dense = np.array(values, dtype=np.float32).reshape(n_rows, width)
    return sp.csr_matrix(dense) if kind == "sparse" else dense


@st.composite
def pairs(draw: Any, n_rows: int, n_labels: int) -> np.ndarray:
    found = draw(st.lists(st.tuples(st.integers(0, n_rows - 1), st.integers(0, n_labels - 1)), max_size=3))
    return np.array(found, dtype=np.int64).reshape(-1, 2)


@st.composite
def text_sets(draw: Any) -> Dataset:
    names = draw(st.lists(st.text(min_size=1), min_size=1, max_size=5, unique=True))
    texts = draw(st.none() | st.lists(st.text(), min_size=len(names), max_size=len(names)))

    def split() -> Split:
        documents = draw(st.lists(st.text(), min_size=1, max_size=4))
        n = len(documents)
        uids = draw(st.none() | st.lists(st.text(), min_size=n, max_size=n))
        return Split(documents, draw(relevances(n, len(names))), draw(pairs(n, len(names))), uids)

    dev, test = (split() if draw(st.booleans()) else None for _ in range(2))
    propensity = draw(st.sampled_from([(0.55, 1.5), (0.6, 2.6), (0.1, 0.0)]))
    return Dataset(draw(st.text(min_size=1)), split(), LabelSet(names, texts), test, dev, propensity)


@st.composite
def feature_sets(draw: Any, kind: str) -> Dataset:
    names = draw(st.lists(st.text(min_size=1), min_size=1, max_size=4, unique=True))
    width = draw(st.integers(1, 3))
    label_kind = draw(st.sampled_from(["none", "texts", kind]))
    texts: Any = None
    if label_kind != "none":
        one_each = st.lists(st.text(), min_size=len(names), max_size=len(names))
        texts = draw(one_each if label_kind == "texts" else features(len(names), width, kind))

    def split() -> Split:
        n = draw(st.integers(1, 4))
        documents = draw(features(n, width, kind))
        return Split(documents, draw(relevances(n, len(names))), draw(pairs(n, len(names))))

    dev, test = (split() if draw(st.booleans()) else None for _ in range(2))
    return Dataset("name", split(), LabelSet(names, texts), test, dev)


def assert_same_documents(one: Any, other: Any) -> None:
    if isinstance(one, np.ndarray):
        assert isinstance(other, np.ndarray)
        np.testing.assert_array_equal(one, other)
    elif sp.issparse(one):
        assert sp.issparse(other)
        assert one.shape == other.shape
        assert (one != other).nnz == 0
    else:
        assert one == other


def assert_same(one: Dataset, other: Dataset) -> None:
    assert (one.name, one.propensity, list(one.splits)) == (other.name, other.propensity, list(other.splits))
    assert list(one.labels.names) == list(other.labels.names)
    assert_same_documents(one.labels.texts, other.labels.texts)
    for left, right in zip(one.splits.values(), other.splits.values(), strict=True):
        assert_same_documents(left.documents, right.documents)
        assert_same_documents(left.relevance, right.relevance)
        assert right.relevance.has_canonical_format
        np.testing.assert_array_equal(left.filter_pairs, right.filter_pairs)
        assert left.names == right.names


def written_and_read(dataset: Dataset, format: str) -> Dataset:
    with tempfile.TemporaryDirectory() as parent:
        write_dataset(dataset, Path(parent) / "set", format)
        return load_dataset(Path(parent) / "set")


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
@given(dataset=text_sets())
def test_texts_round_trip(format: str, dataset: Dataset) -> None:
    assert_same(dataset, written_and_read(dataset, format))


@given(dataset=text_sets())
def test_texts_round_trip_through_csv_unless_it_says_that_it_cannot(dataset: Dataset) -> None:
    names = dataset.labels.names
    fits = all(name == name.strip() for name in names)
    if fits and not all(any(mark in name for name in names) for mark in ";|\t\x1f"):
        assert_same(dataset, written_and_read(dataset, "csv"))
    else:
        with pytest.raises(DataError, match="CSV"):
            written_and_read(dataset, "csv")


@pytest.mark.parametrize("format", FEATURE_FORMATS)
@given(dataset=feature_sets("sparse"))
def test_sparse_features_round_trip(format: str, dataset: Dataset) -> None:
    assert_same(dataset, written_and_read(dataset, format))


@given(dataset=feature_sets("dense"))
def test_dense_features_round_trip(dataset: Dataset) -> None:
    assert_same(dataset, written_and_read(dataset, "npz"))


def small(kind: str = "texts") -> Dataset:
    relevance = sp.csr_matrix(np.array([[1, 0], [1, 1], [0, 0]], dtype=np.float32))
    filter_pairs = np.array([[0, 1]])
    if kind == "texts":
        split = Split(["a cat", "a “dog”, too", ""], relevance, filter_pairs, ["u1", "u2", "u3"])
        return Dataset("small", split, LabelSet(["cat", "dog"], ["a cat", "the dog"]), test=split)
    dense = np.array([[0.5, 0], [0, -2], [1e-3, 7]], dtype=np.float32)
    documents = dense if kind == "dense" else sp.csr_matrix(dense)
    split = Split(documents, relevance, filter_pairs)
    return Dataset("small", split, LabelSet(["cat", "dog"], documents[:2]), test=split)


def damaged(data: bytes, draw: Any) -> bytes:
    """A few bytes flipped, cut out or put in."""
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(["flip", "cut", "insert", "truncate"])):
            case "flip":
                data = (
                    data[:place]
                    + bytes(byte ^ draw(st.integers(1, 255)) for byte in data[place : place + 1])
                    + data[place + 1 :]
                )
            case "cut":
                data = data[:place] + data[place + draw(st.integers(1, 9)) :]
            case "insert":
                data = (
                    data[:place]
                    + draw(st.binary(min_size=1, max_size=4) | st.sampled_from([b"\n", b'"', b"9", b"nan"]))
                    + data[place:]
                )
            case "truncate":
                data = data[:place]
    return data


@pytest.fixture(scope="module")
def folders() -> Iterator[dict[str, Path]]:
    with tempfile.TemporaryDirectory() as parent:
        made = {}
        for format in FORMATS:
            made[format] = Path(parent) / format
            write_dataset(small("texts" if format in TEXT_FORMATS else "sparse"), made[format], format)
        made["npy"] = Path(parent) / "npy"
        write_dataset(small("dense"), made["npy"], "npz")
        yield made


def loaded_or_refused(folder: Path) -> Dataset | XclearnError:
    try:
        return load_dataset(folder)
    except XclearnError as error:
        return error


@pytest.mark.parametrize("format", [*FORMATS, "npy"])
@settings(max_examples=100)
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused(folders: dict[str, Path], format: str, data: st.DataObject) -> None:
    files = sorted(folders[format].iterdir())
    assert len(files) >= 6
    file = data.draw(st.sampled_from(files))
    whole = file.read_bytes()
    try:
        file.write_bytes(damaged(whole, data.draw))
        outcome = loaded_or_refused(folders[format])
        assert str(folders[format]) in str(outcome) if isinstance(outcome, XclearnError) else outcome.n_labels > 0
    finally:
        file.write_bytes(whole)


@pytest.mark.parametrize(
    ("dataset", "format", "what"),
    [
        (small("texts"), "xc", "cannot hold texts"),
        (small("texts"), "npz", "cannot hold texts"),
        (small("sparse"), "jsonl", "cannot hold sparse features"),
        (small("dense"), "xc", "cannot hold dense features"),
        (replace(small("texts"), labels=LabelSet(["cat", "dog"], np.eye(2))), "csv", "for labels"),
        (
            replace(small("sparse"), test=replace(small("sparse").train, names=["a", "b", "c"])),
            "npz",
            "names of documents",
        ),
        (
            replace(small("texts"), test=small("texts").train.take(np.array([], dtype=int))),
            "jsonl",
            "test has no documents",
        ),
        (replace(small("texts"), name="half \ud800"), "jsonl", "surrogate"),
    ],
)
def test_what_a_format_cannot_hold_is_refused_and_nothing_is_left(
    tmp_path: Path, dataset: Dataset, format: str, what: str
) -> None:
    with pytest.raises(DataError, match=what):
        write_dataset(dataset, tmp_path / "set", format)
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on file sizes")
@pytest.mark.parametrize("format", FORMATS)
def test_a_disk_that_takes_no_more_is_our_error_and_leaves_nothing(tmp_path: Path, format: str) -> None:
    import resource

    dataset = small("texts" if format in TEXT_FORMATS else "sparse")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, hard))  # every file ends after four bytes
    try:
        with pytest.raises(DataError, match="writing failed"):
            write_dataset(dataset, tmp_path / "set", format)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(tmp_path) == []


def test_an_unknown_format_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Did you mean 'parquet'"):
        write_dataset(small(), tmp_path / "set", "paquet")


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(DataError, match="not empty"):
        write_dataset(small(), tmp_path)
    assert os.listdir(tmp_path) == ["mine"]


def test_xc_text_is_what_other_tools_expect(tmp_path: Path) -> None:
    write_dataset(small("sparse"), tmp_path / "set", "xc")
    assert (tmp_path / "set" / "trn_X_Xf.txt").read_text() == "3 2\n0:0.5\n1:-2.0\n0:0.001 1:7.0\n"
    assert (tmp_path / "set" / "trn_X_Y.txt").read_text() == "3 2\n0:1.0\n0:1.0 1:1.0\n\n"
    assert (tmp_path / "set" / "Y.txt").read_text() == "cat\ndog\n"
    assert (tmp_path / "set" / "filter_labels_test.txt").read_text() == "0 1\n"
