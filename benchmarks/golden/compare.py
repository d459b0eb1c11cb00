"""Differences between two records of the golden job: tensors compare bit for bit, ids exactly, scores within 1e-6.

A setting, option or path that only the new version has is a new feature, not a difference. Knows nothing about how
records are made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

NEAR = 1e-6  # between two scores
_NOT_COMPARED = ("seconds",)


def differences(old: Path, new: Path, only: str = "") -> Iterator[str]:
    """One line for each difference between two folders of `record.py`, in cases whose name holds `only`."""
    before, after = (json.loads((folder / "record.json").read_text()) for folder in (old, new))
    for name in (name for name in before["cases"] if only in name):
        yield from _values(before["cases"][name], after["cases"].get(name, {}), name)
        yield from _predictions(old / name, new / name)
    for part in ("settings", "commands", "openapi"):
        if part in after or not only:
            yield from _values(before.get(part), after.get(part), part)


def _values(before: Any, after: Any, where: str) -> Iterator[str]:
    """Of plain values; keys that only `after` has are new features."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            if key not in after:
                yield f"{where}.{key}: gone"
            elif key not in _NOT_COMPARED:
                yield from _values(value, after[key], f"{where}.{key}")
    elif before != after and not _same_default(before, after):
        yield f"{where}: {_short(before)} → {_short(after)}"


def _same_default(before: Any, after: Any) -> bool:
    """Whether two settings differ only in the word for an absent part, which was "auto" before it was "none"."""
    old, new = (re.sub(r"\bnone\b", "auto", text) if isinstance(text, str) else None for text in (before, after))
    return old is not None and old == new


def _predictions(old: Path, new: Path) -> Iterator[str]:
    """Of the ways to predict that both versions have."""
    if not all((folder / "predictions.npz").exists() for folder in (old, new)):
        return
    with np.load(old / "predictions.npz") as before, np.load(new / "predictions.npz") as after:
        for way in sorted({name.removesuffix(".ids") for name in before if name.endswith(".ids")}):
            if f"{way}.ids" not in after:
                if way == "servable":  # the way by NumPy alone may go
                    continue
                yield f"{old.name}.{way}: gone"
            else:
                ids, scores = ((before[f"{way}.{part}"], after[f"{way}.{part}"]) for part in ("ids", "scores"))
                yield from _top_k(ids, scores, f"{old.name}.{way}")


def _top_k(
    both_ids: tuple[np.ndarray, np.ndarray], both_scores: tuple[np.ndarray, np.ndarray], where: str
) -> Iterator[str]:
    ids, new_ids = both_ids
    scores, new_scores = both_scores
    if ids.shape != new_ids.shape:
        yield f"{where}: shape {ids.shape} → {new_ids.shape}"
        return
    there = (ids >= 0) & (new_ids >= 0)
    if (ids != new_ids).any():
        yield f"{where}: {int((ids != new_ids).sum())} of {ids.size} ids differ"
    largest = float(np.abs(scores[there] - new_scores[there]).max(initial=0))
    if not largest <= NEAR:
        yield f"{where}: a score differs by {largest:.2e}"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 120 else f"{text[:117]}…"
