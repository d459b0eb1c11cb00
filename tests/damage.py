"""Model folders changed by someone who writes the right hashes, too."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from xclearn.inference import folder
from xclearn.inference.tensors import read_tensors, write_tensors

MODELS = Path(__file__).parent / "fixtures" / "models"


def rewrite(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the description."""
    content = json.loads((path / "model.json").read_bytes())
    change(content)
    content["sha256"] = folder._own_hash(content)
    (path / "model.json").write_bytes(folder._json_bytes(content))


def put(*keys: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    """A change that puts a value somewhere into the description."""

    def change(content: Any) -> None:
        for key in keys[:-1]:
            content = content[key]
        content[keys[-1]] = value

    return change


def replace_tensors(path: Path, **changed: np.ndarray) -> None:
    """Put other tensors in place of these."""
    tensors = {key: np.array(item) for key, item in read_tensors(path / "tensors.safetensors")[0].items()}
    assert changed.keys() <= tensors.keys()
    write_tensors(path / "tensors.safetensors", tensors | changed)
    rehash(path)


def rehash(path: Path) -> None:
    """Write the hash of the tensors that are there."""
    rewrite(path, put("files", "tensors.safetensors", value=folder._fingerprint(path / "tensors.safetensors")))


def tensor(path: Path, name: str) -> np.ndarray:
    return np.array(read_tensors(path / "tensors.safetensors")[0][name])
