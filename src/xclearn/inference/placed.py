"""Runs a servable on a torch device, for many documents at once on a GPU.

The same components run there, as they are written with `arrays.py`; `part_for_cpu` names one that cannot. Vectorisation
and the steps after fusion stay on the CPU. Products are in float32, so results equal NumPy's up to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, final

import numpy as np
import scipy.sparse as sp

from xclearn.data.dataset import NO_PAIRS, Documents
from xclearn.data.topk import TopK
from xclearn.errors import ConfigError, ModelError, PlanError
from xclearn.extras import is_installed, require
from xclearn.inference import arrays
from xclearn.inference.components import Encoder
from xclearn.inference.declared import Part
from xclearn.inference.sequences import Transformer
from xclearn.inference.servable import Ensemble, Servable, check_k, in_blocks, mean_of, member_depth

if TYPE_CHECKING:
    import torch

_SCORES_AT_ONCE = 1 << 27  # scores held on the device: 512 MiB
_ROWS_AT_ONCE = 1024  # documents per block: enough to amortise reading the labels


@final
class DevicePredictor:
    """Predicts the same as its servable, or the mean of an ensemble's members."""

    def __init__(self, members: Sequence[Servable], scores_at_once: int) -> None:
        self._members, self._scores_at_once = members, scores_at_once
        self.vectoriser = members[0].vectoriser
        self.n_labels = members[0].n_labels
        widest = max(member.candidates.width for member in members)
        self._rows_at_once = max(1, min(_ROWS_AT_ONCE, scores_at_once // widest))

    def predict(self, documents: Documents, k: int, exclude: np.ndarray = NO_PAIRS) -> TopK:
        """As `Servable.predict`."""
        check_k(k)
        return self.rank(self.vectoriser.transform(documents), k, exclude)

    def rank(self, features: sp.csr_matrix | np.ndarray, k: int, exclude: np.ndarray = NO_PAIRS) -> TopK:
        """As `Servable.rank`."""
        return in_blocks(self._best, features, min(k, self.n_labels), exclude, self._rows_at_once)

    def _best(self, features: sp.csr_matrix | np.ndarray, k: int, exclude: np.ndarray) -> TopK:
        import torch

        depth = k if len(self._members) == 1 else member_depth(k, self.n_labels)
        labels_at_once = max(1, self._scores_at_once // features.shape[0])
        with torch.inference_mode():
            found = [member.best(features, depth, exclude, labels_at_once) for member in self._members]
            best = found[0] if len(found) == 1 else mean_of(found, k)
            return TopK(arrays.to_numpy(best.ids), arrays.to_numpy(best.scores))


@final
class _Carried(Encoder):
    """An encoder that uses torch itself, whose vectors are moved to the device."""

    def __init__(self, encoder: Encoder, device: torch.device) -> None:
        self._encoder, self._device = encoder, device
        self.dim, self.n_features = encoder.dim, encoder.n_features

    def encode(self, features: sp.csr_matrix | np.ndarray) -> torch.Tensor:
        return arrays.tensor(self._encoder.encode(features), self._device)


def device_predictor(
    servable: Servable | Ensemble, device: str, *, scores_at_once: int = _SCORES_AT_ONCE
) -> DevicePredictor:
    """The servable on a torch device; raises if a part runs on a CPU only."""
    for_cpu = part_for_cpu(servable)
    if for_cpu is not None:
        raise ModelError("the model has a part that runs on a CPU only", got=for_cpu, todo="Use the device cpu.")
    where = device_named(device)
    import torch

    try:
        placed = [_placed_servable(member, where) for member in _members(servable)]
    except torch.cuda.OutOfMemoryError as error:
        raise PlanError("the model does not fit on the device", where=device, todo="Use the device cpu.") from error
    return DevicePredictor(placed, scores_at_once)


def on_device(servable: Servable | Ensemble, device: str) -> DevicePredictor | None:
    """The servable on a GPU, or None on a CPU. `auto` is a GPU if there is one that can run the model."""
    if device == "cpu":
        return None
    if device == "auto":
        if not is_installed("torch"):
            return None
        import torch

        if not torch.cuda.is_available() or part_for_cpu(servable) is not None:
            return None
        device = "cuda"
    return device_predictor(servable, device)


def device_named(name: str) -> torch.device:
    """An available torch device, cpu or cuda."""
    require("torch", f"the device {name}")
    import torch

    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, TypeError, AssertionError, NotImplementedError) as error:
        there = "auto, cpu, cuda" if torch.cuda.is_available() else "auto, cpu (no CUDA device is visible)"
        raise ConfigError("the device is not available", where="device", got=name, allowed=there) from error
    if device.type not in ("cpu", "cuda"):
        raise ConfigError("unsupported device", where="device", got=name, allowed="auto, cpu, cuda")
    return device


def part_for_cpu(servable: Servable | Ensemble) -> str | None:
    """The first part before the steps that runs on a CPU only, if any."""
    whole = [part for member in _members(servable) for part in _before_steps(member)]
    return next((part.kind for part in _with_inner(whole) if not part.on_device), None)  # type: ignore[attr-defined]


def _members(servable: Servable | Ensemble) -> Sequence[Servable]:
    return servable.members if isinstance(servable, Ensemble) else [servable]


def _before_steps(servable: Servable) -> list[Part]:
    return [*_read_encoders(servable).values(), servable.candidates, *servable.scorers, servable.fusion]


def _read_encoders(servable: Servable) -> dict[str, Encoder]:
    """The encoders that candidates and scorers read; others belong to steps."""
    read = {part.vector for part in (servable.candidates, *servable.scorers) if hasattr(part, "vector")}
    return {name: encoder for name, encoder in servable.encoders.items() if name in read}


def _with_inner(parts: Sequence[Any]) -> Iterator[Part]:
    """These parts and all nested parts."""
    for part in parts:
        if isinstance(part, Part):
            yield part
            for field in fields(part):  # type: ignore[arg-type]
                value = getattr(part, field.name)
                yield from _with_inner(value if isinstance(value, list) else [value])


def _placed_servable(servable: Servable, device: torch.device) -> Servable:
    placed = partial(_placed, device=device)
    return replace(
        servable,
        encoders={**servable.encoders, **{name: placed(part) for name, part in _read_encoders(servable).items()}},
        candidates=placed(servable.candidates),
        scorers=placed(servable.scorers),
        fusion=placed(servable.fusion),
    )


def _placed(value: Any, device: torch.device) -> Any:
    """A field's value, or a part, with its arrays on the device."""
    if isinstance(value, np.ndarray):
        return arrays.tensor(value, device)
    if isinstance(value, list):
        return [_placed(item, device) for item in value]
    if isinstance(value, Transformer):
        return _Carried(value, device)
    if isinstance(value, Part):
        here = {field.name: _placed(getattr(value, field.name), device) for field in fields(value)}  # type: ignore[arg-type]
        return replace(value, **here)  # type: ignore[type-var]
    return value
