"""Which file plays which part, by file names alone."""

from pathlib import Path

import pytest

from xclearn.data.folder import About, data_file, find_files, read_about
from xclearn.errors import DataError


def folder_of(tmp_path: Path, *names: str) -> Path:
    for name in names:
        (tmp_path / name).touch()
    return tmp_path


def parts(folder: Path) -> dict[str, dict[str, str]]:
    return {role: {part: file.path.name for part, file in found.items()} for role, found in find_files(folder).items()}


def test_names_and_suffixes() -> None:
    for name, stem, suffix in (
        ("train.jsonl.gz", "train", "jsonl"),
        ("X.trn.npz", "X.trn", "npz"),
        ("a.CSV", "a", "csv"),
    ):
        file = data_file(Path(name))
        assert (file.stem, file.suffix) == (stem, suffix)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["train.jsonl.xz", "stats.json"], {"train": {"records": "train.jsonl.xz"}}),
        (
            ["trn.json.gz", "tst.json.gz", "lbl.json.gz", "filter_labels_test.txt"],
            {
                "train": {"records": "trn.json.gz"},
                "test": {"records": "tst.json.gz", "filter": "filter_labels_test.txt"},
                "labels": {"records": "lbl.json.gz"},
            },
        ),
        (
            ["trn_X_Xf.txt", "trn_X_Y.txt", "Yf.txt", "Y.txt", "Xf.txt"],
            {
                "train": {"features": "trn_X_Xf.txt", "relevance": "trn_X_Y.txt"},
                "labels": {"features": "Yf.txt", "records": "Y.txt"},
            },
        ),
        (["X.trn.npz", "Y.trn.npz"], {"train": {"features": "X.trn.npz", "relevance": "Y.trn.npz"}}),
        (["train_X.npy", "train_Y.npz"], {"train": {"features": "train_X.npy", "relevance": "train_Y.npz"}}),
        (["train.csv", "dev.tsv"], {"train": {"records": "train.csv"}, "dev": {"records": "dev.tsv"}}),
    ],
)
def test_layouts(tmp_path: Path, names: list[str], expected: dict[str, dict[str, str]]) -> None:
    assert parts(folder_of(tmp_path, *names)) == expected


@pytest.mark.parametrize(
    ("names", "mentioned"),
    [
        (["train.jsonl", "train.csv"], ["train.jsonl", "train.csv", "claims to be train"]),
        (["train.jsonl", "trn.json.gz"], ["train.jsonl", "trn.json.gz"]),
        (["train.jsonl", "train_X.npz", "train_Y.npz"], ["train.jsonl", "train_X.npz"]),
        (["train.jsonl", "labels.csv", "labels.txt"], ["labels.csv", "labels.txt"]),
        (["train_X.npz"], ["train needs documents and their labels", "train_X.npz"]),
        (["train.jsonl", "test_Y.npz"], ["test needs documents and their labels", "test_Y.npz"]),
        (["train.jsonl", "filter_test.txt"], ["test needs documents", "filter_test.txt"]),
        (["test.jsonl", "README.md"], ["no training file", "train.jsonl"]),
        (["train.pickle"], ["no training file"]),
        (["train.parquet.gz"], ["train.parquet.gz", "Unpack it"]),
    ],
)
def test_folders_that_say_too_much_or_too_little(tmp_path: Path, names: list[str], mentioned: list[str]) -> None:
    with pytest.raises(DataError) as caught:
        find_files(folder_of(tmp_path, *names))
    for words in mentioned:
        assert words in str(caught.value)


def test_dataset_json(tmp_path: Path) -> None:
    path = tmp_path / "dataset.json"
    assert read_about(path) == About()
    path.write_text('{"name": "mine", "propensity": [0.6, 2], "label_separator": "|"}')
    assert read_about(path) == About("mine", (0.6, 2.0), "|")


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ('{"separator": "|"}', "Did you mean 'label_separator'"),
        ('{"name": 3}', "'name' must be a text"),
        ('{"label_separator": ""}', "'label_separator' must be a text"),
        ('{"propensity": [0.5]}', "two numbers"),
        ('{"propensity": [0.5, NaN]}', "two numbers"),
        ('{"propensity": [true, 1]}', "two numbers"),
        ("[]", "not a JSON object"),
        ("{", "not JSON"),
    ],
)
def test_bad_dataset_json(tmp_path: Path, content: str, what: str) -> None:
    (tmp_path / "dataset.json").write_text(content)
    with pytest.raises(DataError, match=what):
        read_about(tmp_path / "dataset.json")
