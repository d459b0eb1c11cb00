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
from xclearn.inference.blend import Blend, Memory, Sources, SparseRows, best_pairs, blocks_of, logits_of
from xclearn.inference.sparse import unit_rows
from xclearn.inference.stackers import Isotonic, LinearStacker

TEXTS = ["red", "green green", "red red blue", ""]
LABEL_TEXTS = ["blue", "green", "red", "blue green"]


def rows(texts: list[str]) -> sp.csr_matrix:
    return unit_rows(servable().vectoriser.transform(texts))


def sources(**changes: object) -> Sources:
    """Two members that are alike, label texts, and a memory of four documents."""
    member, n = servable(), servable().n_labels
    relevance = sp.csr_matrix(np.eye(len(TEXTS), n, dtype=np.float32))
    texts = rows(LABEL_TEXTS)
    memory = Memory(SparseRows.of(rows(TEXTS)), SparseRows.of(relevance), 3, 1.0)
    members = {"one": member, "other": member}
    counts = np.arange(n, dtype=np.float32)
    whole = Sources(member.vectoriser, members, SparseRows.of(texts), SparseRows.of(texts), memory, counts, 2)
    return dataclasses.replace(whole, **changes)


def blend(of: Sources | None = None) -> Blend:
    of = of or sources()
    weights = np.zeros(len(of.value_names))
    weights[0] = 1.0
    line = Isotonic(np.array([-20.0, 20.0]), np.array([0.0, 1.0]))
    return Blend(of, LinearStacker(weights, np.full(len(weights), -20.0), 0.0), line)


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
        Blend(sources(memory=None), whole.stacker, whole.calibration).check()
    short = SparseRows(np.zeros(3, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), 7)
    with pytest.raises(ModelError):
        blend(sources(centroids=short)).check()
    with pytest.raises(ConfigError, match="k must be at least 1"):
        whole.predict(TEXTS, 0)
    with pytest.raises(DataError, match="list of texts"):
        whole.predict("one text", 1)


def test_no_documents_get_no_answers():
    assert blend().predict([], 3, NO_PAIRS).ids.shape == (0, 3)
