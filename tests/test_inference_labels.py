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
from xclearn.inference.labels import LabelIndex, predict_among
from xclearn.inference.servable import Ensemble, Servable

ANY_TEXT = st.text(st.characters() | st.characters(categories=["Cs"]), max_size=8)
FEW_LETTERS = st.text("aAbB \t\n", max_size=5)


@given(st.lists(ANY_TEXT, min_size=1, max_size=30, unique=True), st.data())
def test_every_name_has_its_id_and_no_other_has_one(names, data) -> None:
    index = LabelIndex(LabelSet(names))
    asked = data.draw(st.lists(st.sampled_from(names)))
    assert index.ids(asked, "include").tolist() == [names.index(name) for name in asked]
    unknown = data.draw(ANY_TEXT.filter(lambda text: text not in names))
    with pytest.raises(ConfigError, match="include: no such label"):
        index.ids([*asked, unknown], "include")


def rank(query: str, name: str, text: str) -> int:
    """Which group a label is in, smaller is better; 5 if it is not found."""
    fold = lambda value: " ".join(value.split()).lower()  # noqa: E731
    query, name, text = fold(query), fold(name), fold(text)
    line = f"{name}\t{text}"
    tests = (name == query, name.startswith(query), text.startswith(query), f" {query}" in line, query in line, True)
    return tests.index(True)


@given(
    st.lists(st.tuples(FEW_LETTERS, FEW_LETTERS), min_size=1, max_size=12, unique_by=lambda label: label[0]),
    FEW_LETTERS,
    st.integers(1, 12),
)
def test_search_gives_what_a_walk_over_all_labels_gives(labels, query, limit) -> None:
    names, texts = [name for name, _ in labels], [text for _, text in labels]
    ranks = [rank(query, *label) for label in labels]
    expected = sorted((i for i in range(len(labels)) if ranks[i] < 5), key=lambda i: (ranks[i], i))
    assert LabelIndex(LabelSet(names, texts)).search(query, limit) == expected[:limit]


def test_search_without_label_texts() -> None:
    index = LabelIndex(LabelSet(["Étoile", "étoiles d'hiver", "lune"]))
    assert index.search("ÉTOILE", 5) == [0, 1]
    assert index.search("hiver", 5) == [1]
    assert index.search("", 5) == [0, 1, 2]


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
