"""A data folder: the role of each file, and the content of `dataset.json`.

Knows only names and suffixes; readers know the content of files.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from xclearn.data.annif import FULL_TEXT, is_full_text_folder
from xclearn.errors import DataError, nearest
from xclearn.files import COMPRESSIONS, numbered_lines

SPLITS = ("train", "dev", "test")
LABEL_SEPARATOR = ";"
RDF_SUFFIXES = ("ttl", "nt", "rdf", "xml")  # suffixes of SKOS vocabularies

# part of a role → its possible suffixes (text also .gz, .xz, .bz2 or .zst)
_SUFFIXES = {
    "records": ("jsonl", "json", "csv", "tsv", "parquet", "txt"),
    "features": ("txt", "npz", "npy"),
    "relevance": ("txt", "npz"),
    "filter": ("txt",),
}
_PACKED = ("npz", "npy", "parquet")
_SHORT = {"train": "trn", "dev": "val", "test": "tst"}
_LONG = {"dev": ("validate", "validation")}


@final
@dataclass(frozen=True)
class DataFile:
    """A file with the stem and suffix of its name: `train` and `jsonl` for `train.jsonl.gz`."""

    path: Path
    stem: str
    suffix: str


@final
@dataclass(frozen=True)
class About:
    """The optional `dataset.json` of a folder."""

    name: str | None = None
    propensity: tuple[float, float] | None = None
    label_separator: str | None = None  # separator of labels in a CSV or TSV field; None: the default
    description: str = ""


def _stems() -> dict[str, tuple[str, str]]:
    """File stem -> (role, part)."""
    stems = dict.fromkeys(("labels", "lbl", "Y"), ("labels", "records"))
    stems |= dict.fromkeys(("labels_X", "lbl_X_Xf", "Yf"), ("labels", "features"))
    for role, short in _SHORT.items():
        for word in (role, short):
            stems[word] = (role, "records")
            stems |= dict.fromkeys((f"{word}_X", f"{word}_X_Xf", f"X.{word}"), (role, "features"))
            stems |= dict.fromkeys((f"{word}_Y", f"{word}_X_Y", f"Y.{word}"), (role, "relevance"))
            stems |= dict.fromkeys((f"filter_{word}", f"filter_labels_{word}"), (role, "filter"))
    return stems


_STEMS = _stems()


def data_file(path: Path) -> DataFile:
    """The file with its stem and suffix, without the compression's suffix."""
    bare = _bare(path)
    suffix = bare.suffix[1:].lower()
    if bare != path and suffix in _PACKED:
        raise DataError(f"a .{suffix} file cannot be read through {path.suffix}", where=str(path), todo="Unpack it.")
    return DataFile(path, bare.stem, suffix)


def find_files(folder: Path) -> dict[str, dict[str, DataFile]]:
    """role (train, dev, test, labels) -> part (records, or features and relevance; filter) -> file."""
    found: dict[str, dict[str, DataFile]] = {}
    for file in map(data_file, _named_files(folder)):
        role, part = _STEMS[file.stem]
        if file.suffix in _SUFFIXES[part]:
            parts = found.setdefault(role, {})
            if part in parts:
                _refuse_rivals(folder, role, parts[part], file)
            parts[part] = file
    if "train" not in found:
        found |= _full_texts(folder)
    _check_parts(folder, found)
    return found


def _named_files(folder: Path) -> list[Path]:
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise DataError(f"the folder cannot be read ({error.strerror})", where=str(folder)) from error
    return [path for path in entries if _bare(path).stem in _STEMS and path.is_file()]


def _full_texts(folder: Path) -> dict[str, dict[str, DataFile]]:
    """The splits of Annif's full texts: the folder itself as train, or one folder per split."""
    places = {role: [folder / word for word in (role, short, *_LONG.get(role, ()))] for role, short in _SHORT.items()}
    places["train"].insert(0, folder)
    found = {role: next(filter(is_full_text_folder, paths), None) for role, paths in places.items()}
    return {role: {"records": DataFile(path, path.name, FULL_TEXT)} for role, path in found.items() if path is not None}


def _bare(path: Path) -> Path:
    return path.with_suffix("") if path.suffix in COMPRESSIONS else path


def _check_parts(folder: Path, found: dict[str, dict[str, DataFile]]) -> None:
    if "train" not in found or set(found["train"]) == {"filter"}:
        raise DataError(
            "no training file in the folder",
            where=str(folder),
            allowed="train.jsonl, train.csv, train.tsv, train.parquet, train.txt, trn.json.gz, "
            "trn_X_Xf.txt with trn_X_Y.txt, train_X.npz or .npy with train_Y.npz, NAME.txt with NAME.key or NAME.tsv",
        )
    for role, parts in found.items():
        kinds = set(parts) - {"filter"}
        if "records" in kinds and len(kinds) > 1 and role != "labels":
            _refuse_rivals(folder, role, *(parts[kind] for kind in sorted(kinds)))
        if kinds in ({"features"}, {"relevance"}, set()) and role != "labels":
            names = ", ".join(parts[part].path.name for part in parts)
            raise DataError(f"{role} needs documents and their labels", where=str(folder), got=names)


def _refuse_rivals(folder: Path, role: str, *files: DataFile) -> None:
    names = " and ".join(file.path.name for file in files)
    raise DataError(f"more than one file claims to be {role}: {names}", where=str(folder), todo="Keep one of them.")


def read_about(path: Path) -> About:
    """The content of `dataset.json`; all keys are optional, unknown ones are errors."""
    if not path.exists():
        return About()
    content = "\n".join(line for _, line in numbered_lines(path))
    try:
        values = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON ({error})", where=str(path)) from error
    if not isinstance(values, dict):
        raise DataError("not a JSON object", where=str(path), got=values)
    for key in values.keys() - set(About.__dataclass_fields__):
        raise DataError("unknown key", where=str(path), got=key, todo=nearest(key, About.__dataclass_fields__))
    return About(**{key: _checked(key, value, path) for key, value in values.items()})


def _checked(key: str, value: Any, path: Path) -> Any:
    if key != "propensity":
        if isinstance(value, str) and (value or key != "label_separator"):
            return value
        raise DataError(f"'{key}' must be a text", where=str(path), got=value)
    numbers = value if isinstance(value, list) else []
    if len(numbers) != 2 or not all(type(number) in (int, float) and 0 <= number < 1e6 for number in numbers):
        raise DataError("'propensity' must be two numbers [A, B]", where=str(path), got=value)
    return float(numbers[0]), float(numbers[1])
