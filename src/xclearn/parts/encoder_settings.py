"""Settings that choose an encoder, and the code that builds it.

The vectoriser makes the input of the encoder: bags by `words` and `word_piece` (or given features), token sequences by
`sequences`, the tokens of a transformer by `pretrained`. `encoder_for` gives the matching encoder. Knows nothing about
labels or training.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, final

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

FEW_LABELS = 20_000  # up to which a CPU has the time for long vectors
_MANY_LABELS = 200_000
_VALUES_PER_LAYER = 17  # values per token and dimension that a transformer layer holds in a step


class NewEncoder(NamedTuple):
    """What a new encoder must fit."""

    text: TextSettings
    n_features: int
    dim: int
    generator: torch.Generator
    sparse: bool  # the token table's gradient holds only the tokens of the batch


class EncoderChoice(ABC):
    """Settings of one kind of encoder, with its cost and its construction."""

    ordered: ClassVar[bool] = False  # reads tokens in text order

    @abstractmethod
    def fits(self, vectoriser: Vectoriser) -> bool:
        """Whether the encoder can read this vectoriser's output."""

    @abstractmethod
    def make(self, new: NewEncoder) -> DocumentEncoder:
        """A new encoder; a transformer determines the length of its vectors."""

    @abstractmethod
    def values(self, text: TextSettings, n_features: int, dim: int) -> tuple[int, int]:
        """The number of values in the token table, and in the rest."""

    def working(self, text: TextSettings) -> int:  # noqa: ARG002
        """Bytes of activations per document in a step, for sequence encoders; negligible for bags."""
        return 0

    def products(self, text: TextSettings, dim: int) -> int:
        """Multiplications per document in the encoder's layers."""
        return self.values(text, 0, dim)[1]


class _OfBags(EncoderChoice):
    def fits(self, vectoriser: Vectoriser) -> bool:
        return not isinstance(vectoriser, SequenceVectoriser | PretrainedVectoriser)


@final
@dataclass(frozen=True, kw_only=True)
class BagSettings(_OfBags):
    """Sum of token embeddings."""

    residual: bool = False  # add a block v + ReLU(R v + c), as in DeepXML-OVA; worse on a hold-out
    dropout: Share = 0.3  # dropout after each ReLU

    def make(self, new: NewEncoder) -> DocumentEncoder:
        bag = BagEncoder(new.n_features, new.dim, self.dropout, new.generator, sparse=new.sparse, n_layers=0)
        return TransferEncoder(bag, TransferBlock(new.dim, self.dropout, "free", 1.0)) if self.residual else bag

    def values(self, text: TextSettings, n_features: int, dim: int) -> tuple[int, int]:  # noqa: ARG002
        return n_features * dim, (dim * dim + dim) * self.residual


@final
@dataclass(frozen=True, kw_only=True)
class MultilayerSettings(_OfBags):
    """Sum of token embeddings followed by dense layers (MACH)."""

    n_layers: Number = 1  # dense layers after the sum
    dropout: Share = 0.3  # dropout after each ReLU

    def make(self, new: NewEncoder) -> DocumentEncoder:
        return BagEncoder(
            new.n_features, new.dim, self.dropout, new.generator, sparse=new.sparse, n_layers=self.n_layers
        )

    def values(self, text: TextSettings, n_features: int, dim: int) -> tuple[int, int]:  # noqa: ARG002
        return n_features * dim, self.n_layers * (dim * dim + dim)


@final
@dataclass(frozen=True, kw_only=True)
class ConvolutionSettings(EncoderChoice):
    """Convolution over token sequences (XML-CNN)."""

    token_dim: Count = 64  # length of token vectors
    widths: tuple[Count, ...] = (2, 4, 8)  # filter widths in tokens
    n_filters: Count = 48  # filters of each width
    n_pools: Count = 2  # parts of the text over which each filter is max-pooled
    dropout: Share = 0.3  # dropout before and after the bottleneck

    ordered = True

    def fits(self, vectoriser: Vectoriser) -> bool:
        return isinstance(vectoriser, SequenceVectoriser)

    def make(self, new: NewEncoder) -> DocumentEncoder:
        if not self.widths:
            raise ConfigError("a convolution needs filters", where="encoder.widths", got=[], todo="Give a width.")
        sizes = FilterSizes(self.token_dim, self.widths, self.n_filters, self.n_pools)
        return ConvolutionEncoder(new.n_features, new.dim, sizes, self.dropout, new.generator, sparse=new.sparse)

    def values(self, text: TextSettings, n_features: int, dim: int) -> tuple[int, int]:  # noqa: ARG002
        filters = self.n_filters * (self.token_dim * sum(self.widths) + len(self.widths))
        pooled = self.n_filters * len(self.widths) * self.n_pools
        return n_features * self.token_dim, filters + (pooled + 1) * dim

    def working(self, text: TextSettings) -> int:
        if not isinstance(text, Sequences):
            return 0
        return 8 * text.max_length * (self.token_dim + 2 * len(self.widths) * self.n_filters)

    def products(self, text: TextSettings, dim: int) -> int:
        length = text.max_length if isinstance(text, Sequences) else 1
        return length * self.values(text, 0, dim)[1]


@final
@dataclass(frozen=True, kw_only=True)
class TransformerSettings(EncoderChoice):
    """The pretrained transformer in the folder set by the vectoriser `pretrained`."""

    pooling: Literal["first", "mean"] = "first"  # vector of the first token, or mean over tokens
    dropout: Share = 0.3  # dropout on the vector

    ordered = True

    def fits(self, vectoriser: Vectoriser) -> bool:
        return isinstance(vectoriser, PretrainedVectoriser)

    def make(self, new: NewEncoder) -> DocumentEncoder:
        text = self._pretrained(new.text)
        model = load_transformer(text)
        _require_room(model, text, new.n_features)
        return TransformerEncoder(model, new.n_features, self.pooling, self.dropout)

    def values(self, text: TextSettings, n_features: int, dim: int) -> tuple[int, int]:  # noqa: ARG002
        shapes = tensor_shapes(self._pretrained(text).file("model.safetensors"))
        return 0, sum(math.prod(shape) for shape in shapes.values())

    def working(self, text: TextSettings) -> int:
        text = self._pretrained(text)
        return _VALUES_PER_LAYER * 4 * text.max_length * _n_layers(text) * _hidden_size(text)

    def products(self, text: TextSettings, dim: int) -> int:  # noqa: ARG002
        text = self._pretrained(text)
        config = _transformer_config(text)
        own = _hidden_size(text)
        inner = int(config.get("intermediate_size") or config.get("hidden_dim") or 4 * own)  # hidden_dim: distilbert's
        return (4 * own * own + 2 * own * inner) * _n_layers(text) * text.max_length

    def _pretrained(self, text: TextSettings) -> Pretrained:
        if not isinstance(text, Pretrained):
            raise _mismatch(self)
        return text


AnyText: TypeAlias = Words | WordPiece | Subwords | Sequences | Pretrained  # settings whose tokens an encoder can read
EncoderSettings: TypeAlias = BagSettings | MultilayerSettings | ConvolutionSettings | TransformerSettings


def usual_dim(n_labels: int, device: str) -> int:
    """The default length of vectors: longer if there are not very many labels, so that it costs little."""
    if device != "cuda":
        return min(126, max(32, 2 * math.isqrt(n_labels)))
    return min(510, max(32, 8 * math.isqrt(n_labels))) if n_labels <= _MANY_LABELS else 302


def wider_dim(n_labels: int, device: str) -> int:
    """The same, on a CPU too longer where labels are few, for an algorithm that gains by it."""
    if device != "cuda" and n_labels <= FEW_LABELS:
        return min(254, max(32, 8 * math.isqrt(n_labels)))
    return usual_dim(n_labels, device)


def encoder_for(text: TextSettings) -> EncoderSettings:
    """The encoder that reads a vectoriser's output."""
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
    """A new encoder for the output of `vectoriser`; `dim` is the length of vectors, except for a transformer.

    With `sparse`, the gradient of the token table holds only the tokens of the batch.
    """
    _require_fit(settings, vectoriser)
    return settings.make(NewEncoder(text, vectoriser.n_features, dim, generator, sparse))


def encoder_dim(text: TextSettings, dim: int) -> int:
    """The length of the vectors of an encoder made by `make_encoder`."""
    return _hidden_size(text) if isinstance(text, Pretrained) else dim


def encoder_weights(
    settings: EncoderSettings, text: TextSettings, n_features: int, dim: int, tokens: float | None = None
) -> tuple[Weights, Weights]:
    """The weights of the token table and of the rest; `tokens` per step if the table's gradient is sparse."""
    table, rest = settings.values(text, n_features, dim)
    touched = None if tokens is None else 2 * tokens * (table // max(1, n_features))  # the rows, and their sums
    return Weights(values=table, touched=touched), Weights(values=rest)


def _require_fit(settings: EncoderSettings, vectoriser: Vectoriser) -> None:
    if settings.ordered and vectoriser.reads != TEXTS:
        kind = kind_of(type(settings))
        raise DataError(f"the encoder {kind} reads texts in their order", got=vectoriser.reads, allowed=TEXTS)
    if not settings.fits(vectoriser):
        raise _mismatch(settings)


def _mismatch(settings: EncoderSettings) -> ConfigError:
    got = kind_of(type(settings))
    todo = "Leave `encoder` at auto, or set `vectoriser` too."
    return ConfigError("the encoder cannot read the vectoriser's output", where="encoder", got=got, todo=todo)


def _require_room(model: Any, text: Pretrained, n_features: int) -> None:
    """Raise if a folder's files do not belong together, or texts are longer than the transformer can read."""
    known = model.get_input_embeddings().num_embeddings
    if known < n_features:
        got = (n_features, known)
        raise ConfigError("the tokeniser has more tokens than the transformer", where=text.folder, got=got)
    longest = getattr(model.config, "max_position_embeddings", None) or text.max_length
    if text.max_length > longest:
        where, allowed = "vectoriser.max_length", f"up to {longest}"
        raise ConfigError(
            "texts are longer than the transformer can read", where=where, got=text.max_length, allowed=allowed
        )


def _hidden_size(text: Pretrained) -> int:
    config = _transformer_config(text)
    return int(config.get("hidden_size") or config["dim"])  # distilbert's name for it


def _n_layers(text: Pretrained) -> int:
    config = _transformer_config(text)
    return int(config.get("num_hidden_layers") or config.get("n_layers") or 12)  # distilbert's name for it


def _transformer_config(text: Pretrained) -> dict[str, Any]:
    path = text.file("config.json")
    try:
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        int(config.get("hidden_size") or config["dim"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError("config.json does not give the width of the transformer", where=str(path)) from error
    return config
