"""Settings by which an algorithm chooses its encoder, and the encoder they stand for.

What an encoder reads is made by the vectoriser: bags by `words` and `word_piece` (or features that came as such), token
sequences by `sequences`, the tokens of a transformer by `pretrained`. `encoder_for` gives the one that fits. Knows
nothing about labels or training.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, final

import torch

from xclearn.config import Count, Number, Share, kind_of
from xclearn.errors import ConfigError, DataError
from xclearn.inference.tensors import tensor_shapes
from xclearn.parts.cost import Weights
from xclearn.parts.encoders import BagEncoder, DocumentEncoder
from xclearn.parts.sequence_encoders import ConvolutionEncoder, FilterSizes, TransformerEncoder, load_transformer
from xclearn.parts.transfer import TransferBlock, TransferEncoder
from xclearn.text import (
    Pretrained,
    PretrainedVectoriser,
    Sequences,
    SequenceVectoriser,
    Subwords,
    TextSettings,
    Vectoriser,
    WordPiece,
    Words,
)
from xclearn.text.documents import TEXTS

_MANY_LABELS = 200_000
_VALUES_PER_LAYER = 17  # of a transformer that a step holds for each token and dimension


@final
@dataclass(frozen=True, kw_only=True)
class BagSettings:
    """Sum of token embeddings."""

    residual: bool = False  # a block v + ReLU(R v + c) after it, as in DeepXML-OVA; worse on a hold-out
    dropout: Share = 0.3  # after each ReLU


@final
@dataclass(frozen=True, kw_only=True)
class MultilayerSettings:
    """Sum of token embeddings and plain layers (MACH)."""

    n_layers: Number = 1  # after the sum
    dropout: Share = 0.3  # after each ReLU


@final
@dataclass(frozen=True, kw_only=True)
class ConvolutionSettings:
    """Filters over token sequences (XML-CNN)."""

    token_dim: Count = 64  # length of token vectors
    widths: tuple[Count, ...] = (2, 4, 8)  # tokens that a filter sees
    n_filters: Count = 48  # of each width
    n_pools: Count = 2  # parts of the text in which each filter's largest value is kept
    dropout: Share = 0.3  # before and after the bottleneck


@final
@dataclass(frozen=True, kw_only=True)
class TransformerSettings:
    """The pretrained transformer in the folder of the vectoriser `pretrained`."""

    pooling: Literal["first", "mean"] = "first"  # the first token's vector, or the mean of all
    dropout: Share = 0.3  # on the vector


AnyText: TypeAlias = Words | WordPiece | Subwords | Sequences | Pretrained  # whose tokens an encoder can read
EncoderSettings: TypeAlias = BagSettings | MultilayerSettings | ConvolutionSettings | TransformerSettings


def usual_dim(n_labels: int, device: str) -> int:
    """The length of vectors where none is set: longer ones where labels are not very many and cost little."""
    if device != "cuda":
        return min(126, max(32, 2 * math.isqrt(n_labels)))
    return min(510, max(32, 8 * math.isqrt(n_labels))) if n_labels <= _MANY_LABELS else 302


def encoder_for(text: TextSettings) -> EncoderSettings:
    """The encoder that reads what a vectoriser makes."""
    if isinstance(text, Pretrained):
        return TransformerSettings()
    return ConvolutionSettings() if isinstance(text, Sequences) else BagSettings()


def make_encoder(
    settings: EncoderSettings,
    text: TextSettings,
    vectoriser: Vectoriser,
    dim: int,
    generator: torch.Generator,
    *,
    sparse: bool,
) -> DocumentEncoder:
    """A new encoder for what `vectoriser` makes; `dim` is the vector's length, but a transformer has its own.

    `sparse` makes the gradient of a token table hold only the tokens of the batch.
    """
    _require_fit(settings, vectoriser)
    n_features = vectoriser.n_features
    if isinstance(settings, BagSettings | MultilayerSettings):
        n_layers = settings.n_layers if isinstance(settings, MultilayerSettings) else 0
        bag = BagEncoder(n_features, dim, settings.dropout, generator, sparse=sparse, n_layers=n_layers)
        if isinstance(settings, BagSettings) and settings.residual:
            return TransferEncoder(bag, TransferBlock(dim, settings.dropout, "free", 1.0))
        return bag
    if isinstance(settings, ConvolutionSettings):
        if not settings.widths:
            raise ConfigError("a convolution needs filters", where="encoder.widths", got=[], todo="Give a width.")
        sizes = FilterSizes(settings.token_dim, settings.widths, settings.n_filters, settings.n_pools)
        return ConvolutionEncoder(n_features, dim, sizes, settings.dropout, generator, sparse=sparse)
    assert isinstance(text, Pretrained)
    model = load_transformer(text)
    _require_room(model, text, n_features)
    return TransformerEncoder(model, n_features, settings.pooling, settings.dropout)


def encoder_dim(text: TextSettings, dim: int) -> int:
    """The length of the vectors that `make_encoder` gives."""
    return _hidden_size(text) if isinstance(text, Pretrained) else dim


def encoder_weights(
    settings: EncoderSettings, text: TextSettings, n_features: int, dim: int, tokens: float | None = None
) -> tuple[Weights, Weights]:
    """The token table and the rest, without making them; `tokens` of a step when the table's gradient is sparse."""
    table, rest = _values(settings, text, n_features, dim)
    touched = None if tokens is None else 2 * tokens * (table // max(1, n_features))  # the rows, and their sums
    return Weights(values=table, touched=touched), Weights(values=rest)


def _values(settings: EncoderSettings, text: TextSettings, n_features: int, dim: int) -> tuple[int, int]:
    """How many values the token table has, and how many the rest."""
    if isinstance(settings, BagSettings):
        return n_features * dim, (dim * dim + dim) * settings.residual
    if isinstance(settings, MultilayerSettings):
        return n_features * dim, settings.n_layers * (dim * dim + dim)
    if isinstance(settings, ConvolutionSettings):
        filters = settings.n_filters * (settings.token_dim * sum(settings.widths) + len(settings.widths))
        pooled = settings.n_filters * len(settings.widths) * settings.n_pools
        return n_features * settings.token_dim, filters + (pooled + 1) * dim
    if not isinstance(text, Pretrained):
        raise _mismatch(settings)
    shapes = tensor_shapes(text.file("model.safetensors"))
    return 0, sum(math.prod(shape) for shape in shapes.values())


def encoder_working(settings: EncoderSettings, text: TextSettings) -> int:
    """Bytes that a step holds for each document of a sequence, for the gradient; of a bag it is a vector or two."""
    if isinstance(settings, ConvolutionSettings) and isinstance(text, Sequences):
        return 8 * text.max_length * (settings.token_dim + 2 * len(settings.widths) * settings.n_filters)
    if not isinstance(text, Pretrained):
        return 0
    return _VALUES_PER_LAYER * 4 * text.max_length * _n_layers(text) * _hidden_size(text)


def encoder_products(settings: EncoderSettings, text: TextSettings, dim: int) -> int:
    """Multiplications for a document in the encoder's layers."""
    if isinstance(settings, ConvolutionSettings) and isinstance(text, Sequences):
        return text.max_length * _values(settings, text, 0, dim)[1]
    if not isinstance(text, Pretrained):
        return _values(settings, text, 0, dim)[1]
    config, dim = _transformer_config(text), _hidden_size(text)
    inner = int(config.get("intermediate_size") or config.get("hidden_dim") or 4 * dim)  # hidden_dim: distilbert's
    return (4 * dim * dim + 2 * dim * inner) * _n_layers(text) * text.max_length


def _require_fit(settings: EncoderSettings, vectoriser: Vectoriser) -> None:
    kind = kind_of(type(settings))
    ordered = isinstance(settings, ConvolutionSettings | TransformerSettings)
    if ordered and vectoriser.reads != TEXTS:
        raise DataError(f"the encoder {kind} reads texts in their order", got=vectoriser.reads, allowed=TEXTS)
    reads: dict[type, Any] = {SequenceVectoriser: ConvolutionSettings, PretrainedVectoriser: TransformerSettings}
    makes = reads.get(type(vectoriser), BagSettings | MultilayerSettings)
    if not isinstance(settings, makes):
        raise _mismatch(settings)


def _mismatch(settings: EncoderSettings) -> ConfigError:
    got = kind_of(type(settings))
    todo = "Leave `encoder` at auto, or set `vectoriser` too."
    return ConfigError("the encoder does not read what the vectoriser makes", where="encoder", got=got, todo=todo)


def _require_room(model: Any, text: Pretrained, n_features: int) -> None:
    """Refuse a folder whose files do not belong together, and texts longer than the transformer can read."""
    known = model.get_input_embeddings().num_embeddings
    if known < n_features:
        got = (n_features, known)
        raise ConfigError("the tokeniser knows more tokens than the transformer", where=text.folder, got=got)
    longest = getattr(model.config, "max_position_embeddings", None) or text.max_length
    if text.max_length > longest:
        where, allowed = "vectoriser.max_length", f"up to {longest}"
        raise ConfigError("the transformer reads shorter texts", where=where, got=text.max_length, allowed=allowed)


def _hidden_size(text: Pretrained) -> int:
    config = _transformer_config(text)
    return int(config.get("hidden_size") or config["dim"])  # distilbert's word for it


def _n_layers(text: Pretrained) -> int:
    config = _transformer_config(text)
    return int(config.get("num_hidden_layers") or config.get("n_layers") or 12)  # distilbert's word for it


def _transformer_config(text: Pretrained) -> dict[str, Any]:
    path = text.file("config.json")
    try:
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        int(config.get("hidden_size") or config["dim"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError("config.json does not say how wide the transformer is", where=str(path)) from error
    return config
