"""Changes to a model folder that keep its form: a description and named tensors go in, and come out damaged.

A mutation knows what a folder looks like (components, tensors by name, tables of strings), not what a component means.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Rng = np.random.Generator
COUNTS = (0, 1, -1, 2, 3, 7, 2**15, 2**16, 2**31 - 1, 2**31, -(2**31), 2**62, 2**63 - 1, 2**63, -(2**63), 10**30)
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 3e38, -3e38, 1e300, float("nan"), float("inf"), float("-inf"))
OTHERS: tuple[Any, ...] = (None, True, False, "", "x", "document", [], {}, [[]], {"map": {}}, {"tensor": "x"}, "\ud800")
ROOTS = ("servable", "labels", "train_texts", "label_counts", "text_rows")  # what of model.json becomes a model
KINDS = ("<f4", "<f8", "<i8", "<i4", "|i1", "|u1", "|b1")


@dataclass
class Folder:
    """What is in a folder, before it is written."""

    content: dict[str, Any]  # model.json
    tensors: dict[str, np.ndarray]

    def copy(self) -> Folder:
        return Folder(copy.deepcopy(self.content), dict(self.tensors))


def any_of(rng: Rng, values: Any) -> Any:
    """One of them, as it is."""
    values = list(values)
    return values[int(rng.integers(len(values)))]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container in a JSON value with each of its keys."""
    for key, item in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, key
        if isinstance(item, dict | list):
            yield from places(item)


def served(folder: Folder) -> list[tuple[Any, Any]]:
    """The places of all that predicts or makes rows of new labels, and of the tables of labels and texts."""
    roots = [key for key in ROOTS if key in folder.content]
    return [place for key in roots for place in [(folder.content, key), *places(folder.content[key])]]


def components(folder: Folder) -> list[tuple[Any, Any]]:
    return [(at, key) for at, key in served(folder) if isinstance(at[key], dict) and "component" in at[key]]


def tensor_name(rng: Rng, folder: Folder) -> str:
    """A tensor; often indices and offsets, as they are what leads out of bounds; rarely a table of strings."""
    names = list(folder.tensors)
    if rng.random() < 0.95:
        names = [name for name in names if name.removesuffix(".offsets") + ".utf8" not in [*names, name]]
    whole = [name for name in names if folder.tensors[name].dtype.kind == "i"]
    return str(any_of(rng, whole if whole and rng.random() < 0.5 else names))


# Values of tensors


def some_values(rng: Rng, folder: Folder, others: list[Folder]) -> None:  # noqa: ARG001
    """Extreme or neighbouring values in a few places."""
    name = tensor_name(rng, folder)
    array = np.array(folder.tensors[name])
    if not array.size:
        return
    at = rng.integers(array.size, size=int(any_of(rng, (1, 1, 2, array.size))))
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):
            array.flat[at] = np.asarray(any_of(rng, FLOATS), dtype=np.float64).astype(array.dtype)
    else:
        near = [int(array.flat[at[0]]) + step for step in (-1, 1)] + [array.size, array.size + 1, *set(array.shape)]
        limits = np.iinfo(array.dtype if array.dtype.kind in "iu" else np.uint8)
        value = int(any_of(rng, (*COUNTS, *near)))
        array.flat[at] = min(max(value, int(limits.min)), int(limits.max))
    folder.tensors[name] = array


def all_values(rng: Rng, folder: Folder, others: list[Folder]) -> None:  # noqa: ARG001
    """Reversed, shuffled, sorted, scaled, moved, or all the same."""
    name = tensor_name(rng, folder)
    array = np.array(folder.tensors[name])
    ways: list[Callable[[], Any]] = [
        lambda: array[::-1] if array.ndim else array,
        lambda: rng.permutation(array) if array.ndim else array,
        lambda: np.sort(array, axis=None).reshape(array.shape),
        lambda: array * any_of(rng, (0, -1, 2, 1000)),
        lambda: array + any_of(rng, (-1, 1, 127, -(2**31), 2**31)),
        lambda: np.zeros_like(array),
        lambda: np.full_like(array, array.flat[0] if array.size else 0),
        lambda: array * 1e30,
    ]
    with np.errstate(all="ignore"):
        folder.tensors[name] = np.ascontiguousarray(np.asarray(any_of(rng, ways)()).astype(array.dtype))


def wrapped_offsets(rng: Rng, folder: Folder, others: list[Folder]) -> None:  # noqa: ARG001
    """Offsets whose differences wrap around 64 bits, or that leave and come back."""
    names = [name for name, array in folder.tensors.items() if array.dtype == np.int64 and array.size > 3]
    names = [name for name in names if name.removesuffix(".offsets") + ".utf8" not in folder.tensors] or names
    if not names:
        return
    name = any_of(rng, names)
    array = np.array(folder.tensors[name])
    third = 2**64 // 3
    if rng.random() < 0.5:
        array[1:3] = third, 2 * third - 2**64
        array[3:] = array[-1]
    else:
        array[1:-1] = any_of(rng, (2**40, -(2**40), array[-1] + 1, array[-1], 2**62))
    folder.tensors[name] = array


# Shapes and types


def one_shape(rng: Rng, folder: Folder, others: list[Folder]) -> None:  # noqa: ARG001
    """A tensor longer, shorter, of other axes, or empty."""
    name = tensor_name(rng, folder)
    array = np.array(folder.tensors[name])
    axis = int(rng.integers(max(1, array.ndim)))
    ways: list[Callable[[], Any]] = [
        lambda: resized(array, axis, int(any_of(rng, (0, 1, 2, array.shape[axis] - 1, array.shape[axis] + 1)))),
        lambda: resized(array, axis, 2 * array.shape[axis]),
        lambda: array.T,
        lambda: array.ravel(),
        lambda: array[None],
        lambda: array[..., None],
        lambda: array.reshape(-1, array.shape[0]).T if array.size else array,
        lambda: array.flat[0] if array.size else array,
    ]
    if array.ndim:
        folder.tensors[name] = np.array(any_of(rng, ways)(), order="C")


def one_size(rng: Rng, folder: Folder, others: list[Folder]) -> None:  # noqa: ARG001
    """A size of the model changed wherever it stands: all axes of this length, and those of one more (offsets)."""
    size = int(any_of(rng, [length for array in folder.tensors.values() for length in array.shape] or [1]))
    new = int(any_of(rng, (0, 1, 2, size - 1, size + 1, 2 * size)))
    inside = any_of(rng, ("servable.", "servable.candidates", "servable.scorers", "servable.encoders", ""))
    tables = [name.removesuffix(".utf8") for name in folder.tensors if name.endswith(".utf8")]
    for name, array in folder.tensors.items():
        if inside and name.rpartition(".")[0] in tables:
            continue
        for axis, length in enumerate(array.shape) if name.startswith(inside) else ():
            if length in (size, size + 1) and new + length - size >= 0:
                array = resized(array, axis, new + length - size)
        folder.tensors[name] = array


def resized(array: np.ndarray, axis: int, length: int) -> np.ndarray:
    """Cut, or filled with what stands at the end."""
    length = max(0, length)
    indices = np.minimum(np.arange(length), max(0, array.shape[axis] - 1))
    if not array.shape[axis]:
        return np.zeros([length if i == axis else n for i, n in enumerate(array.shape)], array.dtype)
    return np.ascontiguousarray(np.take(array, indices, axis=axis))


def retyped(rng: Rng, folder: Folder, others: list[Folder]) -> None:  # noqa: ARG001
    """A tensor in another type, by value or by its bytes."""
    name = tensor_name(rng, folder)
    array, kind = folder.tensors[name], np.dtype(any_of(rng, KINDS))
    with np.errstate(all="ignore"):
        by_bytes = array.ndim and array.shape[-1] * array.itemsize % kind.itemsize == 0 and rng.random() < 0.5
        folder.tensors[name] = np.array(array.view(kind) if by_bytes else array.astype(kind))


# What belongs to what


def other_tensor(rng: Rng, folder: Folder, others: list[Folder]) -> None:
    """A tensor in the place of another, of this folder or of a stranger; of its type, most of the time."""
    name = tensor_name(rng, folder)
    found = any_of(rng, [folder, any_of(rng, others)]).tensors
    same = [array for array in found.values() if array.dtype == folder.tensors[name].dtype]
    folder.tensors[name] = any_of(rng, same if same and rng.random() < 0.8 else found.values())


def other_name(rng: Rng, folder: Folder, others: list[Folder]) -> None:  # noqa: ARG001
    """A description that names another tensor or table of strings."""
    named = [(at, key) for at, key in served(folder) if key in ("tensor", "strings")]
    at, key = any_of(rng, named)
    if key == "tensor":
        at[key] = any_of(rng, folder.tensors)
    else:
        at[key] = any_of(rng, [name.removesuffix(".utf8") for name in folder.tensors if name.endswith(".utf8")])


def setting(rng: Rng, folder: Folder, others: list[Folder]) -> None:  # noqa: ARG001
    """A number, switch or text of a component out of range or of another type."""
    plain = [(at, key) for at, key in served(folder) if not isinstance(at[key], dict | list)]
    plain = [(at, key) for at, key in plain if key not in ("tensor", "strings") or rng.random() < 0.1]
    numbers = [(at, key) for at, key in plain if isinstance(at[key], int | float)]
    at, key = any_of(rng, numbers if numbers and rng.random() < 0.7 else plain)
    value = at[key]
    alike = COUNTS if isinstance(value, int) and not isinstance(value, bool) else FLOATS
    at[key] = any_of(rng, alike if isinstance(value, int | float) and rng.random() < 0.7 else (*alike, *OTHERS))


def structure(rng: Rng, folder: Folder, others: list[Folder]) -> None:  # noqa: ARG001
    """A field gone, one too many, a list doubled, emptied, reversed or cut."""
    at, key = any_of(rng, served(folder))
    way = rng.integers(5)
    if isinstance(at[key], list):
        ways = ([], at[key] * 2, at[key][::-1], at[key][:-1], [at[key]])
        at[key] = copy.deepcopy(ways[way])
    elif way == 0 and isinstance(at, dict):
        del at[key]
    elif way == 1 and isinstance(at[key], dict):
        at[key]["more"] = 1
    else:
        at[key] = copy.deepcopy(any_of(rng, OTHERS))


def other_component(rng: Rng, folder: Folder, others: list[Folder]) -> None:
    """A component of this folder or of a stranger, with its tensors, in the place of another."""
    at, key = any_of(rng, components(folder))
    source = any_of(rng, [folder, any_of(rng, others)])
    kind = str(at[key]["component"]).split(".")[0].split("_")[0]
    found = [part[name] for part, name in components(source)]
    alike = [part for part in found if kind in part["component"]]
    at[key] = brought(rng, folder, source, any_of(rng, alike if alike and rng.random() < 0.3 else found))


def other_vectoriser(rng: Rng, folder: Folder, others: list[Folder]) -> None:
    """The vectoriser of a stranger."""
    stranger = any_of(rng, others)
    own = [(at, key) for at, key in served(folder) if key == "vectoriser" and isinstance(at[key], dict)]
    theirs = [at[key] for at, key in served(stranger) if key == "vectoriser" and isinstance(at[key], dict)]
    if own and theirs:
        at, key = any_of(rng, own)
        at[key] = brought(rng, folder, stranger, any_of(rng, theirs))


def brought(rng: Rng, folder: Folder, source: Folder, part: Any) -> Any:
    """A part of another folder, its tensors copied under names of their own."""
    part = copy.deepcopy(part)
    prefix = f"stranger{rng.integers(1 << 30)}."
    holder = {"part": part}
    for at, key in places(holder):
        if key == "tensor" and isinstance(at[key], str) and at[key] in source.tensors:
            folder.tensors[prefix + at[key]] = source.tensors[at[key]]
            at[key] = prefix + at[key]
        elif key == "strings" and isinstance(at[key], str) and f"{at[key]}.utf8" in source.tensors:
            for end in (".utf8", ".offsets"):
                folder.tensors[prefix + at[key] + end] = source.tensors[at[key] + end]
            at[key] = prefix + at[key]
    return holder["part"]


def wrapped(rng: Rng, folder: Folder, others: list[Folder]) -> None:
    """A component inside another that takes its kind: layers, encoders side by side, graphs, trees."""
    at, key = any_of(rng, components(folder))
    part, kind = at[key], str(at[key]["component"])
    graphs = [(source, each[name]) for source in (folder, *others) for each, name in components(source)]
    graph = any_of(rng, [pair for pair in graphs if pair[1]["component"].startswith("graph")] or [(folder, part)])
    inside = {
        "layered.v1": {"encoder": part, "layers": []},
        "joined.v1": {"encoders": [part] * int(rng.integers(1, 3))},
        "game_scorer.v1": {"scorer": part, "graph": brought(rng, folder, *graph), "share": 0.5},
        "ensemble.v1": {"members": [part]},
    }
    usual = "game_scorer.v1" if "classifier" in kind or "trees" in kind else "layered.v1"
    name = usual if rng.random() < 0.5 else any_of(rng, inside)
    at[key] = {"component": name, "fields": copy.deepcopy(inside[name])}


def ensemble(rng: Rng, folder: Folder, others: list[Folder]) -> None:
    """Members that never met, or the same one several times."""
    sources = [folder, *(any_of(rng, [folder, *others]) for _ in range(int(rng.integers(1, 3))))]
    members = [brought(rng, folder, source, source.content["servable"]) for source in sources]
    flat = [
        item for each in members for item in (each["fields"]["members"] if "ensemble" in each["component"] else [each])
    ]
    folder.content["servable"] = {
        "component": "ensemble.v1",
        "fields": {"members": flat if rng.random() < 0.9 else members},
    }


MUTATIONS: tuple[Callable[[Rng, Folder, list[Folder]], None], ...] = (
    *(some_values, some_values, all_values, wrapped_offsets, one_shape, one_size, one_size, retyped),
    *(other_tensor, other_name, setting, setting, structure, other_component, other_component, other_vectoriser),
    *(wrapped, ensemble),
)


def mutate(rng: Rng, folder: Folder, others: list[Folder]) -> list[str]:
    """One to four mutations; their names."""
    chosen = [any_of(rng, MUTATIONS) for _ in range(int(any_of(rng, (1, 1, 1, 2, 2, 3, 4))))]
    applied = []
    for mutation in chosen:
        try:
            mutation(rng, folder, others)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError):
            continue  # what came before left nothing to damage in this way
        applied.append(mutation.__name__)
    return applied
