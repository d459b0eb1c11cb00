"""The fastest form in which a model can be asked: on a GPU, by the native core, or as it is, in NumPy.

The members of a blend are asked each in its own.
"""

from __future__ import annotations

from typing import TypeAlias

from xclearn.inference.blend import AnyServable, Blend
from xclearn.inference.device import DevicePredictor, on_device, unknown_part
from xclearn.inference.native import Native, native_predictor
from xclearn.inference.servable import Ensemble, Servable

Form: TypeAlias = DevicePredictor | Native | AnyServable


def fastest(servable: AnyServable, device: str, n_threads: int | None = None) -> Form:
    """On the device where it is one of torch, else by the native core where it knows every part."""
    if isinstance(servable, Blend):
        return servable.answered_by([_of_member(member, device, n_threads) for member in servable.members])
    return on_device(servable, device) or native_predictor(servable, n_threads) or servable


def measured(servable: AnyServable, device: str) -> Form:
    """The form that metrics are counted from: on a device, or the plain servable; a blend's fastest."""
    return fastest(servable, device) if isinstance(servable, Blend) else on_device(servable, device) or servable


def _of_member(
    member: Servable | Ensemble, device: str, n_threads: int | None
) -> DevicePredictor | Native | Servable | Ensemble:
    """A member with a part that a device does not know stays on the CPU."""
    here = "cpu" if unknown_part(member) else device
    return on_device(member, here) or native_predictor(member, n_threads) or member
