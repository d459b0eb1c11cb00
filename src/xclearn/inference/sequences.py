"""Encoders that read token ids in text order: a convolution in NumPy and a transformer in torch.

The transformer needs the extra `transformer`; its weights and configuration are part of the model folder, and loading
them runs no foreign code. Knows nothing about algorithms or training.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, final

import numpy as np
import scipy.sparse as sp

from xclearn.config import Count
from xclearn.errors import ModelError
from xclearn.extras import require
from xclearn.inference.components import Encoder, component
from xclearn.inference.declared import Part, Scope, SizeOf, Tensor, shares
from xclearn.text.vectorisers import SEQUENCES

if TYPE_CHECKING:
    import torch

TEXT_TRANSFORMERS = (
    *("albert", "bert", "camembert", "deberta", "deberta-v2", "distilbert", "electra", "modernbert", "mpnet"),
    *("roberta", "xlm-roberta"),
)  # other types may fetch files or code
_CODE = ("auto_map", "attn_implementation", "quantization_config")  # keys that select code to run
_KINDS = ("float32", "float64", "int64", "int32", "int8", "uint8", "bool")  # types of a transformer's tensors

_AT_ONCE = 64  # texts per batch: activations are many times the size of the vectors
_VALUES_AT_ONCE = 1 << 26  # token values per batch, so that batches of long texts are smaller
_AT_ONCE_ON_GPU = 512  # fewer would leave the GPU idle


@final
@component("filters.v1")
@dataclass(frozen=True)
class Filters(Part):
    """Filters over `width` tokens at a time."""

    weight: Annotated[np.ndarray, Tensor("filters embedding width")]
    bias: Annotated[np.ndarray, Tensor("filters")]

    @property
    def width(self) -> int:
        return self.weight.shape[2]

    def __call__(self, tokens: np.ndarray) -> np.ndarray:
        """max(0, filter) at each position: (n, T, E) → (n, T − width + 1, F)."""
        places = np.lib.stride_tricks.sliding_window_view(tokens, self.width, axis=1)  # (n, P, E, width)
        found = np.tensordot(places, self.weight, axes=([2, 3], [1, 2])) + self.bias
        return np.maximum(found, 0)


@final
@component("convolution.v1")
@dataclass(frozen=True)
class Convolution(Encoder):
    """Filters over token embeddings, max-pooling over `n_pools` parts of the text, one dense layer, ReLU."""

    reads: ClassVar[tuple[str, ...]] = (SEQUENCES,)
    token_embeddings: Annotated[np.ndarray, Tensor("features embedding")]
    filters: Annotated[Sequence[Filters], shares("embedding")]
    n_pools: Count
    weight: Annotated[np.ndarray, Tensor("dim pooled")]  # pooled: all filters × pools
    bias: Annotated[np.ndarray, Tensor("dim")]

    @property
    def dim(self) -> int:  # type: ignore[override]
        return self.weight.shape[0]

    @property
    def n_features(self) -> int:  # type: ignore[override]
        return self.token_embeddings.shape[0]

    def encode(self, features: sp.csr_matrix | np.ndarray) -> np.ndarray:
        widest = max(each.width for each in self.filters) * self.token_embeddings.shape[1]
        at_once = max(1, min(_AT_ONCE, _VALUES_AT_ONCE // max(1, features.shape[1] * widest)))
        parts = [features[start : start + at_once] for start in range(0, len(features), at_once)]
        return np.concatenate([self._encode(part) for part in parts])

    def _encode(self, ids: np.ndarray) -> np.ndarray:
        tokens = self.token_embeddings[ids] * (ids >= 0)[:, :, None]  # (n, T, E)
        short = max(each.width for each in self.filters) - tokens.shape[1]
        tokens = np.pad(tokens, ((0, 0), (0, max(0, short)), (0, 0)))
        pooled = [pool(each(tokens), self.n_pools) for each in self.filters]
        return np.maximum(np.concatenate(pooled, axis=1) @ self.weight.T + self.bias, 0).astype(np.float32)

    def fits(self, scope: Scope, /) -> None:
        pooled = self.n_pools * sum(len(each.bias) for each in self.filters)
        if scope.sizes["pooled"] != pooled:
            raise ModelError(
                "convolution.v1 has a weight of the wrong width", got=self.weight.shape, allowed=f"{pooled}"
            )


def pool(values: np.ndarray, n_pools: int) -> np.ndarray:
    """Max-pooling over `n_pools` parts: (n, P, F) → (n, F · n_pools), with the parts of a filter contiguous."""
    places = values.shape[1]
    ends = [(i * places // n_pools, -(-(i + 1) * places // n_pools)) for i in range(n_pools)]
    parts = [values[:, begin:end].max(axis=1) for begin, end in ends]
    return np.stack(parts, axis=2).reshape(len(values), -1)


@final
@component("transformer.v1")
@dataclass(frozen=True)
class Transformer(Encoder):
    """A transformer's last layer pooled to one vector per text; on a GPU in bfloat16, as in training."""

    reads: ClassVar[tuple[str, ...]] = (SEQUENCES,)
    on_device = True
    config: str  # JSON written by the transformers library
    weights: Annotated[Mapping[str, np.ndarray], Tensor("...", _KINDS, empty=True)]
    n_features: Annotated[int, SizeOf("features")]  # number of tokens of its vectoriser
    pooling: Literal["mean", "first"]

    @property
    def dim(self) -> int:  # type: ignore[override]
        return int(self._model.config.hidden_size)

    def encode(self, features: sp.csr_matrix | np.ndarray) -> np.ndarray:
        model = self._model
        import torch

        on_gpu = model.device.type == "cuda"
        ids = torch.from_numpy(np.ascontiguousarray(features)).to(model.device)
        with torch.inference_mode(), torch.autocast(model.device.type, torch.bfloat16, enabled=on_gpu):
            parts = ids.split(_AT_ONCE_ON_GPU if on_gpu else _AT_ONCE)
            try:
                return torch.cat([transformer_vectors(model, part, self.pooling) for part in parts]).cpu().numpy()
            except IndexError as error:
                raise ModelError("the text is longer than the transformer's positions", got=str(error)) from error

    def fits(self, _: Scope, /) -> None:
        table = self._model.get_input_embeddings().weight
        if table.shape[0] < self.n_features:
            raise ModelError("the transformer has fewer tokens than its vectoriser", got=tuple(table.shape))

    @cached_property
    def _model(self) -> Any:
        library = transformers_library()
        import torch

        try:
            config = library.AutoConfig.for_model(**self._settings())
            with torch.device("meta"):  # a small configuration must not allocate more memory than the weights
                promised = library.AutoModel.from_config(config, trust_remote_code=False).state_dict()
            if {name: tuple(value.shape) for name, value in promised.items()} != self._shapes():
                raise ValueError("weights and configuration differ in shape")
            model = library.AutoModel.from_config(config, trust_remote_code=False)
            model.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in self.weights.items()})
        except Exception as error:  # the library may raise anything for a foreign configuration
            raise ModelError("the transformer cannot be built", where="transformer.v1", got=str(error)) from error
        return model.eval().to("cuda" if torch.cuda.is_available() else "cpu")

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: array.shape for name, array in self.weights.items()}

    def _settings(self) -> dict[str, Any]:
        settings = without_code(json.loads(self.config))
        layers = [value for key, value in settings.items() if "layers" in key or "groups" in key]
        if any(type(value) is int and value > len(self.weights) for value in layers):
            raise ValueError("more layers than weights")
        return settings


def without_code(settings: dict[str, Any]) -> dict[str, Any]:
    """A transformer's configuration without keys that would make the library run or fetch code."""
    if settings["model_type"] not in TEXT_TRANSFORMERS:
        raise ValueError(settings["model_type"])
    return {key: value for key, value in settings.items() if key not in _CODE and not key.startswith("_")}


def transformers_library() -> Any:
    """The transformers library; raises the error that says how to install it."""
    for package in ("transformers", "torch"):
        require(package, "a transformer")
    import transformers

    return transformers


def transformer_vectors(model: Any, ids: torch.Tensor, pooling: str) -> torch.Tensor:
    """Token ids (n, T), padded with −1 → (n, D): the first token's vector or the mean."""
    width = max(1, int((ids >= 0).sum(dim=1).max()))
    ids = ids[:, :width].long()
    there = (ids >= 0).long()  # (n, t)
    there[:, 0] = 1  # an empty text gets one padding token, as attention over nothing is NaN
    hidden = model(input_ids=ids.clamp(min=0), attention_mask=there).last_hidden_state  # (n, t, D)
    if pooling == "first":
        return hidden[:, 0].float()
    weights = there[:, :, None].to(hidden.dtype)
    return ((hidden * weights).sum(dim=1) / weights.sum(dim=1)).float()
