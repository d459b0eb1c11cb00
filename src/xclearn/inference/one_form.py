"""Chooses what computes the predictions of one servable: a GPU, the native core, or NumPy.

The device is chosen first; on a CPU the native core is used if it supports every part of the model, else NumPy. Knows
nothing about blends, whose members each get their own form.
"""

from __future__ import annotations

from typing import TypeAlias

from xclearn.errors import PlanError
from xclearn.inference.native import Native, native_predictor
from xclearn.inference.placed import DevicePredictor, on_device
from xclearn.inference.servable import Ensemble, Servable

OneForm: TypeAlias = DevicePredictor | Native | Servable | Ensemble


def one_form(servable: Servable | Ensemble, device: str = "cpu", n_threads: int | None = None) -> OneForm:
    """The fastest form on this device; `auto` is a GPU if there is one that can run the model."""
    return _on_device(servable, device) or native_predictor(servable, n_threads) or servable


def _on_device(servable: Servable | Ensemble, device: str) -> DevicePredictor | None:
    """The form on a GPU; None on a CPU or, with `auto`, if the GPU has too little memory left."""
    try:
        return on_device(servable, device)
    except PlanError:
        if device != "auto":
            raise
        return None
