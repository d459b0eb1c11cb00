"""Statistics and findings on small sets with planted faults, and on a clean one."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from xclearn.data import Dataset, Finding, LabelSet, Split, load_dataset, statistics, validate


def relevance(*rows: list[int]) -> sp.csr_matrix:
    return sp.csr_matrix(np.array(rows, dtype=np.float32))


clean = Dataset(
    "clean",
    Split(["red fruit", "long yellow fruit"], relevance([1, 0], [1, 1])),
    LabelSet(["apple", "banana"], ["an apple", "a banana"]),
    test=Split(["yellow"], relevance([0, 1])),
)


def found(dataset: Dataset) -> dict[str, Finding]:
    return {finding.what: finding for finding in validate(dataset)}


def test_a_clean_set_has_no_findings() -> None:
    assert validate(clean) == []


def test_statistics_by_hand() -> None:
    assert statistics(clean) == {
        "name": "clean",
        "propensity": [0.55, 1.5],
        "labels": {
            "count": 2,
            "documents_per_label": 1.5,
            "most_documents": 2,
            "fewer_than_5_documents": 2,
            "without_documents": 0,
            "text": "texts",
            "words_per_text": 2.0,
            "most_words": 2,
            "empty": 0,
        },
        "train": {
            "documents": 2,
            "kind": "texts",
            "pairs": 3,
            "labels_per_document": 1.5,
            "most_labels": 2,
            "without_labels": 0,
            "labels_used": 2,
            "filter_pairs": 0,
            "words_per_text": 2.5,
            "most_words": 3,
            "empty": 0,
        },
        "test": {
            "documents": 1,
            "kind": "texts",
            "pairs": 1,
            "labels_per_document": 1.0,
            "most_labels": 1,
            "without_labels": 0,
            "labels_used": 1,
            "filter_pairs": 0,
            "words_per_text": 1.0,
            "most_words": 1,
            "empty": 0,
        },
    }


def test_statistics_of_features() -> None:
    dense = np.array([[1, 0, 2], [0, 0, 3]], dtype=np.float32)
    for documents, kind in ((dense, "dense features"), (sp.csr_matrix(dense), "sparse features")):
        split = Split(documents, relevance([1, 0], [1, 1]))
        train = statistics(Dataset("set", split, LabelSet(["a", "b"])))["train"]
        assert (train["kind"], train["features"], train["features_per_document"]) == (kind, 3, 1.5)


def test_statistics_of_the_bundled_set_are_the_published_ones() -> None:
    counted = statistics(load_dataset("wordnet-related"))
    assert counted["train"]["labels_per_document"] == 3.094
    assert counted["test"]["labels_per_document"] == 1.449
    assert counted["labels"]["documents_per_label"] == 2.784
    assert counted["labels"]["fewer_than_5_documents"] == 91_617
    assert counted["labels"]["most_documents"] == 549
    assert (counted["train"]["words_per_text"], counted["labels"]["words_per_text"]) == (13.478, 13.56)


@pytest.mark.parametrize(
    ("dataset", "what", "count", "examples"),
    [
        (
            replace(clean, train=Split(["a b", "a b", "a b"], relevance([1, 0], [1, 1], [0, 1]))),
            "documents repeated within train",
            2,
            ("a b", "a b"),
        ),
        (
            replace(clean, test=Split(["red fruit", "x"], relevance([0, 1], [0, 1]))),
            "documents of test that are also in train",
            1,
            ("red fruit",),
        ),
        (
            replace(clean, dev=Split(["yellow"], relevance([0, 1]))),
            "documents of test that are also in dev",
            1,
            ("yellow",),
        ),
        (
            replace(clean, train=Split(["a", "b"], relevance([1, 0], [1, 0]))),
            "labels without training documents",
            1,
            ("banana",),
        ),
        (
            replace(clean, train=Split(["a", "b"], relevance([1, 0], [1, 0]))),
            "labels of test without training documents",
            1,
            ("banana",),
        ),
        (
            replace(clean, train=Split(["An apple a day", "it is an apple"], relevance([1, 0], [0, 1]))),
            "documents of train that contain the text of one of their labels",
            1,
            ("An apple a day",),
        ),
        (
            replace(clean, train=Split([" ", "b", ""], relevance([1, 1], [1, 0], [1, 0]))),
            "empty documents in train",
            2,
            ("row 0", "row 2"),
        ),
        (
            replace(clean, test=Split(["c", "d"], relevance([0, 0], [0, 1]))),
            "documents without labels in test",
            1,
            ("c",),
        ),
        (
            replace(clean, labels=LabelSet(["apple", "banana"], ["a fruit", "a fruit"])),
            "labels that share their text with another",
            2,
            ("a fruit",),
        ),
        (replace(clean, labels=LabelSet(["apple", "banana"], ["x y", ""])), "labels without text", 1, ()),
    ],
)
def test_planted_faults_are_found(dataset: Dataset, what: str, count: int, examples: tuple[str, ...]) -> None:
    finding = found(dataset)[what]
    assert (finding.severity, finding.count, finding.examples) == ("warning", count, examples)


def test_reciprocal_pairs_that_no_filter_covers() -> None:
    labels = LabelSet(["A", "B", "C"], ["item a", "item b", "item c"])
    train = Split(["item b"], relevance([1, 0, 0]))  # B → A
    test = Split(["item a"], relevance([0, 1, 1]))  # A → B is void, A → C is not
    what = "pairs of test that train holds in reverse (or an item and itself), not covered by a filter"
    uncovered = found(Dataset("items", train, labels, test=test))[what]
    assert (uncovered.count, uncovered.examples) == (1, ("item a → B",))
    covered = replace(test, filter_pairs=np.array([[0, 1], [0, 1]]))
    assert what not in found(Dataset("items", train, labels, test=covered))


@pytest.mark.parametrize(
    ("train", "what"),
    [
        (Split([], sp.csr_matrix((0, 2), dtype=np.float32)), "train has no documents"),
        (Split(["a"], relevance([0, 0])), "no training document has a label"),
        (Split(["", " "], relevance([1, 0], [0, 1])), "every training document is empty"),
        (Split(np.zeros((1, 3), dtype=np.float32), relevance([1, 1])), "every training document is empty"),
    ],
)
def test_what_would_break_training_is_an_error_and_comes_first(train: Split, what: str) -> None:
    findings = validate(Dataset("broken", train, clean.labels))
    assert [finding.what for finding in findings if finding.severity == "error"] == [what]
    assert findings[0].what == what


def test_examples_are_few_and_short() -> None:
    documents = [f"{'long ' * 50}{number}" for number in range(9)]
    finding = found(replace(clean, train=Split(documents * 2, relevance(*[[1, 1]] * 18))))[
        "documents repeated within train"
    ]
    assert (finding.count, len(finding.examples)) == (9, 3)
    assert max(map(len, finding.examples)) == 80


def test_near_copies_between_splits_are_found_beside_equal_texts() -> None:
    words = [f"one{row} two{row} three{row} four{row}" for row in range(20)]
    train = Split(words, relevance(*[[1, 0]] * 20))
    test = Split([words[0], f"{words[1]} more", "five six seven", f"less {words[2]}"], relevance(*[[0, 1]] * 4))
    dataset = Dataset("copies", train, LabelSet(["a", "b"]), test=test, dev=test.take(np.array([2])))
    copies = found(dataset)["documents of test that nearly repeat one of train"]
    assert (copies.severity, copies.count) == ("warning", 2)
    assert copies.examples == (f"{words[1]} more ~ {words[1]}", f"less {words[2]} ~ {words[2]}")
    assert found(dataset)["documents of test that are also in train"].count == 1
    assert "documents of dev that nearly repeat one of train" not in found(dataset)
    features = sp.csr_matrix(np.eye(3, dtype=np.float32))
    numbers = Dataset(
        "numbers",
        Split(features, relevance([1], [1], [1])),
        LabelSet(["a"]),
        test=Split(2 * features[:1], relevance([1])),
    )
    assert found(numbers)["documents of test that nearly repeat one of train"].examples == ("row 0 ~ row 0",)
