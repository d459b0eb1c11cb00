"""Extreme multi-label classification: short text in, the few right labels out of very many."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from xclearn._version import __version__

if TYPE_CHECKING:
    from xclearn.algorithms.blend import Blend
    from xclearn.algorithms.decaf import Decaf
    from xclearn.algorithms.one_vs_all import OneVsAll
    from xclearn.data import Dataset, Reading, load_dataset
    from xclearn.inference import evaluate, load
    from xclearn.inference.long_texts import Chunks
    from xclearn.inference.thresholds import Threshold

__all__ = [
    "Blend",
    "Chunks",
    "Dataset",
    "Decaf",
    "OneVsAll",
    "Reading",
    "Threshold",
    "__version__",
    "algorithms",
    "evaluate",
    "load",
    "load_dataset",
]

_HOMES = {
    "Chunks": "xclearn.inference.long_texts",
    "Dataset": "xclearn.data",
    "Reading": "xclearn.data",
    "Threshold": "xclearn.inference.thresholds",
    "load_dataset": "xclearn.data",
    "evaluate": "xclearn.inference",
    "load": "xclearn.inference",
}


def __dir__() -> list[str]:
    """The public names, including every algorithm class, without importing any."""
    from xclearn.algorithms import algorithm_names, class_name

    return sorted({*__all__, *map(class_name, algorithm_names())})


def __getattr__(name: str) -> Any:
    """Import a name on first use, so that `import xclearn` itself stays instant."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    from xclearn.algorithms import by_class_name

    found = by_class_name(name)
    if found is None:
        raise AttributeError(f"module 'xclearn' has no attribute '{name}'")
    return found
