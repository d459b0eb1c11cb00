"""Encoders of sequences against a formula in NumPy loops, their served forms, and a second way through the library."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from handmade import expect_fits
from safetensors.torch import load_file, save_file
from tiny_transformer import DIM, write_transformer

from xclearn.errors import ConfigError, ModelError
from xclearn.parts.sequence_encoders import ConvolutionEncoder, FilterSizes, TransformerEncoder, load_transformer
from xclearn.text import Pretrained

V, E, WIDTHS, FILTERS, POOLS, OUT = 12, 3, (2, 4), 5, 2, 6


def convolution(*, dropout: float = 0.0, sparse: bool = False) -> ConvolutionEncoder:
    generator = torch.Generator().manual_seed(0)
    made = ConvolutionEncoder(V, OUT, FilterSizes(E, WIDTHS, FILTERS, POOLS), dropout, generator, sparse=sparse)
    with torch.no_grad():
        for layer in (*made.filters, made.bottleneck):
            layer.bias.normal_(generator=generator)
    return made


def token_ids(length: int, n: int = 9) -> torch.Tensor:
    ids = torch.randint(V, (n, length), generator=torch.Generator().manual_seed(1), dtype=torch.int32)
    for row in range(n):
        ids[row, row % (length + 1) :] = -1  # the first is empty
    return ids


def by_hand(encoder: ConvolutionEncoder, ids: np.ndarray) -> np.ndarray:
    """One text (T,) place by place: every filter, its largest value in each part, the bottleneck."""
    tensors = {name: value.detach().numpy().astype(np.float64) for name, value in encoder.named_parameters()}
    tokens = [tensors["token_embeddings"][i] if i >= 0 else np.zeros(E) for i in ids]
    tokens += [np.zeros(E)] * (max(WIDTHS) - len(tokens))
    pooled = []
    for number, width in enumerate(WIDTHS):
        weight, bias = tensors[f"filters.{number}.weight"], tensors[f"filters.{number}.bias"]
        for each in range(FILTERS):
            values = [
                max(0, bias[each] + sum(tokens[start + j] @ weight[each, :, j] for j in range(width)))
                for start in range(len(tokens) - width + 1)
            ]
            for part in range(POOLS):
                begin, end = part * len(values) // POOLS, -(-(part + 1) * len(values) // POOLS)
                pooled.append(max(values[begin:end]))
    return np.maximum(tensors["bottleneck.weight"] @ np.array(pooled) + tensors["bottleneck.bias"], 0)


@pytest.mark.parametrize("length", [1, 4, 7, 16])
def test_the_convolution_is_the_formula_and_so_is_its_served_form(length):
    encoder, ids = convolution(dropout=0.5).eval(), token_ids(length)
    expected = np.stack([by_hand(encoder, row) for row in ids.numpy()])
    served = encoder.served()
    expect_fits(served)
    for vectors in (encoder(ids).detach().numpy(), served.encode(ids.numpy())):
        difference = np.abs(vectors - expected).max()
        print(f"largest difference {difference:.1e}")
        assert difference < 1e-5
    assert (served.dim, served.n_features, encoder.dim) == (OUT, V, OUT)


def test_a_sparse_gradient_of_the_tokens_is_the_dense_one():
    gradients = []
    for sparse in (True, False):
        encoder = convolution(sparse=sparse)
        encoder(token_ids(6)).sum().backward()
        gradient = encoder.token_embeddings.grad
        assert gradient.is_sparse is sparse
        gradients.append(gradient.to_dense())
        assert [each is encoder.token_embeddings for each in encoder.lazy_parameters()] == [True] * sparse
    torch.testing.assert_close(*gradients)


def test_dropout_is_only_in_training():
    encoder, ids = convolution(dropout=0.5), token_ids(6)
    assert not torch.equal(encoder(ids), encoder(ids))
    encoder.eval()
    assert torch.equal(encoder(ids), encoder(ids))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("token_embeddings", np.zeros((V, E + 1), np.float32)),
        ("filters", []),
        ("n_pools", 0),
        ("weight", np.zeros((OUT, 7), np.float32)),
        ("bias", np.zeros(OUT + 1, np.float32)),
    ],
)
def test_tensors_of_a_convolution_that_do_not_fit_are_refused(field, value):
    with pytest.raises(ModelError):
        expect_fits(dataclasses.replace(convolution().served(), **{field: value}))


# transformer


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Pretrained:
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("transformer")
    write_transformer(folder)
    return Pretrained(folder=str(folder), max_length=8)


TEXTS = ["red stone", "", "green blue water stones red red red", "blue"]


@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_the_transformer_gives_what_the_library_gives_one_text_at_a_time(settings, pooling):
    """Without padding: neither the other texts of a batch nor missing tokens count."""
    vectoriser, model = settings.learn([]), load_transformer(settings)
    encoder = TransformerEncoder(model, vectoriser.n_features, pooling, 0.5).eval()
    ids = torch.from_numpy(vectoriser.transform(TEXTS))
    found = encoder(ids).detach()
    for row, vector in zip(ids, found, strict=True):
        with torch.no_grad():
            hidden = model(input_ids=row[row >= 0].long()[None]).last_hidden_state[0]
        expected = hidden[0] if pooling == "first" else hidden.mean(dim=0)
        torch.testing.assert_close(vector, expected, atol=1e-5, rtol=1e-5)
    served = encoder.served()
    expect_fits(served)
    assert (served.dim, served.n_features) == (DIM, vectoriser.n_features)
    np.testing.assert_allclose(served.encode(ids.numpy()), found.numpy(), atol=1e-6)
    assert settings.folder not in served.config


@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_a_text_without_any_token_has_a_vector_too(settings, pooling):
    """A tokeniser need not put marks around a text."""
    encoder = TransformerEncoder(load_transformer(settings), 10, pooling, 0.0).eval()
    ids = torch.tensor([[-1, -1, -1], [4, 5, -1]], dtype=torch.int32)
    assert encoder(ids).isfinite().all()
    torch.testing.assert_close(encoder(ids)[1], encoder(ids[1:])[0])


def test_every_weight_that_is_used_is_trained(settings):
    encoder = TransformerEncoder(load_transformer(settings), 10, "first", 0.0)
    encoder(torch.from_numpy(settings.learn([]).transform(TEXTS))).square().sum().backward()
    idle = [name for name, value in encoder.named_parameters() if value.grad is None]
    assert all("pooler" in name for name in idle)
    assert len(idle) <= 2


def test_what_is_not_there_is_named_and_nothing_is_downloaded(tmp_path):
    pytest.importorskip("transformers")
    with pytest.raises(ConfigError, match=r"no config.json of the encoder .*; got 'bert-base-uncased'"):
        load_transformer(Pretrained(folder="bert-base-uncased"))
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"this type of transformer cannot be served; allowed: albert, bert"):
        load_transformer(Pretrained(folder=str(tmp_path)))


def test_damaged_transformers_are_refused(settings):
    served = TransformerEncoder(load_transformer(settings), 10, "first", 0.0).served()
    config = json.loads(served.config)
    foreign = {name: value for name, value in served.weights.items() if "attention" not in name}
    for change in (
        {"config": "{}"},
        {"config": json.dumps(config | {"model_type": "no_such_type"})},
        {"config": json.dumps(config | {"model_type": "timm_wrapper"})},
        {"config": json.dumps(config | {"hidden_size": 12})},
        {"weights": foreign},
        {"pooling": "last"},
        {"n_features": 1000},
    ):
        with pytest.raises(ModelError):
            expect_fits(dataclasses.replace(served, **change))


def test_a_model_file_names_no_code_that_is_run(settings):
    """The library would fetch a kernel by such a name, or import a module by `auto_map`."""
    served = TransformerEncoder(load_transformer(settings), 10, "first", 0.0).served()
    planted = {"attn_implementation": "someone/kernel", "_attn_implementation": "someone/kernel"}
    planted["auto_map"] = {"AutoModel": "someone/code--module.Class"}
    changed = dataclasses.replace(served, config=json.dumps(json.loads(served.config) | planted))
    expect_fits(changed)
    ids = settings.learn([]).transform(TEXTS)
    assert (changed.encode(ids) == served.encode(ids)).all()


@pytest.mark.parametrize(
    "change",
    [
        {"num_attention_heads": 0},
        {"hidden_act": "no_such_function"},
        {"dtype": "no_such_type"},
        {"hidden_size": "wide"},
        {"vocab_size": 10**9},
        {"max_position_embeddings": 10**9},
        {"model_type": "no_such_type"},
        {"model_type": ["bert"]},
    ],
)
def test_a_foreign_folder_whose_configuration_is_wrong_is_one_error(settings, tmp_path, change):
    with pytest.raises(ConfigError):
        load_transformer(damaged(settings, tmp_path, change))


@pytest.mark.parametrize("text", ["[" * 100_000, "[]", "null", "{", "\ud800"])
def test_a_configuration_that_is_none_is_one_error(settings, tmp_path, text):
    changed = damaged(settings, tmp_path, {})
    changed.file("config.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ConfigError):
        load_transformer(changed)


def test_weights_that_are_cut_short_or_lack_a_tensor_are_one_error(settings, tmp_path):
    changed = damaged(settings, tmp_path, {})
    weights = changed.file("model.safetensors")
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ConfigError, match="cannot be read"):
        load_transformer(changed)
    tensors = {
        name: value for name, value in load_file(settings.file("model.safetensors")).items() if "query" not in name
    }
    save_file(tensors, weights)
    with pytest.raises(ConfigError, match=r"the transformer lacks weights; got '?encoder.layer.0.attention.self.query"):
        load_transformer(changed)


def test_a_pretrained_folder_names_no_code_that_is_run(settings, tmp_path):
    """The library would fetch a kernel by such a name, import a module, or pack weights as it says."""
    planted = {"attn_implementation": "someone/kernel", "_attn_implementation": "someone/kernel"}
    planted |= {"auto_map": {"AutoModel": "someone/code--module.Class"}, "quantization_config": {"quant_method": "awq"}}
    ids = torch.from_numpy(settings.learn([]).transform(TEXTS))
    plain, changed = load_transformer(settings), load_transformer(damaged(settings, tmp_path, planted))
    answers = [TransformerEncoder(model, 10, "first", 0.0).eval()(ids) for model in (plain, changed)]
    assert torch.equal(*answers)


def damaged(settings, folder, change):
    """A copy of the folder with another configuration."""
    for file in Path(settings.folder).iterdir():
        shutil.copy(file, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))
    return Pretrained(folder=str(folder), max_length=settings.max_length)
