"""Stages through a label index: groups of optimisers, label vectors and matches against NumPy, and resuming."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from planted import planted
from sklearn.preprocessing import normalize
from torch.nn import functional as F

from xclearn import config
from xclearn.algorithms.elias import Elias
from xclearn.algorithms.elias.learned_edges import EdgeIndex, IndexedNetwork, PairClassifier, random_edges
from xclearn.algorithms.elias.stages import IndexedStages, Phase, usual_rates
from xclearn.config import AUTO
from xclearn.parts.classifiers import RowClassifier
from xclearn.parts.encoders import BagEncoder, random_table
from xclearn.parts.row_training import Negatives, row_classifier
from xclearn.parts.rows import SparseRows
from xclearn.text import Words
from xclearn.training.prepare import prepare

N, V, L, C, D = 30, 20, 12, 4, 8
CPU = torch.device("cpu")


def matrix(width: int, seed: int) -> sp.csr_matrix:
    found = sp.random(N, width, 0.2, format="csr", random_state=seed, dtype=np.float32)
    found.data[:] = 1
    return found


FEATURES, RELEVANCE = matrix(V, 1), matrix(L, 2)


def stages(**settings: object) -> IndexedStages:
    common = {"beam": 2, "size": 8, "most_clusters": 0, "warm_up": 0.1, "label_optimiser": "sgd"}
    rows = {"documents": SparseRows.of(FEATURES, CPU), "relevance": SparseRows.of(RELEVANCE, CPU)}
    return IndexedStages(
        **rows | common | {"weight_decay": 0.0, "reduction": "sum", "negatives": Negatives()} | settings
    )


@pytest.fixture
def network() -> IndexedNetwork:
    torch.manual_seed(0)
    encoder = BagEncoder(V, D, 0.3, torch.Generator().manual_seed(0), sparse=True)
    labels = torch.from_numpy(random_edges((C, 6), L, 0))
    index = EdgeIndex(D, labels, torch.rand(C, 6), n_labels=L, cluster_scale=2.0, edge_scale=3.0)
    return IndexedNetwork(encoder, index, PairClassifier(L, D, -2.0, sparse=True)).eval()


def vectors(network: IndexedNetwork) -> np.ndarray:
    with torch.no_grad():
        return network.encoder(SparseRows.of(FEATURES, CPU).take(torch.arange(N))).numpy()


def test_label_vectors_are_unit_sums_of_unit_vectors(network):
    found = stages().label_vectors(network).numpy()
    expected = RELEVANCE.toarray().T @ F.normalize(torch.from_numpy(vectors(network)), dim=1).numpy()
    expected /= np.maximum(np.linalg.norm(expected, axis=1, keepdims=True), 1e-12)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("texts", [False, True])
def test_bag_vectors_project_the_bags_of_a_labels_documents_and_of_its_text(texts):
    data = prepare(planted("sparse", n_labels=L), Words(), None, 0)
    relevance = SparseRows.of(data.relevance, CPU)
    found = stages(relevance=relevance).bag_vectors(data, D, torch.Generator().manual_seed(3), texts=texts)
    bags = [normalize(features).toarray() for features in (data.features, data.label_features)]
    table = random_table(bags[0].shape[1], D, torch.Generator().manual_seed(3)).detach().numpy()
    expected = [normalize(data.relevance.T @ bags[0] @ table), normalize(bags[1] @ table)][: 1 + texts]
    np.testing.assert_allclose(torch.stack(found).numpy(), expected, rtol=1e-3, atol=1e-5)


def test_matches_are_chances_of_the_best_clusters_over_a_labels_documents(network):
    found = stages().matched_edges(network, RELEVANCE, L)
    weight, bias = (values.detach().numpy() for values in network.index.clusters.parameters())
    logits = vectors(network) @ weight.T + bias
    chances = np.minimum(1, 2 * np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True))
    worst = np.argsort(-logits, axis=1)[:, 2:]
    np.put_along_axis(chances, worst, 0, axis=1)
    expected = chances.T @ RELEVANCE.toarray()  # (C, L)
    there = found["labels"] >= 0
    assert there.sum() == (expected > 0).sum()
    rows = np.nonzero(there)[0]
    np.testing.assert_allclose(found["matches"][there], expected[rows, found["labels"][there]], rtol=1e-3)


def stage_of(network: IndexedNetwork, phase: Phase, **settings: object):
    apart = isinstance(network.classifier, RowClassifier)
    resolved = config.resolve(phase, {"batch_size": 10, **usual_rates("cpu", apart=apart)})
    return next(stages(**settings).stage("first", network, resolved, 2, None, None))


def test_the_encoder_moves_at_every_step_and_the_rest_waits(network):
    stage = stage_of(network, Phase(accumulation=3))
    waits = dict(zip(map(type, stage.optimisers), stage.accumulation, strict=True))
    own = [{id(p) for group in each.param_groups for p in group["params"]} for each in stage.optimisers]
    encoder = {id(parameter) for parameter in network.encoder.parameters()}
    assert all((wait == 1) == (ids <= encoder) for ids, wait in zip(own, stage.accumulation, strict=True))
    assert set().union(*own) == {id(parameter) for parameter in network.parameters()}
    assert sum(map(len, own)) == len(list(network.parameters()))
    assert len(waits) == 3


def test_only_matrices_decay(network):
    stage = stage_of(network, Phase(), weight_decay=0.1)
    for optimiser in stage.optimisers:
        for group in optimiser.param_groups if isinstance(optimiser, torch.optim.AdamW) else []:
            assert all((values.ndim > 1) == (group["weight_decay"] == 0.1) for values in group["params"])


def test_the_mean_reduction_divides_by_the_shortlist_and_the_most_positives(network):
    batch = torch.arange(10)
    most = int(np.diff(RELEVANCE.indptr)[:10].max())
    losses = {}
    for reduction in ("sum", "mean"):
        for weight in (0.0, 1.0):
            stage = stage_of(network, Phase(shortlist_loss_weight=weight), reduction=reduction)
            given = type("Batch", (), {"rows": batch, "step": 0, "generator": None})
            losses[reduction, weight] = stage.loss(given).item()
    assert losses["mean", 0.0] == pytest.approx(losses["sum", 0.0] / 8, rel=1e-5)
    shortlist = losses["sum", 1.0] - losses["sum", 0.0]
    assert losses["mean", 1.0] - losses["mean", 0.0] == pytest.approx(shortlist / most, rel=1e-4)


def test_classifiers_apart_from_the_paths_learn_as_one_vs_all_does(network):
    """The loss is that of all labels and, weighted, what is not reached; rows move by its gradient."""
    rows = row_classifier(L, D, 0.5, "sgd", "bce_sum", CPU)
    network.classifier, before = rows, rows.weight.clone()
    given = type("Batch", (), {"rows": torch.arange(10), "step": 0, "generator": None})
    stage = stage_of(network, Phase(label_lr=0.2, shortlist_loss_weight=0.3))
    found = stage.loss(given).item()
    x, relevant = torch.from_numpy(vectors(network)[:10]), torch.from_numpy(RELEVANCE[:10].toarray())
    logits = (x @ before[:, :D].T + rows.prior).requires_grad_()
    loss = F.binary_cross_entropy_with_logits(logits, relevant, reduction="sum")
    (gradient,) = torch.autograd.grad(loss, logits)
    missed = -network.index.reached(x, stages().relevance.take(torch.arange(10))).sum()
    assert found == pytest.approx(float((loss + 0.3 * missed).detach()) / 10, rel=1e-5)
    np.testing.assert_allclose(rows.weight[:, :D] - before[:, :D], -0.2 * gradient.T @ x, rtol=1e-4, atol=1e-6)
    own = {id(p) for each in stage.optimisers for group in each.param_groups for p in group["params"]}
    assert own == {id(parameter) for parameter in network.parameters()}


def test_apart_from_the_paths_a_fifth_of_what_is_missed_counts_unless_set(network):
    network.classifier = row_classifier(L, D, 0.5, "sgd", "bce_sum", CPU)
    given = type("Batch", (), {"rows": torch.arange(10), "step": 0, "generator": None})
    phases = {weight: Phase(label_lr=1e-12, shortlist_loss_weight=weight) for weight in (AUTO, 0.0, 1.0)}
    found = {weight: stage_of(network, phase).loss(given).item() for weight, phase in phases.items()}
    assert found[AUTO] - found[0.0] == pytest.approx(0.2 * (found[1.0] - found[0.0]), rel=1e-4)


def test_averaged_and_accumulated_stages_resume_to_the_same_bits(tmp_path):
    """Interrupted in the second stage, after its average has begun."""
    phase = {"accumulation": 4, "average_from": 0.3, "average_every": 3}
    settings = {"first_epochs": 2, "second_epochs": 4, "second": phase, "batch_size": 8, "most_clusters": 3}
    data = planted(n_labels=12)

    def fit(**rest: object) -> bytes:
        fitted = config.build(Elias, settings, "elias").fit(data, device="cpu", **rest)
        return fitted.model.servable.scorers[0].weight.tobytes()

    def interrupt(event: dict) -> None:
        if event["event"] == "epoch" and (event["stage"], event["epoch"]) == ("second-0", 3):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(checkpoint=tmp_path / "c", callback=interrupt)
    assert fit(checkpoint=tmp_path / "c", resume=True) == fit()
