"""Labels added by text and examples, labels removed: what is answered after, and what is refused."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from planted import planted
from typer.testing import CliRunner

from xclearn import load
from xclearn.algorithms.dual_encoder import DualEncoder
from xclearn.algorithms.one_vs_all import OneVsAll
from xclearn.cli.main import app
from xclearn.data import Dataset, LabelSet
from xclearn.errors import ConfigError, DataError, ModelError
from xclearn.inference import load_model
from xclearn.inference.components import Bag, Classifier, ClusterBeam, Sigmoid
from xclearn.inference.folder import Model
from xclearn.inference.label_editing import NewLabel, with_labels, without_labels
from xclearn.inference.servable import Servable
from xclearn.inference.text_rows import TextRows
from xclearn.inference.train_texts import TrainTexts
from xclearn.text import Words

N_LABELS, HELD = 24, 4
SHORT = {"epochs": 15, "row_epochs": 2, "batch_size": 16, "embedding_dim": 32, "vectoriser": Words()}


@pytest.fixture(scope="module")
def data() -> Dataset:
    return planted(n_labels=N_LABELS, train=10, test=5)


@pytest.fixture(scope="module")
def without_last(data) -> DualEncoder:
    """Trained without the last labels, and without the documents that have them; their words are known."""
    of_last = np.asarray(data.train.relevance[:, -HELD:].sum(axis=1)).ravel() > 0
    train = data.train.take(np.flatnonzero(~of_last))
    first = N_LABELS - HELD
    labels = LabelSet(data.labels.names[:first], data.labels.texts[:first])
    train = dataclasses.replace(train, relevance=train.relevance[:, :first])
    words = [f"own{i}" for i in range(first, N_LABELS)]
    documents = [f"{text} {words[i % HELD]}" for i, text in enumerate(train.documents)]  # noise words to this model
    train = dataclasses.replace(train, documents=documents)
    return DualEncoder(**SHORT).fit(Dataset("less", train, labels), device="cpu")


def records(data: Dataset) -> list[dict]:
    first = N_LABELS - HELD
    return [{"label": data.labels.names[i], "text": data.labels.texts[i]} for i in range(first, N_LABELS)]


def test_an_added_label_is_found_by_its_text(data, without_last):
    grown = with_labels(without_last.model, [NewLabel.of(record, "test") for record in records(data)])
    assert list(grown.labels.names) == list(data.labels.names)
    assert list(grown.labels.texts) == list(data.labels.texts)
    ids, _ = grown.servable.predict(list(data.labels.texts[-HELD:]), 1)
    assert ids[:, 0].tolist() == list(range(N_LABELS - HELD, N_LABELS))


def test_the_scores_of_other_labels_stay_to_the_bit(data, without_last):
    grown = with_labels(without_last.model, [NewLabel.of(record, "test") for record in records(data)])
    before, after = (each.servable.scorers[0] for each in (without_last.model, grown))
    assert after.weight[: N_LABELS - HELD].tobytes() == before.weight.tobytes()
    assert grown.about["labels_added"] == HELD


def test_a_row_by_hand():
    """e = (1, 0); examples at (0, 3) are (0, 2) from the centre (0, 1): half of (0, 1) is added, all times 4."""
    bag = Bag(np.array([[1.0, 0.0]], np.float32), [])
    maker = TextRows(bag, np.array([0.0, 1.0], np.float32), scale=4.0, bias=-1.0, gain=0.5)
    texts, means = np.ones((2, 1), np.float32), np.array([[0.0, 3.0], [0.0, 0.0]])
    weight, bias = maker.rows(texts, means, np.array([2, 0]))
    assert weight.tolist() == [[4.0, 2.0], [4.0, 0.0]]
    assert bias.tolist() == [-1.0, -1.0]


def test_examples_move_a_label_to_where_they_are(data, without_last):
    """Its text says nothing known; its examples hold the word of another label."""
    examples = [text for text in data.test.documents if "own3 " in f"{text} "][:3]
    assert examples
    added = [NewLabel("blank", "unheardof", []), NewLabel("shown", "unheardof", examples)]
    grown = with_labels(without_last.model, added)
    blank, shown = N_LABELS - HELD, N_LABELS - HELD + 1
    ids, scores = grown.servable.predict(examples, grown.servable.n_labels)
    assert (ids[:, :5] == shown).any(axis=1).all()
    assert (scores[ids == shown] > 100 * scores[ids == blank]).all()


def test_a_removed_label_never_comes_back(data, without_last):
    gone = list(without_last.model.labels.names[3:5])
    shrunk = without_labels(without_last.model, gone)
    assert shrunk.servable.n_labels == N_LABELS - HELD - 2
    kept = [i for i, name in enumerate(without_last.model.labels.names) if name not in gone]
    whole = without_last.model.servable.predict(data.test.documents, N_LABELS)
    for row, found in enumerate(shrunk.servable.predict(data.test.documents, 3).ids):
        left = [label for label in whole.ids[row] if label in set(kept)][:3]
        assert [kept[label] for label in found] == left


def test_added_and_removed_again_is_what_it_was(data, without_last):
    added = [NewLabel.of(record, "test") for record in records(data)]
    again = without_labels(with_labels(without_last.model, added), [each.label for each in added])
    assert again.servable.scorers[0].weight.tobytes() == without_last.model.servable.scorers[0].weight.tobytes()
    assert list(again.labels.names) == list(without_last.model.labels.names)


def clustered() -> Model:
    """Three labels in two clusters."""
    vectoriser = Words(min_count=1).learn(["red green blue"])
    bag = Bag(np.eye(3, dtype=np.float32), [])
    clusters = ClusterBeam(
        "label",
        np.array([[1, 0, 0], [0, 1, 1]], np.float32),
        np.zeros(2, np.float32),
        np.array([0, 1, 2]),
        np.array([0, 1, 3]),
        1,
    )
    scorer = Classifier("label", 5 * np.eye(3, dtype=np.float32), np.zeros(3, np.float32))
    servable = Servable(vectoriser, {"label": bag}, clusters, [scorer], Sigmoid())
    servable.check()
    names = vectoriser.tokens(range(3))
    return Model(
        servable, LabelSet(names, names), {}, text_rows=[TextRows(bag, np.zeros(3, np.float32), 5.0, 0.0, 1.0)]
    )


def test_a_label_is_placed_in_the_cluster_that_it_is_nearest_to_and_leaves_it_again():
    model = clustered()
    grown = with_labels(
        model, [NewLabel("again", model.labels.names[0], []), NewLabel("more", model.labels.names[2], [])]
    )
    stage = grown.servable.candidates
    assert stage.labels.tolist() == [0, 3, 1, 2, 4]
    assert stage.offsets.tolist() == [0, 2, 5]
    assert set(grown.servable.predict([model.labels.names[0]], 5).ids[0].tolist()) == {0, 3, -1}
    shrunk = without_labels(grown, [model.labels.names[0], "more"])
    assert list(shrunk.labels.names) == [*model.labels.names[1:], "again"]
    assert shrunk.servable.candidates.labels.tolist() == [2, 0, 1]
    assert shrunk.servable.candidates.offsets.tolist() == [0, 1, 3]


def texts_of(kept: TrainTexts | None, label: int) -> list[str]:
    assert kept is not None
    return kept.texts.at(kept.rows[kept.offsets[label] : kept.offsets[label + 1]].astype(np.int64))


def test_kept_training_texts_follow_their_labels(data, without_last):
    relevance = data.train.relevance[:, : N_LABELS - HELD]
    model = dataclasses.replace(without_last.model, train_texts=TrainTexts.of(data.train.documents, relevance))
    shrunk = without_labels(model, [model.labels.names[0]])
    grown = with_labels(shrunk, [NewLabel("new", "own3", [])])
    counts = model.label_counts.tolist()
    assert grown.label_counts.tolist() == [*counts[1:], 0]
    before, after = model.train_texts, grown.train_texts
    assert texts_of(after, 0) == texts_of(before, 1)
    assert texts_of(after, len(grown.labels) - 1) == []


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"text": "x"}, "needs a label"),
        ({"label": "a", "text": " "}, "needs a text"),
        ({"label": "a", "text": "x", "examples": "y"}, "must be a list of texts"),
        ({"label": "a", "text": "x", "weight": 1}, "not a new label"),
        (["a"], "not a new label"),
    ],
)
def test_what_is_no_new_label_is_refused(record, said):
    with pytest.raises(DataError, match=said):
        NewLabel.of(record, "labels[0]")


def test_what_cannot_be_edited_says_so(data, without_last):
    known = without_last.model.labels.names[0]
    with pytest.raises(ConfigError, match="already has this label"):
        with_labels(without_last.model, [NewLabel(known, "x", [])])
    with pytest.raises(ConfigError, match="already has this label"):
        with_labels(without_last.model, [NewLabel("twice", "x", []), NewLabel("twice", "y", [])])
    with pytest.raises(ConfigError, match="no such label; got 'nobody'"):
        without_labels(without_last.model, ["nobody"])
    with pytest.raises(ConfigError, match="no labels would be left"):
        without_labels(without_last.model, list(without_last.model.labels.names))
    other = OneVsAll(epochs=1).fit(data, device="cpu")
    with pytest.raises(ModelError, match="cannot make a row of a label's text"):
        other.add_labels([{"label": "a", "text": "x"}])
    assert other.remove_labels([data.labels.names[0]]).model.servable.n_labels == N_LABELS - 1
    searched = dataclasses.replace(clustered().servable, steps=["a step"])
    with pytest.raises(ModelError, match="cannot be edited"):
        without_labels(dataclasses.replace(clustered(), servable=searched), ["red"])


def run(*arguments: str) -> str:
    found = CliRunner().invoke(app, ["labels", *arguments], catch_exceptions=False)
    return found.output


def test_the_command_line_edits_in_place_or_elsewhere(data, without_last, tmp_path):
    without_last.save(tmp_path / "model")
    (tmp_path / "new.jsonl").write_text("\n".join(json.dumps(record) for record in records(data)) + "\n")
    assert "20 labels before, 24 now" in run(
        "add", str(tmp_path / "model"), str(tmp_path / "new.jsonl"), "-o", str(tmp_path / "grown")
    )
    assert load_model(tmp_path / "model").servable.n_labels == N_LABELS - HELD
    answers = load(tmp_path / "grown").suggest([data.labels.texts[-1]], k=1)
    assert answers[0][0].label == data.labels.names[-1]
    (tmp_path / "gone.txt").write_text(
        f"{data.labels.names[-1]}\n" + json.dumps({"label": data.labels.names[0]}) + "\n"
    )
    run("remove", str(tmp_path / "grown"), str(tmp_path / "gone.txt"))
    assert load_model(tmp_path / "grown").servable.n_labels == N_LABELS - 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gone.txt", "grown", "model", "new.jsonl"]


def test_lines_that_are_wrong_are_named(tmp_path, without_last):
    without_last.save(tmp_path / "model")
    bad = tmp_path / "bad.jsonl"
    for content, said in (
        ('{"label": "a", "text": "b"}\n{', r"bad.jsonl:2: not a JSON line"),
        ("\n", "lists no labels"),
    ):
        bad.write_text(content)
        with pytest.raises(DataError, match=said):
            run("add", str(tmp_path / "model"), str(bad))
    with pytest.raises(DataError, match="no such file"):
        run("remove", str(tmp_path / "model"), str(tmp_path / "missing"))


def test_a_model_with_text_rows_survives_its_folder(without_last, tmp_path):
    without_last.save(tmp_path / "model")
    (rows,) = load_model(tmp_path / "model").text_rows
    (mine,) = without_last.model.text_rows
    assert (rows.scale, rows.bias, rows.gain) == (mine.scale, mine.bias, mine.gain)
    np.testing.assert_array_equal(rows.centre, mine.centre)
    np.testing.assert_array_equal(rows.encoder.token_embeddings, mine.encoder.token_embeddings)
    tables = Path(tmp_path / "model" / "tensors.safetensors").stat().st_size
    assert tables < 2 * mine.encoder.token_embeddings.nbytes + 200_000  # the table stands there once
