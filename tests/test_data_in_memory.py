"""Data sets of lists and frames: the same rows, whatever holds them; and one sentence for what holds none."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
import scipy.sparse as sp

import xclearn
from xclearn.data import Dataset, Reading
from xclearn.data.in_memory import dataset_of
from xclearn.errors import DataError

TEXTS = ["paper jam", "no network", "print over the network"]
LABELS = [["printer"], ["network"], ["network", "printer"]]
EXPECTED = [[0, 1], [1, 0], [1, 1]]


class HubDataset:
    """What a Hugging Face dataset can do, as far as it is used: `column_names`, and a column by its name."""

    column_names = ("text", "labels")

    def __getitem__(self, name: str) -> list[Any]:
        return {"text": TEXTS, "labels": LABELS}[name]


def check(data: Dataset) -> None:
    assert list(data.train.documents) == TEXTS
    assert list(data.labels.names) == ["network", "printer"]
    assert data.train.relevance.toarray().tolist() == EXPECTED


@pytest.mark.parametrize(
    ("texts", "labels"),
    [
        (TEXTS, LABELS),
        (np.array(TEXTS), [tuple(names) for names in LABELS]),
        (pyarrow.array(TEXTS), pyarrow.chunked_array([LABELS[:2], LABELS[2:]])),
        (iter(TEXTS), ["printer", "network", "network; printer"]),
        (TEXTS, [np.array(names) for names in LABELS]),
    ],
)
def test_texts_and_the_labels_of_each(texts: Any, labels: Any) -> None:
    check(dataset_of(texts, labels))


def test_frames() -> None:
    columns = {"text": TEXTS, "labels": LABELS}
    for frame in (columns, pyarrow.table(columns), HubDataset()):
        check(dataset_of(frame))
    other = pyarrow.table({"day": [1, 2, 3], "Words": TEXTS, "Tags": ["printer", "network", "network|printer"]})
    check(Dataset.from_frame(other, Reading("Words", label_separator="|")))


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_of_other_libraries(library: str) -> None:
    frames = pytest.importorskip(library)
    frame = frames.DataFrame({"Text": TEXTS, "Tags": LABELS})
    check(dataset_of(frame))
    check(dataset_of(frame["Text"], frame["Tags"]))
    missing = Dataset.from_frame(frames.DataFrame({"text": ["a", "b"], "label": ["x", None]}))
    assert missing.train.relevance.toarray().tolist() == [[1], [0]]


def test_a_matrix_numbers_its_labels() -> None:
    for labels in (np.array(EXPECTED), sp.csr_matrix(EXPECTED)):
        data = dataset_of(TEXTS, labels)
        assert list(data.labels.names) == ["0", "1"]
        assert data.train.relevance.toarray().tolist() == EXPECTED


def test_label_texts_as_a_dict_or_a_frame() -> None:
    says = {"printer": "printers, scanners", "disk": "full disks"}
    table = pyarrow.table({"label": list(says), "text": list(says.values())})
    for label_texts in (says, table):
        data = Dataset.from_lists(TEXTS, LABELS, label_texts=label_texts)
        assert list(data.labels.names) == ["network", "printer", "disk"]
        assert data.labels.texts == ["", "printers, scanners", "full disks"]
        assert data.train.relevance.toarray().tolist() == [[*row, 0] for row in EXPECTED]


@pytest.mark.parametrize(
    ("data", "labels", "sentence"),
    [
        (TEXTS, None, "not training data; got 'list'.*Call fit.dataset., fit.texts, labels. or fit.frame."),
        (3, None, "not training data; got 'int'"),
        (TEXTS, LABELS[:2], r"documents and relevance differ in rows; got \(3, 2\)"),
        (["a", 3], [["x"], ["y"]], "row 1: a text must be a text; got 3"),
        (TEXTS, [["x"], [1.5], []], "row 1: a label must be a text or a whole number; got 1.5"),
        (TEXTS, np.full((3, 2), 0.5), "the labels are not a binary matrix"),
        ({"a": TEXTS, "b": LABELS}, None, "no columns of texts and labels; got 'a, b'.*Reading"),
        (Dataset.from_lists(TEXTS, LABELS), LABELS, "a Dataset already has labels"),
    ],
)
def test_what_is_no_data_set_is_told(data: Any, labels: Any, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        dataset_of(data, labels)


def test_a_fitted_model_has_what_a_loaded_one_has(tmp_path: Path) -> None:
    fitted = xclearn.SparseOneVsAll().fit(TEXTS, LABELS, device="cpu")
    fitted.save(tmp_path / "model")
    loaded = xclearn.load(tmp_path / "model")
    asked = ["network", "jam"]
    for ours, theirs in zip(fitted.suggest(asked, 1), loaded.suggest(asked, 1), strict=True):
        assert (ours[0].label, ours[0].score) == (theirs[0].label, pytest.approx(theirs[0].score, abs=1e-5))
    ids, scores = fitted.predict(asked, 1)
    assert [[label, score] for label, score, _ in (row[0] for row in fitted.suggest(asked, 1))] == [
        [["network", "printer"][label], score] for label, score in zip(ids[:, 0], scores[:, 0], strict=True)
    ]
    frame = {"text": TEXTS, "tags": LABELS}
    reports = [fitted.evaluate(frame), loaded.evaluate(frame), xclearn.evaluate(tmp_path / "model", frame)]
    assert [report.values for report in reports] == [pytest.approx(reports[0].values)] * 3
    loaded.save(tmp_path / "again")
    assert xclearn.load(tmp_path / "again").suggest(asked, 1) == loaded.suggest(asked, 1)


def test_a_column_of_texts_is_predicted_like_a_list(tmp_path: Path) -> None:
    fitted = xclearn.SparseOneVsAll().fit(TEXTS, LABELS, device="cpu")
    fitted.save(tmp_path / "model")
    asked = ["network", "jam"]
    for model in (fitted, xclearn.load(tmp_path / "model")):
        for column in (
            pyarrow.array(asked),
            pyarrow.chunked_array([asked[:1], asked[1:]]),
            np.array(asked),
            np.array(asked, object),
        ):
            assert model.suggest(column, 1) == model.suggest(asked, 1)
        with pytest.raises(DataError, match="not the kind of documents"):
            model.predict(np.ones(3), 1)
