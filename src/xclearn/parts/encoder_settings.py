"""Settings by which an algorithm chooses its encoder, and the encoder they stand for.

What an encoder reads is made by the vectoriser: bags by `words` and `word_piece` (or features that came as such), token
sequences by `sequences`, the tokens of a transformer by `pretrained`. `encoder_for` gives the one that fits. Knows
nothing about labels or training.
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

_MANY_LABELS = 200_000
_VALUES_PER_LAYER = 17  # of a transformer that a step holds for each token and dimension


class NewEncoder(NamedTuple):
    """What an encoder is made for."""

    text: TextSettings
    n_features: int
    dim: int
    generator: torch.Generator
    sparse: bool  # the gradient of a token table holds only the tokens of the batch


class EncoderChoice(ABC):
    """The settings of one kind of encoder: what it costs, and how it is made."""

    ordered: ClassVar[bool] = False  # reads the tokens of texts in their order

    @abstractmethod
    def fits(self, vectoriser: Vectoriser) -> bool:
        """Whether it reads what this vectoriser makes."""

    @abstractmethod
    def make(self, new: NewEncoder) -> DocumentEncoder:
        """A new encoder; vectors of a transformer have a length of their own."""

    @abstractmethod
    def values(self, text: TextSettings, n_features: int, dim: int) -> tuple[int, int]:
        """How many values the token table has, and how many the rest."""

    def working(self, text: TextSettings) -> int:  # noqa: ARG002
        """Bytes that a step holds for each document of a sequence, for the gradient; of a bag it is a vector or two."""
        return 0

    def products(self, text: TextSettings, dim: int) -> int:
        """Multiplications for a document in the encoder's layers."""
        return self.values(text, 0, dim)[1]


class _OfBags(EncoderChoice):
    def fits(self, vectoriser: Vectoriser) -> bool:
        return not isinstance(vectoriser, SequenceVectoriser | PretrainedVectoriser)


@final
@dataclass(frozen=True, kw_only=True)
class BagSettings(_OfBags):
    """Sum of token embeddings."""

    residual: bool = False  # a block v + ReLU(R v + c) after it, as in DeepXML-OVA; worse on a hold-out
    dropout: Share = 0.3  # after each ReLU

    def make(self, new: NewEncoder) -> DocumentEncoder:
        bag = BagEncoder(new.n_features, new.dim, self.dropout, new.generator, sparse=new.sparse, n_layers=0)
        return TransferEncoder(bag, TransferBlock(new.dim, self.dropout, "free", 1.0)) if self.residual else bag

    def values(self, text: TextSettings, n_features: int, dim: int) -> tuple[int, int]:  # noqa: ARG002
        return n_features * dim, (dim * dim + dim) * self.residual


@final
@dataclass(frozen=True, kw_only=True)
class MultilayerSettings(_OfBags):
    """Sum of token embeddings and plain layers (MACH)."""

    n_layers: Number = 1  # after the sum
    dropout: Share = 0.3  # after each ReLU

    def make(self, new: NewEncoder) -> DocumentEncoder:
        return BagEncoder(
            new.n_features, new.dim, self.dropout, new.generator, sparse=new.sparse, n_layers=self.n_layers
        )

    def values(self, text: TextSettings, n_features: int, dim: int) -> tuple[int, int]:  # noqa: ARG002
        return n_features * dim, self.n_layers * (dim * dim + dim)


@final
@dataclass(frozen=True, kw_only=True)
class ConvolutionSettings(EncoderChoice):
    """Filters over token sequences (XML-CNN)."""

    token_dim: Count = 64  # length of token vectors
    widths: tuple[Count, ...] = (2, 4, 8)  # tokens that a filter sees
    n_filters: Count = 48  # of each width
    n_pools: Count = 2  # parts of the text in which each filter's largest value is kept
    dropout: Share = 0.3  # before and after the bottleneck

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
    """The pretrained transformer in the folder of the vectoriser `pretrained`."""

    pooling: Literal["first", "mean"] = "first"  # the first token's vector, or the mean of all
    dropout: Share = 0.3  # on the vector

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
    return settings.make(NewEncoder(text, vectoriser.n_features, dim, generator, sparse))


def encoder_dim(text: TextSettings, dim: int) -> int:
    """The length of the vectors that `make_encoder` gives."""
    return _hidden_size(text) if isinstance(text, Pretrained) else dim


def encoder_weights(
    settings: EncoderSettings, text: TextSettings, n_features: int, dim: int, tokens: float | None = None
) -> tuple[Weights, Weights]:
    """The token table and the rest, without making them; `tokens` of a step when the table's gradient is sparse."""
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
