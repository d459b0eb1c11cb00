"""MACH: what buckets cannot tell apart, repetitions can; each way to average trains end to end."""

import pytest
from planted import planted, relevant_first

from xclearn.algorithms.mach import Mach
from xclearn.data import Dataset
from xclearn.parts.encoder_settings import MultilayerSettings
from xclearn.training.stage import Stopping

N_LABELS, FEW = 24, 6  # labels, and buckets: four labels in each


@pytest.fixture(scope="module")
def data() -> Dataset:
    return planted("sparse", n_labels=N_LABELS)


def fitted(data: Dataset, **settings: object) -> Mach:
    return Mach(**{"epochs": 30} | settings).fit(data, device="cpu", seed=2)


def test_repetitions_tell_apart_what_shares_a_bucket(data):
    found = {}
    for n_repetitions in (1, 5):
        algorithm = fitted(data, n_buckets=FEW, n_repetitions=n_repetitions)
        found[n_repetitions] = relevant_first(data, algorithm.predict(data.test.documents).ids)
    print(f"P@1 by repetitions: {found}")
    assert found[1] < 0.5
    assert found[5] > 0.85


@pytest.mark.parametrize(("combine", "n_layers"), [("mean", 0), ("geometric", 2)])
def test_every_variant_finds_the_planted_labels(data, combine, n_layers):
    algorithm = fitted(data, combine=combine, encoder=MultilayerSettings(n_layers=n_layers))
    assert relevant_first(data, algorithm.predict(data.test.documents).ids) > 0.9


def test_hashings_and_networks_differ_between_repetitions(data):
    servable = fitted(data, epochs=1, n_buckets=FEW, n_repetitions=2).model.servable
    one, other = servable.scorers[0].bucket_of_label
    assert (one != other).any()
    first, second = (encoder.token_embeddings for encoder in servable.encoders["document"].encoders)
    assert (first != second).any()


def test_early_stopping_measures_all_repetitions_so_far(data):
    """The second network alone would start near nothing; with the first before it, its first epoch scores well."""
    scores: dict[str, list[float]] = {}

    def callback(event):
        if event["event"] == "epoch":
            scores.setdefault(event["stage"], []).append(event["score"])

    stopping = Stopping(metric="P@1", patience=30, hold_out=0.1)
    Mach(epochs=30, n_repetitions=2, stopping=stopping).fit(data, device="cpu", seed=2, callback=callback)
    print(scores)
    assert list(scores) == ["repetition-0", "repetition-1"]
    assert scores["repetition-1"][0] > scores["repetition-0"][0]
