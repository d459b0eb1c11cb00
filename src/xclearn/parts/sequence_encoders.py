"""Encoders as torch modules that read token ids in text order: a convolution and a transformer.

A batch is token ids (n, T), padded with −1. `served()` gives the form used for prediction. Knows nothing about labels,
losses or training.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, final

import torch
from torch import nn
from torch.nn import functional as F

from xclearn.errors import ConfigError
from xclearn.inference import sequences
from xclearn.parts.encoders import DocumentEncoder, random_table, start_uniformly
from xclearn.parts.rows import FeatureBatch
from xclearn.text import Pretrained


class FilterSizes(NamedTuple):
    """Sizes of a convolution over token vectors."""

    token_dim: int
    widths: Sequence[int]  # filter widths in tokens
    n_filters: int  # filters of each width
    n_pools: int  # parts of the text for max-pooling


@final
class ConvolutionEncoder(DocumentEncoder):
    """XML-CNN's encoder: filters of several widths, max-pooling over `n_pools` parts of the text, a bottleneck.

    With `sparse`, the token table's gradient holds only the tokens of the batch (for LazyAdam).
    """

    def __init__(
        self,
        n_features: int,
        dim: int,
        sizes: FilterSizes,
        dropout: float,
        generator: torch.Generator,
        *,
        sparse: bool,
    ) -> None:
        super().__init__()
        self.token_embeddings = random_table(n_features, sizes.token_dim, generator)
        self.filters = nn.ModuleList(nn.Conv1d(sizes.token_dim, sizes.n_filters, width) for width in sizes.widths)
        self.bottleneck = nn.Linear(len(sizes.widths) * sizes.n_filters * sizes.n_pools, dim)
        start_uniformly(self, generator)
        self.dim = dim
        self.n_pools = sizes.n_pools
        self.dropout = dropout
        self.sparse = sparse
        self._widest = max(sizes.widths)

    def forward(self, features: FeatureBatch) -> torch.Tensor:
        """Token ids (n, T) → (n, D)."""
        assert isinstance(features, torch.Tensor)
        tokens = F.embedding(features.clamp(min=0), self.token_embeddings, sparse=self.sparse)  # (n, T, E)
        tokens = (tokens * (features >= 0)[:, :, None]).transpose(1, 2)
        tokens = F.pad(tokens, (0, max(0, self._widest - tokens.shape[2])))  # (n, E, T)
        found = [F.adaptive_max_pool1d(F.relu(filters(tokens)), self.n_pools).flatten(1) for filters in self.filters]
        pooled = F.dropout(torch.cat(found, dim=1), self.dropout, self.training)  # (n, all filters × pools)
        return F.dropout(F.relu(self.bottleneck(pooled)), self.dropout, self.training)

    def lazy_parameters(self) -> list[nn.Parameter]:
        return [self.token_embeddings] if self.sparse else []

    def served(self) -> sequences.Convolution:
        arrays = {name: value.detach().cpu().numpy() for name, value in self.named_parameters()}
        filters = [
            sequences.Filters(arrays[f"filters.{i}.weight"], arrays[f"filters.{i}.bias"])
            for i in range(len(self.filters))
        ]
        bottleneck = arrays["bottleneck.weight"], arrays["bottleneck.bias"]
        return sequences.Convolution(arrays["token_embeddings"], filters, self.n_pools, *bottleneck)


@final
class TransformerEncoder(DocumentEncoder):
    """A pretrained transformer to fine-tune; D is its hidden size. On a GPU it computes in bfloat16."""

    def __init__(self, model: Any, n_features: int, pooling: Literal["first", "mean"], dropout: float) -> None:
        super().__init__()
        self.model = model
        self.dim = int(model.config.hidden_size)
        self.n_features = n_features
        self.pooling = pooling
        self.dropout = dropout

    def forward(self, features: FeatureBatch) -> torch.Tensor:
        """Token ids (n, T) → (n, D)."""
        assert isinstance(features, torch.Tensor)
        kind = features.device.type
        with torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):
            vectors = sequences.transformer_vectors(self.model, features, self.pooling)
        return F.dropout(vectors, self.dropout, self.training)

    def lazy_parameters(self) -> list[nn.Parameter]:
        return []

    def served(self) -> sequences.Transformer:
        config = {key: value for key, value in self.model.config.to_dict().items() if not key.startswith("_")}
        weights = {name: value.detach().float().cpu().numpy() for name, value in self.model.state_dict().items()}
        return sequences.Transformer(json.dumps(config), weights, self.n_features, self.pooling)


def load_transformer(settings: Pretrained) -> Any:
    """The model in a folder, in float32, using only files on disk."""
    library = sequences.transformers_library()
    for name in ("config.json", "model.safetensors"):
        settings.file(name)
    configuration = _configuration(settings.file("config.json"))
    messages = library.utils.logging
    shown = messages.is_progress_bar_enabled()
    messages.disable_progress_bar()  # this library prints nothing, so neither may its dependencies
    try:
        model, found = library.AutoModel.from_pretrained(
            settings.file("config.json").parent,
            config=library.AutoConfig.for_model(**configuration),
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    except Exception as error:  # the library may raise anything for a foreign folder
        raise ConfigError("the transformer cannot be read", where=settings.folder, got=str(error)) from error
    finally:
        if shown:
            messages.enable_progress_bar()
    _require_weights(found["missing_keys"], settings)
    return model.float()


def _configuration(path: Path) -> dict[str, Any]:
    """What config.json says, without what names code."""
    try:
        configuration = json.loads(path.read_text(encoding="utf-8"))
        kind = configuration.get("model_type")
    except (OSError, ValueError, RecursionError, AttributeError) as error:
        raise ConfigError("the transformer cannot be read", where=str(path), got=str(error)) from error
    if kind not in sequences.TEXT_TRANSFORMERS:
        allowed = ", ".join(sequences.TEXT_TRANSFORMERS)
        raise ConfigError("this type of transformer cannot be served", where=str(path), got=kind, allowed=allowed)
    return sequences.without_code(configuration)


def _require_weights(missing: Iterable[str], settings: Pretrained) -> None:
    """Raise for weights that the file lacks: the library would draw them at random. Poolers are never read."""
    read = sorted(name for name in missing if not name.startswith("pooler."))
    if read:
        raise ConfigError("the transformer lacks weights", where=settings.folder, got=", ".join(read[:3]))
