"""Encoders by name: what fits which vectoriser, how large it is, and that each trains inside an algorithm's loss."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from tiny_transformer import DIM, write_tokeniser, write_transformer

from xclearn import algorithms, config
from xclearn.errors import ConfigError, DataError
from xclearn.parts.encoder_settings import (
    BagSettings,
    ConvolutionSettings,
    EncoderSettings,
    MultilayerSettings,
    TransformerSettings,
    encoder_dim,
    encoder_for,
    encoder_weights,
    make_encoder,
    usual_dim,
    wider_dim,
)
from xclearn.parts.encoders import DocumentEncoder
from xclearn.parts.rows import feature_rows
from xclearn.text import Pretrained, Sequences, TextSettings, WordPiece, Words, vectoriser_for
from xclearn.training.prepare import Size

TEXTS = ["red stone", "green water", "blue stones and water", ""]
CPU, OUT = torch.device("cpu"), 6
_EMBEDDINGS = "embeddings.word_embeddings.weight"


def made(settings: EncoderSettings, text: TextSettings, documents=TEXTS) -> DocumentEncoder:
    vectoriser = vectoriser_for(documents, text)
    return make_encoder(settings, text, vectoriser, OUT, torch.Generator().manual_seed(0), sparse=False)


@pytest.fixture
def pretrained(tmp_path) -> Pretrained:
    pytest.importorskip("transformers")
    write_transformer(tmp_path)
    return Pretrained(folder=str(tmp_path), max_length=8)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (Words(), BagSettings),
        (WordPiece(), BagSettings),
        (Sequences(), ConvolutionSettings),
        (Pretrained(folder="f"), TransformerSettings),
    ],
)
def test_the_encoder_follows_the_vectoriser(text, expected):
    assert isinstance(encoder_for(text), expected)


BAGS = [
    (BagSettings(), Words()),
    (BagSettings(residual=True), Words()),
    (MultilayerSettings(n_layers=2), Words()),
    (ConvolutionSettings(widths=(2, 3), n_pools=3), Sequences()),
]


@pytest.mark.parametrize(("settings", "text"), BAGS)
def test_texts_become_vectors_and_the_size_is_known_before(settings, text):
    encoder = made(settings, text)
    vectoriser = vectoriser_for(TEXTS, text)
    vectors = encoder(feature_rows(vectoriser.transform(TEXTS), CPU).take(torch.arange(4)))
    assert vectors.shape == (4, OUT) == (4, encoder_dim(text, OUT))
    counted = sum(value.numel() for value in encoder.parameters())
    assert sum(part.values for part in encoder_weights(settings, text, vectoriser.n_features, OUT)) == counted


def test_a_sparse_gradient_holds_the_rows_of_the_batchs_tokens_and_their_sums():
    dense, sparse = (encoder_weights(BagSettings(), Words(), 100, OUT, tokens)[0] for tokens in (None, 7.0))
    assert (dense.gradient, sparse.gradient) == (4 * 100 * OUT, 4 * 2 * 7 * OUT)


def test_a_transformer_has_its_own_width_and_its_size_is_in_its_file(pretrained):
    encoder = made(TransformerSettings(), pretrained)
    assert encoder.dim == encoder_dim(pretrained, OUT) == DIM
    counted = sum(value.numel() for value in encoder.parameters())
    assert [part.values for part in encoder_weights(TransformerSettings(), pretrained, 10, OUT)] == [0, counted]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_folder_of_half_precision_is_sized_and_trains_in_float32(pretrained, dtype):
    from safetensors.torch import load_file, save_file

    path = Path(pretrained.folder) / "model.safetensors"
    sizes = encoder_weights(TransformerSettings(), pretrained, 10, OUT)
    halved = {name: value.to(dtype) for name, value in load_file(path).items()}
    save_file(halved, path, metadata={"format": "pt"})
    assert encoder_weights(TransformerSettings(), pretrained, 10, OUT) == sizes
    encoder = made(TransformerSettings(), pretrained)
    assert {value.dtype for value in encoder.parameters()} == {torch.float32}
    assert torch.equal(encoder.model.embeddings.word_embeddings.weight, halved[_EMBEDDINGS].float())


def test_each_weight_of_a_transformers_layers_is_multiplied_once_a_token(pretrained):
    layers = made(TransformerSettings(), pretrained).model.encoder.modules()
    weights = sum(each.weight.numel() for each in layers if isinstance(each, torch.nn.Linear))
    assert TransformerSettings().products(pretrained, OUT) == weights * pretrained.max_length > 0
    assert BagSettings().products(Words(), OUT) == 0
    assert MultilayerSettings(n_layers=2).products(Words(), OUT) == 2 * (OUT * OUT + OUT)


def test_distilbert_has_other_words_for_its_size(tmp_path):
    (tmp_path / "config.json").write_text('{"dim": 8, "n_layers": 3, "hidden_dim": 20}')
    text = Pretrained(folder=str(tmp_path), max_length=10)
    assert encoder_dim(text, OUT) == 8
    assert TransformerSettings().products(text, OUT) == 3 * 10 * (4 * 8 * 8 + 2 * 8 * 20)


def test_texts_longer_than_the_transformer_reads_are_refused(pretrained):
    with pytest.raises(ConfigError, match=r"vectoriser.max_length: .*got 65; allowed: up to 64"):
        made(TransformerSettings(), dataclasses.replace(pretrained, max_length=65))


def test_a_tokeniser_of_another_transformer_is_refused(pretrained):
    write_tokeniser(Path(pretrained.folder), [f"word{i}" for i in range(50)])
    with pytest.raises(ConfigError, match="more tokens than the transformer"):
        made(TransformerSettings(), pretrained)


def test_a_convolution_without_filters_is_refused():
    with pytest.raises(ConfigError, match=r"encoder.widths"):
        made(ConvolutionSettings(widths=()), Sequences())


@pytest.mark.parametrize("config", ["{", "[]", "{}", '{"hidden_size": "wide"}'])
def test_a_transformer_that_does_not_say_its_width_is_refused(tmp_path, config):
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(ConfigError, match="does not give the width"):
        encoder_dim(Pretrained(folder=str(tmp_path)), OUT)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (ConvolutionSettings(), Words()),
        (BagSettings(), Sequences()),
        (MultilayerSettings(), Sequences()),
        (TransformerSettings(), Words()),
    ],
)
def test_an_encoder_that_does_not_read_the_vectorisers_tokens_is_refused(settings, text):
    with pytest.raises(ConfigError, match=r"encoder: the encoder cannot read.*Leave `encoder` at auto"):
        made(settings, text)


@pytest.mark.parametrize("settings", [ConvolutionSettings(), TransformerSettings()])
@pytest.mark.parametrize("documents", [np.eye(3, dtype=np.float32), sp.csr_matrix(np.eye(3, dtype=np.float32))])
def test_features_have_no_order_to_read(settings, documents):
    with pytest.raises(DataError, match="reads texts in their order"):
        made(settings, Words(), documents)


@pytest.mark.parametrize(
    ("n_labels", "device", "usual", "wider"),
    [
        (100, "cpu", 32, 80),
        (4_271, "cpu", 126, 254),
        (20_000, "cpu", 126, 254),
        (20_001, "cpu", 126, 126),
        (4_271, "cuda", 510, 510),
        (1_000_000, "cuda", 302, 302),
    ],
)
def test_vectors_are_longer_where_labels_are_few_on_a_cpu_too_for_who_asks(n_labels, device, usual, wider):
    assert (usual_dim(n_labels, device), wider_dim(n_labels, device)) == (usual, wider)


@pytest.mark.parametrize(
    ("n_documents", "n_labels", "passes", "epochs"),
    [(4_000, 159, 25, 25), (20_000, 10_000, 12, 25), (45_000, 4_271, 10, 15), (4_000, 30_000, 14, 25)],
)
def test_small_sets_are_passed_over_25_times_at_most_and_with_more_dropout(n_documents, n_labels, passes, epochs):
    size = Size(n_documents, n_labels, 40_000, 10 * n_documents, 3 * n_documents, 0)
    light = algorithms.find("lightdxml")()._resolve(size, "cpu")
    one = algorithms.find("one_vs_all")()._resolve(size, "cpu")
    assert (light.model_epochs, one.epochs) == (passes, epochs)
    few = n_labels <= 20_000
    assert (light.dropout, one.dropout, one.encoder.dropout) == ((0.5, 0.5, 0.5) if few else (0.3, 0.3, 0.3))
    assert config.build(type(one), {"dropout": 0.1}, "one_vs_all")._resolve(size, "cpu").encoder.dropout == 0.1
