"""The model folder: model.json, tensors.safetensors and a model card. Tensors and JSON only; loading runs no code.

`model.json` carries the size and hash of every other file and a hash of itself. Every load checks JSON, headers and
shapes; `verify=True` (the default) also reads and hashes every byte. Knows nothing about training.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from xclearn.data.dataset import LabelSet
from xclearn.errors import ModelError
from xclearn.inference.blend import AnyServable, servables_of
from xclearn.inference.card import model_card
from xclearn.inference.components import COMPONENTS
from xclearn.inference.declared import Scope, check
from xclearn.inference.tensors import StringTable, read_tensors, write_tensors
from xclearn.inference.text_rows import TextRows
from xclearn.inference.train_texts import TrainTexts
from xclearn.text import Vectoriser, vectoriser_from_state
from xclearn.writing import atomic_folder

FORMAT, FORMAT_VERSION = "xclearn-model", 1
JSON_FILE = "model.json"
TENSORS_FILE = "tensors.safetensors"
CARD_FILE = "README.md"


@final
@dataclass(frozen=True, eq=False)
class Model:
    """The content of a folder: servable, labels, and facts about the model (algorithm, settings, data, metrics)."""

    servable: AnyServable
    labels: LabelSet
    about: dict[str, Any]
    train_texts: TrainTexts | None = None  # if the model was told to keep them
    label_counts: np.ndarray | None = None  # (L,) training documents of each label; None in folders of older versions
    text_rows: Sequence[
        TextRows | None
    ] = ()  # how each member makes a row from a new label's text; empty: not possible

    @property
    def summary(self) -> str:
        """A short summary: the number of labels and the training data."""
        name = self.about.get("data", {}).get("name")
        return f"{len(self.labels):,} labels" + (f", trained on '{name}'" if name else "")


def save_model(model: Model, folder: str | Path, *, replace: bool = False) -> None:
    """Write the folder atomically."""
    with atomic_folder(Path(folder), replace=replace) as temporary:
        tensors: dict[str, np.ndarray] = {}
        servable = _freeze(model.servable, "servable", tensors)
        labels = {"names": _freeze(list(model.labels.names), "labels.names", tensors)}
        if isinstance(model.labels.texts, list | tuple | StringTable):  # label features are only needed for training
            labels["texts"] = _freeze(list(model.labels.texts), "labels.texts", tensors)
        kept = {} if model.train_texts is None else {"train_texts": _freeze(model.train_texts, "train_texts", tensors)}
        if model.label_counts is not None:
            kept["label_counts"] = _freeze(model.label_counts, "label_counts", tensors)
        if model.text_rows:
            kept["text_rows"] = _freeze(list(model.text_rows), "text_rows", tensors)
        write_tensors(temporary / TENSORS_FILE, tensors)
        card = model_card(model.about, model.servable.n_labels)
        (temporary / CARD_FILE).write_text(card, encoding="utf-8", errors="replace")  # a file name may not be Unicode
        files = {name: _fingerprint(temporary / name) for name in (TENSORS_FILE, CARD_FILE)}
        content = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "about": model.about,
            "servable": servable,
            "labels": labels,
            **kept,
            "files": files,
        }
        content["sha256"] = _own_hash(content)
        (temporary / JSON_FILE).write_bytes(_json_bytes(content))


def load_model(folder: str | Path, *, verify: bool = True) -> Model:
    """Read a folder. `verify` hashes every byte; otherwise only JSON, sizes, headers and shapes are checked."""
    path = Path(folder)
    content = read_description(read_json(path / JSON_FILE), path / JSON_FILE)
    for name in (TENSORS_FILE, CARD_FILE):
        check_file(path / name, content["files"].get(name), verify)
    return model_of(content, path, values=verify)


def model_of(content: dict[str, Any], path: Path, mapped: np.ndarray | None = None, *, values: bool = True) -> Model:
    """The model from a description and the folder's tensor file, or that file's bytes in `mapped`.

    Without `values`, floats are not read; anything that could lead out of bounds always is.
    """
    tensors, _ = read_tensors(path / TENSORS_FILE, mapped)
    try:
        servable = _thaw(content["servable"], tensors)
        names = _thaw(content["labels"]["names"], tensors)
        texts = _thaw(content["labels"]["texts"], tensors) if "texts" in content["labels"] else None
        train_texts = _thaw(content["train_texts"], tensors) if "train_texts" in content else None
        label_counts = _thaw(content.get("label_counts"), tensors)
        text_rows = _thaw(content.get("text_rows", []), tensors)
    except (KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise ModelError("the model description is incomplete", where=str(path / JSON_FILE), got=str(error)) from error
    if not isinstance(servable, AnyServable):
        raise ModelError("the model description has no servable", where=str(path / JSON_FILE))
    servable.check(values=values)
    for table in [names] if texts is None else [names, texts]:
        if not (isinstance(table, StringTable) and 0 < len(table) == servable.n_labels):
            raise ModelError("label names or texts do not fit the scorers", where=str(path), got=table)
    if isinstance(train_texts, TrainTexts):
        check(train_texts, Scope({"labels": servable.n_labels}))
    elif train_texts is not None:
        raise ModelError("the model description lacks texts that it declares", where=str(path / JSON_FILE))
    _check_label_counts(label_counts, servable.n_labels, path)
    _check_text_rows(text_rows, servable, path, values=values)
    return Model(servable, LabelSet(names, texts), content["about"], train_texts, label_counts, text_rows)


def _check_label_counts(counts: Any, n_labels: int, path: Path) -> None:
    """Raise unless there is one document count for each label."""
    if counts is None:
        return
    if not (isinstance(counts, np.ndarray) and counts.dtype == np.int32 and counts.shape == (n_labels,)):
        raise ModelError("the document counts do not fit the labels", where=str(path / JSON_FILE))
    if counts.min() < 0:
        raise ModelError("a label has a negative document count", where=str(path), got=int(counts.min()))


def _check_text_rows(found: Any, servable: AnyServable, path: Path, *, values: bool) -> None:
    """Raise unless the text rows fit the servable's members."""
    members = servables_of(servable)
    if not isinstance(found, list) or (found and len(found) != len(members)):
        raise ModelError("what makes rows of texts does not fit the members", where=str(path / JSON_FILE))
    for rows, member in zip(found, members, strict=False):
        if rows is None:
            continue
        if not isinstance(rows, TextRows):
            raise ModelError("what makes rows of texts does not fit the members", where=str(path / JSON_FILE))
        dim = member.encoders[member.scorers[0].vector].dim
        check(rows, Scope({"features": member.vectoriser.n_features, "dim": dim}, {}, values))
        member.require_readable(rows.encoder)


def _freeze(value: Any, path: str, tensors: dict[str, np.ndarray]) -> Any:
    """The JSON form of a value; arrays and lists of strings go into `tensors` under their path, shared ones once."""
    if isinstance(value, np.ndarray):
        found = next((name for name, array in tensors.items() if array is value), path)
        tensors[found] = value
        return {"tensor": found}
    if isinstance(value, Vectoriser):
        return {"vectoriser": value.kind, "state": _freeze(value.to_state(), path, tensors)}
    if isinstance(value, StringTable) or (value and isinstance(value, list) and all(isinstance(i, str) for i in value)):
        table = value if isinstance(value, StringTable) else StringTable.of(value)
        tensors[f"{path}.utf8"] = table.block
        tensors[f"{path}.offsets"] = table.offsets
        return {"strings": path}
    if isinstance(value, list):
        return [_freeze(item, f"{path}.{i}", tensors) for i, item in enumerate(value)]
    if isinstance(value, Mapping):
        return {"map": {key: _freeze(item, f"{path}.{key}", tensors) for key, item in value.items()}}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {
            f.name: _freeze(getattr(value, f.name), f"{path}.{f.name}", tensors) for f in dataclasses.fields(value)
        }
        return {"component": value.kind, "fields": fields}  # type: ignore[attr-defined]
    return value


def _thaw(value: Any, tensors: Mapping[str, np.ndarray]) -> Any:
    if isinstance(value, list):
        return [_thaw(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        return tensors[value["tensor"]]
    if "strings" in value:
        table = StringTable(tensors[f"{value['strings']}.utf8"], tensors[f"{value['strings']}.offsets"])
        table.check(value["strings"])
        return table
    if "map" in value:
        return {key: _thaw(item, tensors) for key, item in value["map"].items()}
    if "vectoriser" in value:
        state = _thaw(value["state"], tensors)
        plain = {key: list(item) if isinstance(item, StringTable) else item for key, item in state.items()}
        return vectoriser_from_state(value["vectoriser"], plain)
    name = value["component"]
    if name not in COMPONENTS:
        raise ModelError("the model needs a part that this version lacks", got=name, allowed=", ".join(COMPONENTS))
    return COMPONENTS[name](**{key: _thaw(item, tensors) for key, item in value["fields"].items()})


def read_json(path: Path) -> bytes:
    """The raw bytes of model.json."""
    try:
        return path.read_bytes()
    except OSError as error:
        todo = "Give the folder that `xc train -o` wrote."
        raise ModelError("no model here", where=str(path.parent), got=error.strerror, todo=todo) from error


def read_description(raw: bytes, path: Path) -> dict[str, Any]:
    """The content of model.json, if it is intact and of this version."""
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ModelError("model.json is damaged", where=str(path), got=str(error)) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ModelError("model.json is not of an xclearn model", where=str(path), allowed=f'"format": "{FORMAT}"')
    if content.get("format_version") != FORMAT_VERSION:
        raise ModelError(
            "the model has another format version",
            where=str(path),
            got=content.get("format_version"),
            allowed=str(FORMAT_VERSION),
            todo="Train it again with this version, or install the version that wrote it.",
        )
    if content.get("sha256") != _own_hash(content) or raw != _json_bytes(content):  # also detects changed white space
        raise ModelError("model.json was changed after it was written", where=str(path))
    if not all(isinstance(content.get(key), dict) for key in ("about", "files")):
        raise ModelError("the model description is incomplete", where=str(path), allowed="about, files")
    return content


def _json_bytes(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, indent=1, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _own_hash(content: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in content.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _fingerprint(path: Path) -> dict[str, Any]:
    with path.open("rb") as stream:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(stream, "sha256").hexdigest()}


def check_file(path: Path, expected: Any, verify: bool) -> None:
    """Raise if a file's size or, with `verify`, its hash differs from the description."""
    if not path.is_file() or not isinstance(expected, dict):
        raise ModelError("a file of the model is missing", where=str(path))
    found = _fingerprint(path) if verify else {"bytes": path.stat().st_size, "sha256": expected.get("sha256")}
    check_fingerprint(path, found, expected)


def check_fingerprint(path: Path, found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Raise if the size or hash differs."""
    if found["bytes"] != expected.get("bytes") or found["sha256"] != expected.get("sha256"):
        todo = "Copy the folder again, or train again."
        raise ModelError("the file was changed after the model was written", where=str(path), todo=todo)
