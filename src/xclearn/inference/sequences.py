"""Encoders that read token ids in the order of the text: a convolution in NumPy, and a transformer in torch.

The transformer needs the extra `transformer`; its weights and its configuration travel in the model folder, and loading
them runs no code of theirs. Nothing here knows an algorithm or how an encoder was trained.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, final

import numpy as np
import scipy.sparse as sp

from xclearn.errors import MissingExtra, ModelError
from xclearn.inference.checks import expect_shape
from xclearn.inference.components import Encoder, component

if TYPE_CHECKING:
    import torch

TEXT_TRANSFORMERS = (
    *("albert", "bert", "camembert", "deberta", "deberta-v2", "distilbert", "electra", "modernbert", "mpnet"),
    *("roberta", "xlm-roberta"),
)  # other types of the library may fetch files or code of their own
_CODE = ("auto_map", "attn_implementation", "quantization_config")  # names what is to be run

_AT_ONCE = 64  # texts encoded at a time: what is held for each is many times its vector
_AT_ONCE_ON_GPU = 512  # fewer would leave it idle


@final
@component("filters.v1")
@dataclass(frozen=True)
class Filters:
    """Filters over `width` tokens at a time."""

    weight: np.ndarray  # (F, E, width)
    bias: np.ndarray  # (F,)

    @property
    def width(self) -> int:
        return self.weight.shape[2]

    def __call__(self, tokens: np.ndarray) -> np.ndarray:
        """max(0, filter) at each place: (n, T, E) → (n, T − width + 1, F)."""
        places = np.lib.stride_tricks.sliding_window_view(tokens, self.width, axis=1)  # (n, P, E, width)
        found = np.tensordot(places, self.weight, axes=([2, 3], [1, 2])) + self.bias
        return np.maximum(found, 0)


@final
@component("convolution.v1")
@dataclass(frozen=True)
class Convolution(Encoder):
    """Filters over token embeddings, the largest value in each of `n_pools` parts of the text, one layer, ReLU."""

    token_embeddings: np.ndarray  # (V, E)
    filters: Sequence[Filters]
    n_pools: int
    weight: np.ndarray  # (D, all filters × pools)
    bias: np.ndarray  # (D,)

    @property
    def dim(self) -> int:  # type: ignore[override]
        return self.weight.shape[0]

    @property
    def n_features(self) -> int:  # type: ignore[override]
        return self.token_embeddings.shape[0]

    def encode(self, features: sp.csr_matrix | np.ndarray) -> np.ndarray:
        parts = [features[start : start + _AT_ONCE] for start in range(0, len(features), _AT_ONCE)]
        return np.concatenate([self._encode(part) for part in parts])

    def _encode(self, ids: np.ndarray) -> np.ndarray:
        tokens = self.token_embeddings[ids] * (ids >= 0)[:, :, None]  # (n, T, E)
        short = max(each.width for each in self.filters) - tokens.shape[1]
        tokens = np.pad(tokens, ((0, 0), (0, max(0, short)), (0, 0)))
        pooled = [pool(each(tokens), self.n_pools) for each in self.filters]
        return np.maximum(np.concatenate(pooled, axis=1) @ self.weight.T + self.bias, 0).astype(np.float32)

    def check(self) -> None:
        if self.token_embeddings.ndim != 2 or not self.filters or self.n_pools < 1:
            raise ModelError("the convolution is incomplete", got=self.token_embeddings.shape)
        for each in self.filters:
            if each.weight.ndim != 3 or each.weight.shape[1] != self.token_embeddings.shape[1] or each.width < 1:
                raise ModelError("filters do not fit the token embeddings", got=each.weight.shape)
            expect_shape(each.bias, each.weight.shape[:1], "filters.bias")
        inputs = self.n_pools * sum(len(each.bias) for each in self.filters)
        expect_shape(self.bias, self.weight.shape[:1], "convolution.bias")
        expect_shape(self.weight, (*self.bias.shape, inputs), "convolution.weight")


def pool(values: np.ndarray, n_pools: int) -> np.ndarray:
    """The largest value in each of `n_pools` parts: (n, P, F) → (n, F · n_pools), the parts of a filter together."""
    places = values.shape[1]
    ends = [(i * places // n_pools, -(-(i + 1) * places // n_pools)) for i in range(n_pools)]
    parts = [values[:, begin:end].max(axis=1) for begin, end in ends]
    return np.stack(parts, axis=2).reshape(len(values), -1)


@final
@component("transformer.v1")
@dataclass(frozen=True)
class Transformer(Encoder):
    """A transformer's last layer, as one vector a text. On a GPU, where there is one, in bfloat16 as in training."""

    config: str  # JSON, as the transformers library writes it
    weights: Mapping[str, np.ndarray]
    n_features: int  # tokens of its vectoriser
    pooling: str  # mean or first

    @property
    def dim(self) -> int:  # type: ignore[override]
        return int(self._model.config.hidden_size)

    def encode(self, features: sp.csr_matrix | np.ndarray) -> np.ndarray:
        import torch

        model = self._model
        on_gpu = model.device.type == "cuda"
        ids = torch.from_numpy(np.ascontiguousarray(features)).to(model.device)
        with torch.inference_mode(), torch.autocast(model.device.type, torch.bfloat16, enabled=on_gpu):
            parts = ids.split(_AT_ONCE_ON_GPU if on_gpu else _AT_ONCE)
            return torch.cat([transformer_vectors(model, part, self.pooling) for part in parts]).cpu().numpy()

    def check(self) -> None:
        if self.pooling not in ("mean", "first"):
            raise ModelError("unknown pooling", where="transformer.v1", got=self.pooling, allowed="mean, first")
        table = self._model.get_input_embeddings().weight
        if table.shape[0] < self.n_features:
            raise ModelError("the transformer knows fewer tokens than its vectoriser", got=tuple(table.shape))

    @cached_property
    def _model(self) -> Any:
        import torch

        library = transformers_library()
        try:
            config = library.AutoConfig.for_model(**self._settings())
            model = library.AutoModel.from_config(config, trust_remote_code=False)
            model.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in self.weights.items()})
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            raise ModelError("the transformer cannot be built", where="transformer.v1", got=str(error)) from error
        return model.eval().to("cuda" if torch.cuda.is_available() else "cpu")

    def _settings(self) -> dict[str, Any]:
        """The configuration without what would make the library run or fetch anything."""
        settings = json.loads(self.config)
        if settings["model_type"] not in TEXT_TRANSFORMERS:
            raise ValueError(settings["model_type"])
        return {key: value for key, value in settings.items() if key not in _CODE and not key.startswith("_")}


def transformers_library() -> Any:
    """The transformers library, or the error that says how to get it."""
    try:
        import transformers
    except ImportError as error:
        todo = "Install it with `pip install 'xclearn[transformer]'`."
        raise MissingExtra("a transformer needs the package transformers", todo=todo) from error
    return transformers


def transformer_vectors(model: Any, ids: torch.Tensor, pooling: str) -> torch.Tensor:
    """Token ids (n, T), −1 where there are none, → (n, D): the first token's vector or the mean of all."""
    width = max(1, int((ids >= 0).sum(dim=1).max()))
    ids = ids[:, :width].long()
    there = (ids >= 0).long()  # (n, t)
    there[:, 0] = 1  # a text without tokens is one padding token: attention to nothing is not a number
    hidden = model(input_ids=ids.clamp(min=0), attention_mask=there).last_hidden_state  # (n, t, D)
    if pooling == "first":
        return hidden[:, 0].float()
    weights = there[:, :, None].to(hidden.dtype)
    return ((hidden * weights).sum(dim=1) / weights.sum(dim=1)).float()
