"""Labels added and removed in models of every form that allows it: found by their texts, and gone without a trace."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from planted import planted

from xclearn import algorithms, config
from xclearn.data import Dataset, LabelSet
from xclearn.errors import ModelError
from xclearn.inference import load_model, save_model
from xclearn.inference.blend import BlendServable
from xclearn.inference.folder import Model
from xclearn.inference.label_editing import NewLabel, with_labels, without_labels
from xclearn.inference.runner import form_of

N_LABELS, HELD = 24, 4
FIRST = N_LABELS - HELD
SHORT = {"embedding_dim": 32, "batch_size": 16, "vectoriser.min_count": 1}
WITH_TEXTS = "label_tree label_text_weight=0.15"  # by itself it falls with the documents per label
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "label_tree": ("label_tree", {"max_leaf": 5, "branching": 4}),
    "sparse_one_vs_all": ("sparse_one_vs_all", {"label_text_weight": 0.5}),
    "decaf": ("decaf", SHORT | {"surrogate_epochs": 8, "ranker_epochs": 8, "ranker": "exact"}),
    "decaf, two members": ("decaf", SHORT | {"surrogate_epochs": 8, "ranker_epochs": 4, "n_members": 2}),
    "calibrated": ("label_tree", {"calibrate": True, "label_text_weight": 0.15}),
    "blend": ("blend", {"members": (WITH_TEXTS, "sparse_one_vs_all"), "folds": 2}),
    "blend with one that is silent": ("blend", {"members": (WITH_TEXTS, "one_vs_all epochs=2"), "folds": 2}),
}
PLANTED = planted(n_labels=N_LABELS, train=20, test=5)


def less() -> Dataset:
    """Without the last labels; their words stand in other texts."""
    train = PLANTED.train
    of_last = np.asarray(train.relevance[:, FIRST:].sum(axis=1)).ravel() > 0
    train = train.take(np.flatnonzero(~of_last))
    documents = [f"{text} own{FIRST + i % HELD}" for i, text in enumerate(train.documents)]
    train = dataclasses.replace(train, documents=documents, relevance=train.relevance[:, :FIRST])
    return Dataset("less", train, LabelSet(PLANTED.labels.names[:FIRST], PLANTED.labels.texts[:FIRST]))


@pytest.fixture(scope="module", params=FORMS)
def model(request) -> Model:
    name, settings = FORMS[request.param]
    algorithm = config.build(algorithms.find(name), settings_of(settings), name)
    return algorithm.fit(less(), device="cpu").model


def settings_of(flat: dict[str, Any]) -> dict[str, Any]:
    """`vectoriser.min_count` as the table it stands for."""
    found: dict[str, Any] = {}
    for key, value in flat.items():
        head, _, inner = key.partition(".")
        if inner:
            found.setdefault(head, {"kind": "words"})[inner] = value
        else:
            found[head] = value
    return found


def added() -> list[NewLabel]:
    return [NewLabel(PLANTED.labels.names[i], PLANTED.labels.texts[i]) for i in range(FIRST, N_LABELS)]


def ranked(model: Model, texts: list[str], k: int) -> np.ndarray:
    return form_of(model.servable).predict(texts, k).ids


def test_an_added_label_is_found_by_its_text_and_old_ones_keep_their_order(model):
    grown = with_labels(model, added())
    assert list(grown.labels.names) == list(PLANTED.labels.names)
    texts = [f"{PLANTED.labels.texts[i]}" for i in range(FIRST, N_LABELS)]
    found = ranked(grown, texts, 3)
    assert all(label in row for label, row in zip(range(FIRST, N_LABELS), found.tolist(), strict=True)), found
    own = {f"own{i}" for i in range(FIRST, N_LABELS)}
    old = [text for text in PLANTED.split("test").documents if not own & set(text.split())]
    before, after = ranked(model, old, 3), ranked(grown, old, N_LABELS)
    assert (after[:, 0] == before[:, 0]).mean() > 0.95
    if not isinstance(model.servable, BlendServable):  # whose evidence is also who else is named
        left = np.array([[label for label in row if 0 <= label < FIRST][:1] for row in after.tolist()])
        assert (left == before[:, :1]).all()


def test_the_native_form_answers_as_numpy_does(model):
    grown = without_labels(with_labels(model, added()), PLANTED.labels.names[2:5])
    texts = list(PLANTED.split("test").documents)
    native, plain = form_of(grown.servable).predict(texts, 3), grown.servable.predict(texts, 3)
    clear = (np.diff(plain.scores, axis=1) < -1e-5).all(axis=1)
    assert (native.ids[clear] == plain.ids[clear]).all()
    np.testing.assert_allclose(native.scores, plain.scores, atol=1e-4)


def test_it_survives_a_folder(model, tmp_path):
    grown = with_labels(model, added())
    save_model(grown, tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    texts = [*PLANTED.labels.texts[FIRST:], *PLANTED.split("test").documents]
    assert (ranked(loaded, texts, 3) == ranked(grown, texts, 3)).all()
    again = with_labels(loaded, [NewLabel("one more", "own3 own4")])  # and can be edited once more
    assert again.servable.n_labels == N_LABELS + 1


def test_added_and_removed_again_is_what_it_was(model):
    again = without_labels(with_labels(model, added()), [each.label for each in added()])
    again.servable.check()
    texts = list(PLANTED.split("test").documents)
    before, after = model.servable.predict(texts, 3), again.servable.predict(texts, 3)
    assert (after.ids == before.ids).all()
    np.testing.assert_allclose(after.scores, before.scores, atol=1e-6)


def test_a_removed_label_never_comes_back(model):
    gone = list(model.labels.names[3:9])
    smaller = without_labels(model, gone)
    assert len(smaller.labels) == FIRST - 6
    found = ranked(smaller, list(PLANTED.split("test").documents), FIRST)
    assert found.max() < FIRST - 6
    kept = [i for i in range(FIRST) if model.labels.names[i] not in gone]
    own = [PLANTED.labels.texts[i] for i in kept]
    assert (ranked(smaller, own, 1)[:, 0] == np.arange(len(kept))).mean() > 0.8


def test_examples_of_a_new_label_are_remembered():
    blend = algorithms.find("blend")(members=("label_tree",), folds=2).fit(less(), device="cpu").model
    examples = ["noise7 noise8 noise9", "noise7 noise8"]
    grown = with_labels(blend, [NewLabel("shown", "unheardof", examples), NewLabel("blank", "unheardof")])
    assert grown.servable.sources.counts[-2:].tolist() == [2, 0]
    weights = grown.servable.inverse_propensity
    assert weights is not None
    assert weights[-1] >= weights[-2] >= weights.min()
    assert FIRST in ranked(grown, ["noise7 noise8 noise9"], 5)[0]
    assert FIRST + 1 not in ranked(grown, ["noise7 noise8 noise9"], 5)[0]


def test_a_model_that_reads_no_texts_refuses():
    data = less()
    nameless = dataclasses.replace(data, labels=LabelSet(data.labels.names))
    for name, settings in (("label_tree", {}), ("one_vs_all", {"epochs": 1}), ("label_tree", {"calibrate": True})):
        model = algorithms.find(name)(**settings).fit(nameless, device="cpu").model
        with pytest.raises(ModelError, match="label's text"):
            with_labels(model, added())
        assert without_labels(model, [data.labels.names[0]]).servable.n_labels == FIRST - 1
