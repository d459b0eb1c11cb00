"""Models that read the order of words, as folders: trained, saved, loaded and asked."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from planted import N_NOISE, planted, relevant_first
from tiny_transformer import write_transformer

from xclearn import load
from xclearn.data import Dataset
from xclearn.errors import MissingExtra
from xclearn.inference.components import AllLabels, Sigmoid
from xclearn.inference.folder import Model, save_model
from xclearn.inference.sequences import pool
from xclearn.inference.servable import Servable
from xclearn.parts.encoder_settings import TransformerSettings, make_encoder
from xclearn.parts.encoders import encoder_optimisers
from xclearn.parts.row_training import Negatives, RowTask, row_classifier
from xclearn.parts.rows import SparseRows, feature_rows
from xclearn.text import Pretrained

N_LABELS, DIM, STEPS = 12, 16, 100
CPU = torch.device("cpu")


def test_the_largest_value_of_each_part():
    values = np.arange(10.0).reshape(1, 5, 2)  # five places, two filters: 0 2 4 6 8 and 1 3 5 7 9
    assert pool(values, 1).tolist() == [[8, 9]]
    assert pool(values, 2).tolist() == [[4, 8, 5, 9]]  # the place in the middle counts in both parts
    assert pool(values, 5).tolist() == [[0, 2, 4, 6, 8, 1, 3, 5, 7, 9]]


def trained(folder: Path, data: Dataset) -> Servable:
    """A transformer and one classifier a label, trained together on whole batches."""
    text = Pretrained(folder=str(folder), max_length=9)
    vectoriser, generator = text.learn(data.train.documents), torch.Generator().manual_seed(0)
    settings = TransformerSettings(pooling="mean", dropout=0.0)
    encoder = make_encoder(settings, text, vectoriser, DIM, generator, sparse=False)
    classifier = row_classifier(N_LABELS, encoder.dim, 0.05, "adam", "bce_sum", CPU)
    documents = feature_rows(vectoriser.transform(data.train.documents), CPU)
    labels = SparseRows.of(data.train.relevance, CPU)
    task, optimisers = RowTask(encoder, classifier, documents, labels, Negatives()), encoder_optimisers(encoder, 0.01)
    task.module.train()
    for step in range(STEPS):
        task.loss(torch.arange(len(documents)), step, generator).backward()
        for optimiser in optimisers:
            optimiser.step()
            optimiser.zero_grad()
    task.module.eval()
    served = {"document": encoder.served()}
    return Servable(vectoriser, served, AllLabels(), [classifier.served("document")], Sigmoid())


def test_a_transformer_is_trained_saved_and_served_without_its_folder(tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    words = [*(f"own{i}" for i in range(N_LABELS)), *(f"noise{i}" for i in range(N_NOISE))]
    write_transformer(tmp_path / "pretrained", words, dim=DIM)
    data = planted(n_labels=N_LABELS, train=30, test=10)
    servable = trained(tmp_path / "pretrained", data)
    before = servable.predict(data.test.documents, 5)
    found = relevant_first(data, before.ids)
    print(f"P@1 {found:.2f}")
    assert found > 0.8
    save_model(Model(servable, data.labels, {"algorithm": "test"}), tmp_path / "model")
    for path in (tmp_path / "pretrained").iterdir():
        path.unlink()
    after = load(tmp_path / "model").predict(data.test.documents)
    assert (after.ids == before.ids).all()
    np.testing.assert_allclose(after.scores, before.scores, atol=1e-6)
    assert str(tmp_path) not in json.dumps(json.loads((tmp_path / "model" / "model.json").read_text())["servable"])

    monkeypatch.setitem(sys.modules, "transformers", None)  # as if it were not installed
    with pytest.raises(MissingExtra, match=r"xclearn\[transformer\]"):
        load(tmp_path / "model")
