"""Every setting of every algorithm: away from its default it changes what is learnt or served, or is refused by name.

So no variant silently equals the default. Of a choice all alternatives must, of a number some value that is near enough
to its default to be set. Settings that only some path reads are tried on each path.
"""

import dataclasses
import functools
import json
import sys
import tempfile
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import pytest
from planted import planted

from xclearn import algorithms, config
from xclearn.data import Dataset
from xclearn.errors import MissingExtra, XclearnError
from xclearn.training.algorithm import Algorithm
from xclearn.training.prepare import Size

ELSEWHERE = ("blend", "dual_encoder")  # they have tests of their settings of their own
SHORT: dict[str, dict[str, Any]] = {
    "astec": {"surrogate_epochs": 2, "extreme_epochs": 2, "reranker_epochs": 0},
    "decaf": {"surrogate_epochs": 2, "ranker_epochs": 2},
    "eclare": {"surrogate_epochs": 2, "ranker_epochs": 2, "order": 1, "game": 0.0},
    "elias": {"first_epochs": 2, "second_epochs": 2, "shortlist_size": 6, "beam": 2, "n_clusters": 16},
    "lightdxml": {"model_epochs": 4, "label_epochs": 1, "shortlist_size": 6},
    "mach": {"epochs": 2, "n_buckets": 6},
    "one_vs_all": {"epochs": 2},
    "xml_cnn": {"epochs": 2},
    "label_tree": {"n_trees": 2, "max_leaf": 4, "branching": 2, "beam": 1},
    "slice": {"shortlist_size": 4},
    "sparse_one_vs_all": {},
}
LISTS = {"ranker": "shortlist", "n_clusters": 8, "shortlister_epochs": 2, "batch_size": 4}
LISTED = {"negatives": "both", "shortlist_size": 10, "n_random": 3}
HOLD_OUT = {"stopping": {"hold_out": 0.3}}
PATHS: dict[str, dict[str, dict[str, Any]]] = {  # beside the defaults; None takes a setting of SHORT away
    "astec": {
        "lists": LISTED,
        "tree": LISTED | {"negatives": "tree"},
        "drawn": {"negatives": "unigram", "n_drawn": 4, "batch_size": 4},
        "DeepXML-ANNS": LISTED | {"surrogate": "none", "surrogate_epochs": None, "rebuild_every": 1},
        "projection": {"surrogate": "projection"},
        "solver": {"classifier": "label_tree", "extreme_epochs": None},
        "Slice, no surrogate": {"classifier": "slice", "surrogate": "none", "surrogate_epochs": None}
        | {"extreme_epochs": None, "batch_size": None, "shortlist_size": 10},
        "re-ranker": {"reranker_epochs": 2, "reranker_size": 3, "reranker_random": 2},
        "several centres": {"head_centres": 2, "head_documents": 7},
    },
    "decaf": {
        "sampled": {"ranker": "sampled", "n_negatives": 4},
        "clusters": LISTS,
        "nearest": LISTS | {"shortlist": "nearest", "list_size": 10, "shortlister_epochs": None},
        "tree": LISTS | {"shortlist": "tree", "list_size": 10, "shortlister_epochs": None},
        "no refinement": {"refinement": "none"},
    },
    "eclare": {
        "no graph": {"order": 0},
        "GAME": {"order": 0, "game": 0.5},
        "clusters": LISTS | {"graph": {"head": 8}, "beam": 1, "negatives": "clusters"},
        "clusters without a graph": LISTS
        | {"graph": {"head": 8}, "order": 0, "smooth_centroids": False, "cluster_game": 0.0, "negatives": "clusters"},
        "attention": {"combine": "attention"},
    },
    "elias": {
        "on paths": {"negatives": "shortlist"},
        "drawn": {"negatives": "drawn", "n_drawn": 4, "batch_size": 4},
        "partition": {"training": "partition", "second_epochs": None},
        "from nothing": {"training": "end_to_end", "first_epochs": None},
        "averaged": {"negatives": "shortlist", "second": {"average_from": 0.2}},
    },
    "lightdxml": {"the cycle": {"negatives": "nearest"}, "re-ranker": {"reranker_epochs": 2, "reranker_size": 3}},
    "one_vs_all": {"sampled": {"exact_labels": 8, "n_negatives": 4}},
    "xml_cnn": {"sampled": {"exact_labels": 8, "n_negatives": 4}},
    "label_tree": {"hold-out": HOLD_OUT},
    "slice": {"hold-out": HOLD_OUT},
    "sparse_one_vs_all": {},
    "mach": {},
}
CASES = [
    pytest.param(name, path, SHORT[name] | settings, id=f"{name}, {path}", marks=[pytest.mark.slow] if settings else [])
    for name in SHORT
    for path, settings in {"as it comes": {}, **PATHS[name]}.items()
]
NUMBERS = (1, 2, 3, 4, 5, 7, 8, 12, 24, 0, 0.05, 0.3, 0.5, 0.9, 1.0)
OF_PARTS = ("graph", "first", "second", "encoder")  # settings whose own settings are tried too
TOGETHER: dict[str, dict[str, Any]] = {  # what else is set, so that a setting can show an effect here
    "head_centres": {"head_documents": 7},
    "transfer": {"transfer_limit": 0.5},
}
EQUAL = {
    "astec, DeepXML-ANNS: transfer = fine_tune",  # the encoder is trained there anyway
    "elias, as it comes: negatives = all",  # 1,024 draws are all labels here; on the path "drawn" they are not
}
NOT_HERE = {
    "vectoriser",  # its settings have tests of their own
    "word_vectors",  # a file
    "search",  # an index finds the same among so few vectors
    "exact_labels",  # 1,024 draws are all labels here
}


def test_every_algorithm_is_here():
    assert sorted([*SHORT, *ELSEWHERE]) == algorithms.algorithm_names()


@functools.cache
def found(name: str) -> type[Algorithm]:
    return algorithms.find(name)


@functools.cache
def data() -> Dataset:
    return planted(n_labels=24, train=6, test=2)


class Outcome(NamedTuple):
    """What came of training: everything that is served, or the sentence of an error."""

    served: str
    refused: str
    resolved: dict[str, Any]


def learnt(name: str, settings: Mapping[str, Any]) -> Outcome:
    sizes = {"embedding_dim": 8, "batch_size": 16}
    small = {key: value for key, value in sizes.items() if key in known(name)}
    given = {key: value for key, value in {**small, **settings}.items() if value is not None}
    try:
        fitted = config.build(found(name), given, name)
        fitted.fit(data(), device="cpu", seed=3)
    except XclearnError as error:
        return Outcome("", str(error), {})
    with tempfile.TemporaryDirectory() as folder:
        fitted.save(Path(folder) / "model")
        tensors = (Path(folder) / "model" / "tensors.safetensors").read_bytes()
        served = json.loads((Path(folder) / "model" / "model.json").read_text())["servable"]
    return Outcome(f"{tensors.hex()} {json.dumps(served, sort_keys=True)}", "", fitted.resolved_)


def alternatives(hint: Any, usual: Any) -> Iterator[Any]:
    """Other values of a field: all of a choice, some numbers, the kinds of a part."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        yield from alternatives(arguments[0], usual)
    elif origin is Literal:
        yield from (choice for choice in arguments if choice != usual)
    elif origin is tuple:
        yield [3]
    elif hint is bool:
        yield not usual
    elif hint in (int, float):
        yield from (hint(number) for number in NUMBERS if number != usual and number == hint(number))
    elif dataclasses.is_dataclass(hint):
        yield {"kind": config.kind_of(hint)}
    elif arguments:
        for argument in arguments:
            if argument is not type(None):
                yield from alternatives(argument, usual)


def settings_of(cls: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Name, type and default of every setting, of parts too."""
    hints = typing.get_type_hints(cls, include_extras=True)
    for field in dataclasses.fields(cls):
        usual = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        yield prefix + field.name, hints[field.name], usual
        if not prefix and field.name in OF_PARTS and dataclasses.is_dataclass(usual):
            yield from settings_of(type(usual), f"{field.name}.")


@pytest.mark.parametrize(("name", "path", "settings"), CASES)
def test_a_setting_changes_what_is_learnt_or_is_refused_by_name(name, path, settings):
    silent, usual_outcome = [], learnt(name, settings)
    assert usual_outcome.served, usual_outcome.refused
    for setting, hint, usual in settings_of(found(name)):
        others = [] if setting in NOT_HERE else list(alternatives(hint, usual))
        beside = {**settings, **TOGETHER.get(setting, {})}
        before = learnt(name, beside) if setting in TOGETHER else usual_outcome
        others = [other for other in others if other != kind_of(before.resolved.get(setting, usual))]
        numbers = [other for other in others if type(other) in (int, float)]
        if numbers and not any(matters(name, beside, setting, number, before) for number in numbers):
            silent.append(f"{setting} (all of {numbers})")
        chosen = [other for other in others if type(other) not in (int, float)]
        silent += [f"{setting} = {each}" for each in chosen if matters(name, beside, setting, each, before) is False]
    silent = [each for each in silent if f"{name}, {path}: {each}" not in EQUAL]
    assert not silent, f"without effect, and not refused: {', '.join(silent)}"


def kind_of(value: Any) -> Any:
    """A part as its kind alone: other settings of it are tried one by one."""
    if dataclasses.is_dataclass(value):
        return {"kind": config.kind_of(type(value))}
    return {"kind": value["kind"]} if isinstance(value, Mapping) else value


def matters(name: str, settings: Mapping[str, Any], setting: str, value: Any, before: Outcome) -> bool | None:
    """Whether another value of a setting has an effect or is refused as unread; None: it is refused for itself."""
    key, _, inner = setting.partition(".")
    part = settings.get(key, {})
    given = {**settings, key: {**part, inner: value} if inner else value}
    if given == settings:
        return None
    now = learnt(name, given)
    if now.refused:
        said = (
            f"{name}.{setting}: the setting has no effect",
            f"{name}.{key}: the setting has no effect",
            f"{setting}: it needs classifiers",
        )
        return True if now.refused.startswith(said) else None
    return now.served != before.served


# What a large set would show


def test_beyond_exact_labels_a_step_scores_a_sample_on_every_device():
    size = Size(100_000, 100_000, 40_000, 1_000_000, 300_000, 500_000)
    for name in ("one_vs_all", "xml_cnn"):
        usual, cut = config.build(found(name), {}, name), config.build(found(name), {"exact_labels": 50_000}, name)
        paths = {
            (said, device): each._resolve(size, device)._plan(size, device).stages[0].path.partition(":")[0]
            for said, each in {"usual": usual, "cut": cut}.items()
            for device in ("cpu", "cuda")
        }
        assert paths == {("usual", "cpu"): "sampled", ("usual", "cuda"): "exact"} | dict.fromkeys(
            [("cut", "cpu"), ("cut", "cuda")], "sampled"
        )


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("astec", {"negatives": "both"}),
        ("astec", {"classifier": "slice"}),
        ("decaf", {"ranker": "shortlist", "shortlist": "nearest"}),
        ("lightdxml", {"negatives": "nearest"}),
        ("slice", {}),
    ],
)
def test_where_vectors_are_searched_an_index_is_asked_for(monkeypatch, name, settings):
    """Where faiss is not installed that is an error; exact search needs none."""
    monkeypatch.setitem(sys.modules, "faiss", None)
    once = {field: 1 for field in ("surrogate_epochs", "ranker_epochs", "model_epochs") if field in known(name)}
    with pytest.raises(MissingExtra, match="faiss"):
        config.build(found(name), once | settings | {"search": "hnsw"}, name).fit(data(), device="cpu")


def known(name: str) -> set[str]:
    return {field.name for field in dataclasses.fields(found(name))}
