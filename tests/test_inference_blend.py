"""The evidence for a label, counted by hand; a blend as a model folder; damaged ones refused."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
from handmade import model, servable

from xclearn.data.dataset import NO_PAIRS, LabelSet
from xclearn.data.topk import TopK
from xclearn.errors import ConfigError, DataError, ModelError
from xclearn.inference import Model, Predictor, load_model, save_model
from xclearn.inference.blend import BlendServable, CsrRows, Memory, Sources, best_pairs, blocks_of, logits_of
from xclearn.inference.operating_points import OperatingPoints
from xclearn.inference.sparse import unit_rows
from xclearn.inference.stackers import Isotonic, LinearStacker
from xclearn.inference.thresholds import Threshold

TEXTS = ["red", "green green", "red red blue", ""]
LABEL_TEXTS = ["blue", "green", "red", "blue green"]


def rows(texts: list[str]) -> sp.csr_matrix:
    return unit_rows(servable().vectoriser.transform(texts))


def sources(**changes: object) -> Sources:
    """Two members that are alike, label texts, and a memory of four documents."""
    member, n = servable(), servable().n_labels
    relevance = sp.csr_matrix(np.eye(len(TEXTS), n, dtype=np.float32))
    texts = rows(LABEL_TEXTS)
    memory = Memory(CsrRows.of(rows(TEXTS)), CsrRows.of(relevance), 3, 1.0)
    members = {"one": member, "other": member}
    counts = np.arange(n, dtype=np.float32)
    whole = Sources(member.vectoriser, members, CsrRows.of(texts), CsrRows.of(texts), memory, counts, 2)
    return dataclasses.replace(whole, **changes)


def blend(of: Sources | None = None) -> BlendServable:
    of = of or sources()
    weights = np.zeros(len(of.value_names))
    weights[0] = 1.0
    line = Isotonic(np.array([-20.0, 20.0]), np.array([0.0, 1.0]))
    return BlendServable(of, LinearStacker(weights, np.full(len(weights), -20.0), 0.0), line)


def test_candidates_are_what_some_source_names_and_evidence_what_it_says():
    whole = sources()
    found = whole.evidence(TEXTS)
    assert found.values.shape == (len(found.rows), len(whole.value_names))
    names = {name: place for place, name in enumerate(whole.value_names)}
    listed = servable().predict(TEXTS, 2)
    for row in range(len(TEXTS)):
        mine = found.rows == row
        assert set(listed.ids[row][listed.ids[row] >= 0]) <= set(found.labels[mine])
        for place, label in enumerate(listed.ids[row].tolist()):
            (values,) = found.values[mine & (found.labels == label)]
            score = listed.scores[row, place]
            assert values[names["one: score"]] == pytest.approx(np.log(score / (1 - score)), abs=1e-4)
            assert values[names["one: rank"]] == pytest.approx(1 / (1 + place))
            assert values[names["one: gap"]] == pytest.approx(
                values[names["one: score"]] - logits_of(listed)[row, 0], abs=1e-5
            )
            assert values[names["sources"]] >= 2


def test_cosines_and_votes_are_those_of_brute_force():
    whole = sources()
    found = whole.evidence(TEXTS)
    names = {name: place for place, name in enumerate(whole.value_names)}
    assert whole.centroids is not None
    cosines = (rows(TEXTS) @ whole.centroids.matrix.T).toarray()
    np.testing.assert_allclose(found.values[:, names["centroid: cosine"]], cosines[found.rows, found.labels], atol=1e-6)
    near = (rows(TEXTS) @ rows(TEXTS).T).toarray()  # document i of the memory has label i
    for row, label, values in zip(*found, strict=True):
        asked = label < len(TEXTS) and near[row, label] > 0 and (near[row] > near[row, label]).sum() < 3
        assert values[names["memory: nearest"]] == pytest.approx(near[row, label] if asked else 0, abs=1e-6)


def test_label_texts_and_memory_score_every_candidate():
    """Also those that they do not name among their first; what they name is as it was."""
    texts = rows(["blue red", "green red", "red", "blue red green"])
    scarce = sources(depth=1, label_texts=CsrRows.of(texts))
    before, after = (dataclasses.replace(scarce, everywhere=filled).evidence(TEXTS) for filled in (False, True))
    names = {name: place for place, name in enumerate(sources().value_names)}
    cosines = (rows(TEXTS) @ texts.T).toarray()[after.rows, after.labels]
    unnamed = np.isnan(before.values[:, names["label text: score"]])
    assert (cosines[unnamed] > 0).any()  # there is something to fill in
    np.testing.assert_allclose(after.values[:, names["label text: score"]], cosines, atol=1e-6)
    best = (rows(TEXTS) @ texts.T).toarray().max(axis=1)[after.rows]
    np.testing.assert_allclose(after.values[:, names["label text: gap"]], cosines - best, atol=1e-6)
    shares = (rows(TEXTS) @ rows(TEXTS).T).toarray()
    shares = (shares / np.maximum(shares.sum(axis=1, keepdims=True), 1e-12))[after.rows, after.labels]
    np.testing.assert_allclose(after.values[:, names["memory: score"]], shares, atol=1e-6)
    filled = [place for name, place in names.items() if name.startswith(("label text", "memory"))]
    there = ~np.isnan(before.values)
    assert np.isfinite(after.values[:, filled]).all()
    assert (after.values[there] == before.values[there]).all()


def test_a_pair_to_leave_out_is_no_candidate():
    first = blend().predict(TEXTS, 1).ids[:, 0]
    pairs = np.column_stack([np.arange(len(TEXTS)), first])[:2]
    found = blend().predict(TEXTS, 5, pairs)
    assert all(first[row] not in found.ids[row] for row in range(2))
    assert (found.ids[2:, 0] == first[2:]).all()


def test_the_best_pairs_of_each_document():
    rows_, labels = np.array([0, 0, 0, 2]), np.array([5, 7, 9, 5])
    found = best_pairs(rows_, labels, np.array([1.0, 3.0, 3.0, -1.0]), 3, 2)
    assert found.ids.tolist() == [[7, 9], [-1, -1], [5, -1]]
    assert found.scores.tolist() == [[3, 3], [-np.inf, -np.inf], [-1, -np.inf]]
    nothing = best_pairs(np.empty(0, int), np.empty(0, int), np.empty(0), 1, 2)
    assert nothing.ids.tolist() == [[-1, -1]]


def test_blocks_of_documents_take_their_pairs_with_them():
    documents = [str(i) for i in range(600)]
    pairs = np.array([[0, 1], [255, 2], [256, 3], [599, 4]])
    found = [(len(part), own.tolist()) for part, own in blocks_of(documents, pairs)]
    assert found == [(256, [[0, 1], [255, 2]]), (256, [[0, 3]]), (88, [[87, 4]])]


def test_logits_of_scores():
    found = logits_of(TopK(np.array([[3, 1, -1]]), np.array([[1.0, 0.25, -np.inf]], np.float32)))
    np.testing.assert_allclose(found, [[np.log((1 - 1e-7) / 1e-7), np.log(1 / 3), -np.inf]], rtol=1e-3)


def test_a_blend_survives_its_folder(tmp_path):
    whole = blend()
    labels = LabelSet(list(model().labels.names))
    save_model(Model(whole, labels, {}), tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    for answers in (loaded.servable, Predictor(loaded)):
        before, after = whole.predict(TEXTS, 3), answers.predict(TEXTS, 3)
        assert (after.ids == before.ids).all()
        np.testing.assert_allclose(after.scores, before.scores, rtol=1e-5)


def test_a_blend_without_texts_and_memory():
    whole = blend(sources(label_texts=None, centroids=None, memory=None))
    assert [name for name in whole.sources.value_names if "memory" in name or "text" in name] == []
    whole.check()
    assert (whole.predict(TEXTS, 1).ids[:3] == servable().predict(TEXTS, 1).ids[:3]).all()


def test_what_does_not_fit_is_refused():
    whole = blend()
    with pytest.raises(ModelError, match="no member"):
        blend(sources(members={})).check()
    with pytest.raises(ModelError, match="wrong shape"):
        dataclasses.replace(whole, sources=sources(counts=np.zeros(2, np.float32))).check()
    with pytest.raises(ModelError, match="wrong shape"):
        BlendServable(sources(memory=None), whole.stacker, whole.calibration).check()
    short = CsrRows(np.zeros(3, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), 7)
    with pytest.raises(ModelError):
        blend(sources(centroids=short)).check()
    with pytest.raises(ConfigError, match="k must be at least 1"):
        whole.predict(TEXTS, 0)
    with pytest.raises(DataError, match="list of texts"):
        whole.predict("one text", 1)


def test_no_documents_get_no_answers():
    assert blend().predict([], 3, NO_PAIRS).ids.shape == (0, 3)


def lifted(tail: float = 0.0) -> BlendServable:
    weights = np.array([1.0, 1.5, 3.0, 10.0, 40.0, 2.0, 5.0], dtype=np.float32)[: sources().n_labels]
    return dataclasses.replace(blend(), inverse_propensity=weights, tail=tail)


@pytest.mark.parametrize("tail", [0.0, 0.3, 1.0])
def test_the_order_is_that_of_probability_by_propensity_and_scores_stay(tail):
    whole = lifted()
    assert whole.inverse_propensity is not None
    plain = whole.predict(TEXTS, whole.n_labels)
    found = whole.predict(TEXTS, whole.n_labels, tail=tail)
    for row in range(len(TEXTS)):
        score = {int(label): float(p) for label, p in zip(plain.ids[row], plain.scores[row], strict=True) if label >= 0}
        worth = {label: p * float(whole.inverse_propensity[label]) ** tail for label, p in score.items()}
        listed = [int(label) for label in found.ids[row] if label >= 0]
        assert sorted(listed) == sorted(score)
        assert [worth[label] for label in listed] == pytest.approx(sorted(worth.values(), reverse=True))
        assert found.scores[row][: len(listed)].tolist() == [score[label] for label in listed]
    own = lifted(tail).predict(TEXTS, 3)  # as the model's own
    assert (own.ids == found.ids[:, :3]).all()


def test_each_document_may_have_a_tail_of_its_own():
    whole, documents = lifted(), TEXTS * 80  # more than one block
    tails = np.arange(len(documents)) % 3 / 2
    found = whole.predict(documents, 4, tail=tails)
    for tail in (0.0, 0.5, 1.0):
        assert (found.ids[tails == tail] == whole.predict(documents, 4, tail=tail).ids[tails == tail]).all()


def test_a_tail_that_cannot_be_is_refused():
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(ConfigError, match="tail: out of range"):
            lifted().predict(TEXTS, 1, tail=wrong)
        with pytest.raises(ModelError, match="tail exponent"):
            lifted(wrong).check()
    with pytest.raises(ConfigError, match="has no propensities"):
        blend().predict(TEXTS, 1, tail=0.5)
    assert (blend().predict(TEXTS, 1, tail=0.0).ids == blend().predict(TEXTS, 1).ids).all()
    with pytest.raises(ModelError, match="inverse propensities"):
        dataclasses.replace(lifted(), inverse_propensity=np.ones(2, np.float32)).check()
    with pytest.raises(ModelError, match="band"):
        dataclasses.replace(lifted(), bands={"3": points()}).check()


def points() -> OperatingPoints:
    """From 0.2 on half of the labels are right, from 0.6 on nine in ten."""
    steps = [np.array(values) for values in ([0.2, 0.6], [0.5, 0.9], [0.8, 0.4], [1.0, 0.7])]
    return OperatingPoints(*steps)


def test_labels_without_a_document_have_probabilities_of_their_own():
    whole, line = blend(), Isotonic(np.array([-20.0, 20.0]), np.array([0.0, 0.1]))
    other = dataclasses.replace(whole, unseen=line)
    counts = whole.sources.counts
    logits, labels = np.linspace(-3, 3, len(counts)), np.arange(len(counts))
    found = other.probabilities(logits, labels)
    assert (found == np.where(counts > 0, whole.calibration(logits), line(logits))).all()
    assert (counts == 0).any()
    best = other.predict(TEXTS, whole.n_labels)
    assert (np.diff(np.where(best.ids < 0, -1, best.scores), axis=1) <= 0).all()  # best first by what is said


def test_thresholds_tails_and_bands_survive_a_folder(tmp_path):
    line = Isotonic(np.array([-20.0, 20.0]), np.array([0.0, 0.1]))
    whole = dataclasses.replace(lifted(0.25), unseen=line, points=points(), bands={"0": points(), "6": points()})
    save_model(Model(whole, LabelSet(list(model().labels.names)), {}), tmp_path / "model")
    predictor = Predictor.load(tmp_path / "model")
    assert predictor.tail == 0.25
    for tail in (None, 0.0, 1.0):
        before, after = whole.predict(TEXTS, 3, tail=tail), predictor.predict(TEXTS, 3, tail=tail)
        assert (after.ids == before.ids).all()
    assert Threshold(target_precision=0.9).least(predictor.model.servable) == 0.6
    of_label = np.asarray(Threshold(0.7, target_precision=0.9, by_frequency=True).least(predictor.model.servable))
    assert of_label.tolist() == [0.7 if count in (0, 6) else 2.0 for count in whole.sources.counts.tolist()]


def test_a_threshold_is_what_is_left_of_all_answers():
    whole = Predictor(Model(dataclasses.replace(lifted(), points=points()), model().labels, {}))
    every = whole.suggest(TEXTS, 5)
    for threshold, least in ((Threshold(0.4), 0.4), (Threshold(best_f1=True), 0.2), (Threshold(0.1, 0.9), 0.6)):
        left = [[one for one in row if one.score >= least] for row in every]
        assert whole.suggest(TEXTS, 5, threshold=threshold) == left
    with pytest.raises(ConfigError, match="Give one of them"):
        Threshold(target_precision=0.5, best_f1=True)
    with pytest.raises(ConfigError, match="target precision too"):
        Threshold(by_frequency=True)
    with pytest.raises(ConfigError, match="no thresholds by frequency"):
        Threshold(target_precision=0.5, by_frequency=True).least(whole.model.servable)
    plain = Predictor(model())
    for asked in (Threshold(best_f1=True), Threshold(target_precision=0.5)):
        with pytest.raises(ConfigError, match="has no thresholds"):
            plain.suggest(TEXTS, threshold=asked)
    with pytest.raises(ConfigError, match="calibrate = true"):
        plain.predict(TEXTS, tail=0.5)
    assert plain.tail is None
