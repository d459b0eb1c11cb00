"""The only place that decides what computes a prediction: a GPU, the native core, or NumPy.

`one_form.py` decides for one servable; each member of a blend gets its own form. `runner` caches its result as long as
the model lives.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakKeyDictionary

from xclearn.inference.blend import AnyServable, BlendServable, Sources
from xclearn.inference.one_form import OneForm, one_form
from xclearn.inference.placed import part_for_cpu
from xclearn.inference.servable import Ensemble, Servable

if TYPE_CHECKING:
    from xclearn.inference.folder import Model

Runner: TypeAlias = OneForm | BlendServable

_made: WeakKeyDictionary[Model, dict[tuple[str, int | None], Runner]] = WeakKeyDictionary()


def runner(model: Model, device: str = "cpu", n_threads: int | None = None) -> Runner:
    """The runner of a model on this device; `auto` is a GPU if there is one that can run the model."""
    forms = _made.setdefault(model, {})
    asked = (device, n_threads)
    if asked not in forms:
        forms[asked] = form_of(model.servable, device, n_threads)
    return forms[asked]


def form_of(servable: AnyServable, device: str = "cpu", n_threads: int | None = None) -> Runner:
    """Like `runner`, for a servable without a model; not cached."""
    if isinstance(servable, BlendServable):
        return replace(servable, sources=answered_on(servable.sources, device, n_threads))
    return one_form(servable, device, n_threads)


def answered_on(sources: Sources, device: str, n_threads: int | None = None) -> Sources:
    """The sources of a blend with each member in its form for this device."""
    return sources.answered_by([_of_member(member, device, n_threads) for member in sources.members.values()])


def _of_member(member: Servable | Ensemble, device: str, n_threads: int | None) -> OneForm:
    """A member's form; on the CPU if the device does not support one of its parts."""
    return one_form(member, "cpu" if part_for_cpu(member) else device, n_threads)
