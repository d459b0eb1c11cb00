"""The hold-out: who goes where, and which pairs are void, against loops over all pairs."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from xclearn.data import Dataset, LabelSet, Split, hold_out, load_dataset
from xclearn.data.near_copies import ALIKE, comparable_rows
from xclearn.data.splits import fingerprints, hold_outs, pairs_matrix, parted, void_pairs, with_test
from xclearn.errors import ConfigError
from xclearn.inference.sparse import unit_rows

Rows = list[set[int]]


def split_of(documents: list[str], rows: Rows, n_labels: int, names: list[str] | None = None) -> Split:
    pairs = np.array([(row, label) for row, labels in enumerate(rows) for label in labels]).reshape(-1, 2)
    return Split(documents, pairs_matrix(pairs, (len(rows), n_labels)), names=names)


def texts_set(documents: list[str]) -> Dataset:
    rows = [{index % 3} for index in range(len(documents))]
    return Dataset("set", split_of(documents, rows, 3), LabelSet(["a", "b", "c"]))


many = texts_set([f"text {number // 2}" for number in range(1000)])  # every text twice


def test_sizes() -> None:
    for fraction, most, expected in ((0.05, 5000, 50), (0.3, 5000, 300), (0.3, 40, 40), (0.0001, 5000, 2)):
        train, held = hold_out(many, fraction=fraction, most=most)
        assert (len(train), len(held)) == (1000 - expected, expected)
    train, held = hold_out(texts_set([str(number) for number in range(20)]))
    assert len(held) == 1
    assert len(hold_out(texts_set([str(number) for number in range(19)]))[1]) == 0
    assert len(hold_out(texts_set(["same"] * 30))[1]) == 0


def test_nothing_is_lost_and_no_text_is_on_both_sides() -> None:
    train, held = hold_out(many)
    assert sorted([*train.documents, *held.documents]) == sorted(many.train.documents)
    assert not set(train.documents) & set(held.documents)


def test_the_cut_follows_text_and_seed_not_row_order() -> None:
    held = hold_out(many)[1].documents
    backwards = replace(many, train=many.train.take(np.arange(1000)[::-1]))
    assert set(hold_out(backwards)[1].documents) == set(held)
    assert hold_out(many)[1].documents == held
    assert set(hold_out(many, seed=1)[1].documents) != set(held)


def test_features_are_cut_by_their_rows() -> None:
    dense = np.repeat(np.arange(200, dtype=np.float32)[:, None], 2, axis=0) @ np.ones((1, 3), dtype=np.float32)
    relevance = sp.csr_matrix(np.ones((400, 1), dtype=np.float32))
    for documents in (dense, sp.csr_matrix(dense)):
        train, held = hold_out(Dataset("set", Split(documents, relevance), LabelSet(["a"])), fraction=0.1)
        values = [side.documents.toarray() if sp.issparse(side.documents) else side.documents for side in (train, held)]
        assert len(held) == 40
        assert not set(values[0][:, 0]) & set(values[1][:, 0])


def test_fingerprints_are_the_same_on_every_machine() -> None:
    digest = hashlib.blake2b(b"a text", digest_size=8, key=b"7").digest()
    assert fingerprints(["a text"], seed=7).tolist() == [int.from_bytes(digest, "little")]
    same = np.array([[0, 1.5]], dtype=np.float32)
    assert fingerprints(same)[0] == fingerprints(same.astype(np.float64))[0]
    narrow, wide = sp.csr_matrix(same), sp.csr_matrix(same)
    wide.indices = wide.indices.astype(np.int64)
    assert fingerprints(narrow)[0] == fingerprints(wide)[0]


@pytest.mark.parametrize("settings", [{"fraction": 0.0}, {"fraction": 1.0}, {"most": 0}])
def test_senseless_settings_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="fraction"):
        hold_out(many, **settings)


def void_by_hand(train: Split, other: Split, labels: LabelSet) -> set[tuple[int, int]]:
    def same(split: Split, row: int, label: int) -> bool:
        by_name = split.names is not None and split.names[row] == labels.names[label]
        texts = labels.texts
        return by_name or (texts is not None and split.documents[row] == texts[label] and split.documents[row] != "")

    def labels_of(split: Split, row: int) -> list[int]:
        return split.relevance[row].indices.tolist()

    return {
        (row, label)
        for row in range(len(other))
        for label in range(len(labels))
        if same(other, row, label)
        or any(
            same(train, document, label) and any(same(other, row, mine) for mine in labels_of(train, document))
            for document in range(len(train))
        )
    }


@st.composite
def item_sets(draw: st.DrawFn) -> tuple[Split, Split, LabelSet]:
    n_labels = 6
    texts = draw(st.lists(st.sampled_from(["", "p", "q", "r", "s"]), min_size=n_labels, max_size=n_labels))
    labels = LabelSet([f"n{label}" for label in range(n_labels)], draw(st.sampled_from([texts, None])))

    def split() -> Split:
        n = draw(st.integers(1, 5))
        rows = draw(st.lists(st.sets(st.integers(0, n_labels - 1), max_size=3), min_size=n, max_size=n))
        documents = draw(st.lists(st.sampled_from(["", "p", "q", "r", "z"]), min_size=n, max_size=n))
        names = draw(st.lists(st.sampled_from(["n0", "n1", "n2", "m"]), min_size=n, max_size=n))
        return split_of(documents, rows, n_labels, draw(st.sampled_from([names, None])))

    return split(), split(), labels


@given(item_sets())
def test_void_pairs_against_a_loop_over_everything(case: tuple[Split, Split, LabelSet]) -> None:
    train, other, labels = case
    found = set(zip(*(axis.tolist() for axis in void_pairs(train, other, labels).nonzero()), strict=True))
    items = any(
        (train.names is not None and train.names[row] in labels.names)
        or (labels.texts is not None and train.documents[row] and train.documents[row] in labels.texts)
        for row in range(len(train))
    )
    assert found == (void_by_hand(train, other, labels) if items else set())


def test_void_pairs_are_the_filter_that_the_bundled_set_was_published_with() -> None:
    data = load_dataset("wordnet-related")
    assert data.test is not None
    published = pairs_matrix(data.test.filter_pairs, data.test.relevance.shape)
    found = void_pairs(data.train, data.test, data.labels)
    assert published.multiply(found).nnz == published.nnz == 30_271
    assert found.nnz - published.nnz == 3  # by text as well as by name: a few synsets share their text


def test_a_hold_out_of_items_gives_nothing_away_and_has_something_to_measure() -> None:
    data = load_dataset("wordnet-related")
    train, held = hold_out(data)
    assert len(train) + len(held) == len(data.train)
    assert 2_000 < len(held) < 5_000
    assert held.relevance.getnnz(axis=1).min() == 1
    assert held.relevance.multiply(void_pairs(train, held, data.labels)).nnz == 0
    voided = held.relevance.multiply(pairs_matrix(held.filter_pairs, held.relevance.shape)).nnz
    assert (voided, len(held.filter_pairs) > len(held)) == (0, True)
    assert data.train.names is not None
    assert held.names is not None
    row_of_name = {name: row for row, name in enumerate(data.train.names)}
    before = data.train.relevance[[row_of_name[name] for name in held.names]]
    filtered = before.multiply(pairs_matrix(held.filter_pairs, before.shape)).nnz
    assert before.nnz - filtered == held.relevance.nnz


def test_chance_matches_do_not_make_an_item_set() -> None:
    documents = ["Film", *(f"book {number}" for number in range(99))]
    train = split_of(documents, [{0}] * 100, 1)
    labels = LabelSet(["p1"], ["Film"])
    assert void_pairs(train, train, labels).nnz == 0
    assert void_pairs(train.take(np.arange(5)), train, labels).nnz == 1


@st.composite
def grouped_sets(draw: st.DrawFn) -> tuple[Dataset, sp.csr_matrix, int, int]:
    """Documents of a few words out of twelve, so that many resemble each other; every one has a label."""
    bags = draw(st.lists(st.sets(st.integers(0, 11), min_size=1, max_size=4), min_size=30, max_size=60))
    folds = draw(st.integers(1, 4))
    most = draw(st.integers(folds, 40))
    words = sp.csr_matrix(np.array([[word in bag for word in range(12)] for bag in bags], dtype=np.float32))
    texts = [" ".join(f"w{word}" for word in sorted(bag)) for bag in bags]
    labels = LabelSet([f"label {label}" for label in range(5)], None)
    return (
        Dataset("grouped", split_of(texts, [[row % 5] for row in range(len(bags))], 5), labels),
        unit_rows(words),
        folds,
        most,
    )


def groups_by_hand(rows: sp.csr_matrix) -> list[set[int]]:
    """Documents that are connected through cosines of at least ALIKE, found by a walk from each."""
    cosines = (rows @ rows.T).toarray()
    left, groups = set(range(rows.shape[0])), []
    while left:
        group, waiting = set(), [min(left)]
        while waiting:
            row = waiting.pop()
            if row not in group:
                group.add(row)
                waiting += np.flatnonzero(cosines[row] >= ALIKE).tolist()
        left -= group
        groups.append(group)
    return groups


@given(grouped_sets())
def test_folds_are_disjoint_and_complete_and_cut_no_group(case: tuple[Dataset, sp.csr_matrix, int, int]) -> None:
    data, rows, folds, most = case
    named = replace(data, train=replace(data.train, names=[str(row) for row in range(len(data.train))]))
    found = hold_outs(named, rows, folds=folds, most=most)
    assert len(found) == folds
    held = [set(map(int, names_of(part))) for _, part in found]
    for (train, _), own in zip(found, held, strict=True):
        assert set(map(int, names_of(train))) == set(range(len(data.train))) - own  # all that is not held out
        assert len(train) + len(own) == len(data.train)
    assert sum(map(len, held)) == len(set().union(*held))  # no document is held out twice
    groups = groups_by_hand(rows)
    largest = max(map(len, groups))
    assert sum(map(len, held)) < most + max(largest, 1)
    crowded = [group for group in groups if len(group) > max(5, most // (50 * folds))]
    if sum(map(len, crowded)) <= len(data.train) / 4:  # else these are cut by their texts
        for group in groups:
            sides = [len(group & own) for own in held if group & own]
            assert sides in ([], [len(group)])  # whole, in one fold or in none
        assert not any(group & own for group in crowded for own in held)


def names_of(split: Split) -> list[str]:
    assert split.names is not None
    return list(split.names)


def test_equal_texts_stay_together_where_nothing_is_compared() -> None:
    texts = [f"text {row // 3}" for row in range(90)]
    data = Dataset("copies", split_of(texts, [[0]] * 90, 1), LabelSet(["only"], None))
    (train, held), (other_train, other) = hold_outs(data, None, folds=2, most=40)
    assert not set(train.documents) & set(held.documents)
    assert not set(other_train.documents) & set(other.documents)
    assert not set(held.documents) & set(other.documents)
    assert 20 <= len(held) <= 22
    assert len(held) + len(other) <= 42


def test_too_few_documents_have_no_folds() -> None:
    data = texts_set([f"text {row}" for row in range(19)])
    assert hold_outs(data, None, folds=1, most=5) == []
    more = texts_set([f"text {row}" for row in range(25)])
    assert hold_outs(more, None, folds=13, most=20) == []
    assert hold_outs(more, None, folds=3, most=2) == []


def families(n: int, size: int) -> Dataset:
    """`size` texts of each of `n` kinds: nine words of its own, and one that makes each text another."""
    texts = [
        " ".join([*(f"w{kind}x{word}" for word in range(9)), f"v{copy}"]) for kind in range(n) for copy in range(size)
    ]
    return Dataset("families", split_of(texts, [{row % 3} for row in range(len(texts))], 3), LabelSet(list("abc")))


def kinds(split: Split) -> set[str]:
    return {text.split("x")[0] for text in split.documents}


@pytest.mark.parametrize("seed", range(3))
def test_a_test_split_has_no_near_copies_in_train(seed: int) -> None:
    """Every text is another, so that equal texts alone would put most kinds on both sides."""
    data = families(100, 3)
    assert kinds(hold_out(data, fraction=0.2, seed=seed)[0]) & kinds(hold_out(data, fraction=0.2, seed=seed)[1])
    cut = with_test(data, 0.2, seed)
    assert not kinds(cut.train) & kinds(cut.split("test"))
    assert 57 <= len(cut.split("test")) <= 62
    assert sorted([*cut.train.documents, *cut.split("test").documents]) == sorted(data.train.documents)


def test_at_most_as_many_are_parted_and_features_too() -> None:
    data = families(100, 3)
    train, held = parted(data, 0.5, most=30)
    assert 28 <= len(held) <= 32
    rows = comparable_rows(data.train.documents)
    assert rows is not None
    numbered = replace(
        data, train=replace(data.train, documents=sp.csr_matrix(7 * rows), names=list(data.train.documents))
    )
    train, held = parted(numbered, 0.2)
    assert not {name.split("x")[0] for name in names_of(train)} & {name.split("x")[0] for name in names_of(held)}
    dense = replace(data, train=replace(data.train, documents=np.arange(300, dtype=np.float32).reshape(300, 1) // 2))
    train, held = parted(dense, 0.2)  # by equal rows
    assert not set(train.documents[:, 0]) & set(held.documents[:, 0])
    assert len(parted(families(1, 19), 0.5)[1]) == 0
