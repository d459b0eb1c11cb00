"""A small data set as files, and quick settings for any algorithm: what the trials of this package train."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

N_LABELS, N_NOISE = 40, 120


def write_data(folder: Path, n_labels: int = N_LABELS, per_label: int = 4) -> Path:
    """Every label has a word that only its documents have; its text is that word."""
    draw = random.Random(0)
    rows = []
    for number in range(n_labels * per_label):
        labels = sorted({number % n_labels, draw.randrange(n_labels)})
        words = [f"own{label}" for label in labels] + [f"noise{draw.randrange(N_NOISE)}" for _ in range(4)]
        rows.append({"text": " ".join(words), "labels": [f"label {label}" for label in labels]})
    folder.mkdir(parents=True)
    _write(folder / "train.jsonl", rows)
    _write(folder / "labels.jsonl", [{"label": f"label {i}", "text": f"own{i}"} for i in range(n_labels)])
    return folder


def quick(algorithm: str, epochs: int) -> tuple[str, ...]:
    """Settings that train every stage of an algorithm for so many epochs, as `xc train --set` takes them."""
    from tests.contract.quick import epochs_everywhere

    return tuple(f"{name}={value}" for name, value in epochs_everywhere(algorithm, epochs).items())


def _write(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
