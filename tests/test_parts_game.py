"""GAME on other algorithms' predictions: what it adds, and that no game changes nothing."""

import numpy as np
import pytest
import scipy.sparse as sp
from planted import planted

from xclearn import algorithms, config
from xclearn.data import Dataset, LabelSet, Split
from xclearn.inference.graph import GameLabels
from xclearn.parts.game import GameStep

SHORT = {
    "label_tree": {"n_trees": 1},
    "astec": {"surrogate_epochs": 20, "extreme_epochs": 20, "embedding_dim": 48, "batch_size": 16},
    "decaf": {"surrogate_epochs": 20, "ranker_epochs": 5, "embedding_dim": 32, "batch_size": 32},
}


def pairs_of_labels(n_pairs: int = 12) -> Dataset:
    """Label 2i has its documents' word; label 2i + 1 has not, but in train it always comes with label 2i."""
    documents = [f"own{i} noise{j}" for i in range(n_pairs) for j in range(4)]
    relevance = sp.csr_matrix(np.kron(np.eye(n_pairs), np.ones((4, 2))).astype(np.float32))
    names = [f"label {i}" for i in range(2 * n_pairs)]
    texts = [f"own{i // 2}" if i % 2 == 0 else f"other{i}" for i in range(2 * n_pairs)]
    return Dataset("pairs", Split(documents, relevance), LabelSet(names, texts))


def test_the_step_is_the_graph_the_share_and_the_depth_asked_for():
    data = pairs_of_labels()
    step = GameStep(share=0.25, depth=7).build(data.train.relevance, data.labels.names, 0)
    assert isinstance(step, GameLabels)
    assert (step.depth, step.game.kept, step.game.share) == (7, 7, 0.25)
    assert step.game.graph.matrix[0, 1] > 0
    assert step.game.graph.matrix[0, 2] == 0


@pytest.mark.parametrize("name", SHORT)
def test_what_comes_together_in_train_is_brought_in(name):
    """The algorithm's own score of the other label of a pair can only rise towards its neighbour's."""
    data = pairs_of_labels()
    plain, game = (
        config.build(algorithms.find(name), SHORT[name] | extra).fit(data, device="cpu")
        for extra in ({}, {"game": {"share": 0.5, "graph": {"source": "cooccurrence"}}})
    )
    texts = [f"own{i}" for i in range(12)]
    before, after = (fitted.predict(texts, 24) for fitted in (plain, game))
    for row in range(12):
        pair = {2 * row, 2 * row + 1}
        assert set(after.ids[row, :2].tolist()) == pair
        was = dict(zip(before.ids[row].tolist(), before.scores[row].tolist(), strict=True))
        now = dict(zip(after.ids[row].tolist(), after.scores[row].tolist(), strict=True))
        gap = [abs(scores[2 * row] - scores[2 * row + 1]) for scores in (was, now)]
        assert gap[1] <= gap[0] + 1e-6


@pytest.mark.parametrize("name", SHORT)
def test_a_saved_model_has_its_game(name, tmp_path):
    data = planted(n_labels=6)
    fitted = config.build(algorithms.find(name), SHORT[name] | {"game": {}}).fit(data, device="cpu")
    fitted.save(tmp_path / "model")
    loaded = algorithms.find(name).load(tmp_path / "model")
    assert loaded.game == GameStep()
    before, after = (each.predict(data.test.documents, 3) for each in (fitted, loaded))
    assert (before.ids == after.ids).all()
    assert before.scores.tobytes() == after.scores.tobytes()
