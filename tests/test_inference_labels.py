"""Labels by name, by search and as a choice, against plain Python and against all scores."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from served import NAMES, model_folder

from xclearn.data.dataset import LabelSet
from xclearn.errors import ConfigError
from xclearn.inference import Model, Predictor
from xclearn.inference.components import Candidates, ClusterBeam, Product
from xclearn.inference.labels import MOST_PLACES, LabelIndex, predict_among
from xclearn.inference.servable import Ensemble, Servable

ANY_TEXT = st.text(st.characters() | st.characters(categories=["Cs"]), max_size=8)


@given(st.lists(ANY_TEXT, min_size=1, max_size=30, unique=True), st.data())
def test_every_name_has_its_id_and_no_other_has_one(names, data) -> None:
    index = LabelIndex(LabelSet(names))
    asked = data.draw(st.lists(st.sampled_from(names)))
    assert index.ids(asked, "include").tolist() == [names.index(name) for name in asked]
    unknown = data.draw(ANY_TEXT.filter(lambda text: text not in names))
    with pytest.raises(ConfigError, match="include: no such label"):
        index.ids([*asked, unknown], "include")


def kind(query: str, name: str, text: str) -> int:
    """How well a label fits, smaller is better; 4 if it does not hold the query."""
    fold = lambda value: " ".join(value.split()).lower()  # noqa: E731
    query, name, text = fold(query), fold(name), fold(text)
    if not query or query in (name, text):
        return 0
    kinds = [4]
    for field in (name, text):
        starts = [i for i in range(len(field)) if field.startswith(query, i)]
        for start in starts:
            begins = start == 0 or field[start - 1] in " -"
            ends = field[start + len(query) :][:1] in ("", " ", "-")
            kinds.append((1 if ends else 2) if begins else 3)
    return min(kinds)


FEW_WORDS = st.text("aAb-  \t\n", max_size=7)


@given(
    st.lists(
        st.tuples(FEW_WORDS, FEW_WORDS, st.integers(0, 3)), min_size=1, max_size=12, unique_by=lambda label: label[0]
    ),
    st.text("aAb \t", max_size=4),
    st.integers(1, 12),
    st.booleans(),
)
def test_search_gives_what_a_walk_over_all_labels_gives(labels, query, limit, counted) -> None:
    names, texts = [name for name, _, _ in labels], [text for _, text, _ in labels]
    counts = np.array([count for _, _, count in labels]) if counted else None
    kinds = [kind(query, name, text) for name, text, _ in labels]
    frequent = counts if counts is not None else np.zeros(len(labels))
    expected = sorted((i for i in range(len(labels)) if kinds[i] < 4), key=lambda i: (kinds[i], -frequent[i], i))
    found = LabelIndex(LabelSet(names, texts), counts).search(query, limit)
    assert (found.labels, found.total) == (expected[:limit], len(expected))


def test_search_without_label_texts() -> None:
    index = LabelIndex(LabelSet(["Étoile", "étoiles d'hiver", "lune"]))
    assert index.search("ÉTOILE", 5).labels == [0, 1]
    assert index.search("hiver", 5).labels == [1]
    assert index.search("", 5).labels == [0, 1, 2]


def test_whole_words_come_before_frequency_and_frequency_before_order() -> None:
    names = ["scatter", "cattle", "house cat", "big cat, tiger", "cat"]
    index = LabelIndex(LabelSet(names), np.array([900, 800, 1, 7, 0]))
    assert [names[label] for label in index.search("cat", 9).labels] == [
        "cat",
        "big cat, tiger",
        "house cat",
        "cattle",
        "scatter",
    ]


def test_a_search_for_what_is_everywhere_ends_and_still_finds_the_label_of_that_name() -> None:
    names = [f"a{i}" for i in range(MOST_PLACES + 50)] + ["a"]
    found = LabelIndex(LabelSet(names)).search("a", 2)
    assert found.labels == [len(names) - 1, 0]
    assert found.total == MOST_PLACES + 1


def one_servable() -> Servable:
    servable = Predictor.load(model_folder()).model.servable
    assert isinstance(servable, Servable)
    return servable


def beam(servable: Servable, n_clusters: int) -> Candidates:
    rng = np.random.default_rng(n_clusters)
    dim, offsets = servable.encoders["document"].dim, np.linspace(0, 10, n_clusters + 1).astype(np.int64)
    weight = rng.normal(size=(n_clusters, dim)).astype(np.float32)
    bias = np.zeros(n_clusters, np.float32)
    return ClusterBeam("document", weight, bias, rng.permutation(10).astype(np.int64), offsets, 2)


def servables() -> list[Servable | Ensemble]:
    exact = one_servable()
    clusters = replace(exact, candidates=beam(exact, 4), fusion=Product())
    return [exact, clusters, Ensemble([exact, replace(exact, candidates=beam(exact, 3))])]


@pytest.mark.parametrize("servable", servables(), ids=["all labels", "clusters", "ensemble"])
@pytest.mark.parametrize("k", [2, 10])
def test_the_best_among_chosen_labels_are_those_of_all_labels_in_their_order(servable, k) -> None:
    predictor = Predictor(Model(servable, LabelSet(NAMES), {}))
    texts, chosen = ["a dog and a cat", "a piano", ""], np.array([7, 0, 8, 3])
    everything = servable.predict(texts, 10)
    found = predict_among(predictor, texts, chosen, k)
    for ids, scores, all_ids, all_scores in zip(*found, *everything, strict=True):
        kept = np.isin(all_ids, chosen)
        n = min(k, kept.sum())
        assert ids[:n].tolist() == all_ids[kept][:n].tolist()
        np.testing.assert_allclose(scores[:n], all_scores[kept][:n], rtol=1e-5)
        assert (ids[n:] == -1).all()
