"""Who speaks for a label: shares against the stacker asked without the source, words against products by hand."""

import dataclasses

import numpy as np
import pytest
from test_inference_blend import LABEL_TEXTS, TEXTS, blend, lifted, rows, sources

from xclearn.data.dataset import LabelSet
from xclearn.inference import Model, Predictor
from xclearn.inference.blend import BlendServable
from xclearn.inference.explain import explain
from xclearn.inference.stackers import LinearStacker
from xclearn.inference.votes import votes

TEXT = "red red blue"


def weighted() -> BlendServable:
    """A linear stacker that hears every column."""
    whole = blend()
    n = len(whole.sources.value_names)
    return dataclasses.replace(whole, stacker=LinearStacker(np.linspace(0.1, 1.0, n), np.full(n, -2.0), 0.3))


def said(whole: BlendServable, label: int) -> dict[str, object]:
    return {vote.source: vote for vote in votes(whole, TEXT, ["red", "blue"], [TEXT, "blue", "red red"], label)}


def first(whole: BlendServable) -> int:
    return int(whole.predict([TEXT], 1).ids[0, 0])


def test_a_share_is_what_the_stacker_loses_without_the_source():
    whole = weighted()
    label = first(whole)
    evidence = whole.sources.evidence([TEXT])
    (values,) = evidence.values[evidence.labels == label]
    names, weights = whole.sources.value_names, whole.stacker.weights
    for source, vote in said(whole, label).items():
        lost = 0.0
        for name, weight, value in zip(names, weights, values.tolist(), strict=True):
            if name.startswith(f"{source}: "):
                silent = 0.0 if name.split(": ")[1] in ("rank", "nearest", "cosine") else -2.0
                lost += weight * (max(value, -2.0) - silent)
            elif name == "sources" and source != "centroid":
                lost += weight
        assert vote.share == pytest.approx(lost, abs=1e-5), source
    listed = votes(whole, TEXT, [], [TEXT], label)
    assert [abs(vote.share) for vote in listed] == sorted((abs(vote.share) for vote in listed), reverse=True)


def test_scores_and_places_are_those_of_the_sources():
    whole = weighted()
    label = first(whole)
    found = said(whole, label)
    member = whole.members[0].predict([TEXT], 2)
    assert found["one"].score == pytest.approx(float(member.scores[0, 0]), abs=1e-5)
    assert found["one"].place == 1
    assert found["centroid"].place is None
    cosines = (rows([TEXT]) @ rows(LABEL_TEXTS).T).toarray()[0]
    text = 2  # "red"
    assert said(whole, text)["label text"].score == pytest.approx(cosines[text], abs=1e-6)


def test_words_in_common_sum_to_the_cosine():
    found = said(weighted(), 2)  # its text is "red"
    assert [token for token, _ in found["label text"].tokens] == ["red"]
    for source in ("label text", "centroid"):
        assert sum(part for _, part in found[source].tokens) == pytest.approx(found[source].score, abs=1e-5)
    near = found["memory"].tokens  # the nearest text that has the label is the same
    assert sum(part for _, part in near) == pytest.approx(1.0, abs=1e-5)


def test_words_of_a_member_are_what_its_score_loses():
    whole = weighted()
    label = first(whole)
    member = whole.members[0]

    def score(text: str) -> float:
        found = member.predict([text], 2)
        return float(np.where(found.ids[0] == label, found.scores[0], 0).max())

    expected = {"red": score(TEXT) - score("blue"), "blue": score(TEXT) - score("red red")}
    assert dict(said(whole, label)["one"].tokens) == pytest.approx({k: v for k, v in expected.items() if v}, abs=1e-6)


def test_nobody_speaks_for_a_label_that_is_no_candidate():
    whole = blend(sources(depth=1, memory=None))
    found = whole.sources.evidence([TEXT])
    others = set(range(whole.n_labels)) - set(found.labels.tolist())
    assert votes(whole, TEXT, [], [TEXT], others.pop()) == []


def test_an_explanation_carries_the_votes():
    whole = lifted()
    names = LabelSet([f"label {i}" for i in range(whole.n_labels)])
    predictor = Predictor(Model(whole, names, {}))
    label = first(whole)
    (told,) = explain(predictor, TEXT, np.array([label]))
    assert not told.exact
    assert {vote.source for vote in told.votes} >= {"one", "other", "centroid"}
    assert told.value == pytest.approx(float(whole.predict([TEXT], 1).scores[0, 0]), abs=1e-5)
    assert TEXTS[2] == TEXT
