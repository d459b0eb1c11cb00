"""Tiny models that between them hold every part of a servable: each algorithm, its variants, and each exported form."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `planted`, wherever this is run from

import numpy as np
from planted import planted
from tests.contract.quick import epochs_everywhere
from tiny_transformer import write_transformer

from xclearn import algorithms, config
from xclearn.data import Dataset
from xclearn.inference import Model, save_model
from xclearn.inference.export import Exporter, Form
from xclearn.inference.stackers import LinearStacker, MeanStacker, TreeStacker
from xclearn.inference.train_texts import TrainTexts

N_LABELS = 24
BEAM = {"n_clusters": 8, "beam": 3}
LISTS = BEAM | {"ranker": "shortlist", "shortlister_epochs": 1}
STEPS = {"sparse_ranker": {"vector": True}, "calibration": {"depth": 2}, "stopping": {"hold_out": 0.2}}
SEQUENCES = {"kind": "sequences", "unit": "words", "max_length": 8}
CONVOLUTION = {"kind": "convolution", "token_dim": 4, "widths": [1, 2], "n_filters": 3, "n_pools": 2}
SMALL = {"embedding_dim": 4}

# name: algorithm, kind of documents, settings
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "one_vs_all": ("one_vs_all", "texts", SMALL | {"encoder": {"kind": "bag", "residual": True}}),
    "pieces": ("one_vs_all", "texts", SMALL | {"vectoriser": {"kind": "word_piece", "vocabulary_size": 120}}),
    "runs": ("one_vs_all", "texts", SMALL | STEPS | {"vectoriser": {"kind": "words", "longest": 2, "min_count": 1}}),
    "sparse": ("one_vs_all", "sparse", SMALL),
    "dense": ("one_vs_all", "dense", SMALL | {"encoder": {"kind": "multilayer", "n_layers": 1}}),
    "convolution": (
        "one_vs_all",
        "texts",
        SMALL | {"vectoriser": SEQUENCES, "encoder": CONVOLUTION, "sparse_ranker": {"pairs": True}},
    ),
    "blend": ("blend", "texts", {"members": ["one_vs_all embedding_dim=4", "label_tree n_trees=1"], "folds": 2}),
    "decaf": ("decaf", "texts", SMALL | LISTS | {"n_members": 2, "game": {"depth": 5}}),
    "astec": ("astec", "texts", SMALL | {"shortlist_size": 6, "reranker_epochs": 1, "n_clusters": 8}),
    "two levels": ("astec", "texts", SMALL | {"shortlist_size": 6, "n_clusters": 8, "fusion": "two_levels"}),
    "transferred": (
        "astec",
        "texts",
        SMALL | {"shortlist_size": 6, "n_clusters": 8, "vectoriser": SEQUENCES, "encoder": CONVOLUTION},
    ),
    "dual_encoder": ("dual_encoder", "texts", SMALL | {"vectoriser": {"kind": "subwords", "table_size": 64}}),
    "eclare": ("eclare", "texts", SMALL | LISTS),
    "spread": ("eclare", "texts", SMALL | LISTS | {"game": 1.0}),
    "elias": ("elias", "texts", SMALL | BEAM | {"edges_per_cluster": 5, "shortlist_size": 9}),
    "label_tree": ("label_tree", "texts", {"branching": 3, "max_leaf": 4, "n_trees": 2, "game": {"depth": 5}}),
    "lightdxml": ("lightdxml", "texts", SMALL | {"shortlist_size": 6}),
    "mach": ("mach", "texts", {"embedding_dim": 4, "n_repetitions": 2, "n_buckets": 5}),
    "slice": ("slice", "texts", SMALL | {"shortlist_size": 6}),
    "sparse_one_vs_all": ("sparse_one_vs_all", "texts", {"label_text_weight": 0.5}),
    "xml_cnn": ("xml_cnn", "texts", SMALL | {"vectoriser": SEQUENCES, "encoder": CONVOLUTION}),
}
# name: of which model, precision, breadth
FORMS = {
    "one_vs_all-tokens-int8": ("one_vs_all", Form("int8", 9)),
    "one_vs_all-bf16": ("one_vs_all", Form("bf16", 0)),
    "runs-tokens-fp32": ("runs", Form("fp32", 9)),
    "decaf-bf16": ("decaf", Form("bf16", 4)),
    "astec-int8": ("astec", Form("int8", 0)),
    "elias-fp32": ("elias", Form("fp32", 4)),
    "slice-centres-int8": ("slice", Form("int8", 2)),
    "eclare-int8": ("eclare", Form("int8", 4)),
    "lightdxml-bf16": ("lightdxml", Form("bf16", 2)),
    "dual_encoder-tokens-int8": ("dual_encoder", Form("int8", 9)),
}


def fitted(name: str) -> tuple[Model, Dataset]:
    """One of `MODELS`, trained for an epoch."""
    algorithm, kind, settings = MODELS[name]
    found = algorithms.find(algorithm)
    data = planted(kind, n_labels=N_LABELS, train=4, test=1)
    model = config.build(found, epochs_everywhere(algorithm, 1) | settings).fit(data, device="cpu", seed=0).model
    texts = TrainTexts.of(list(data.train.documents), data.train.relevance) if name == "one_vs_all" else None
    return replace(model, train_texts=texts), data


def stacked(blend: Model) -> Model:
    """The blend with trees beside its linear stacker, which are not learnt from so few documents."""
    n_values = len(blend.servable.sources.value_names)
    roots = np.arange(0, 5 * n_values, 5, dtype=np.int32)  # a tree for each value: a node, its right child a node too
    left = (roots[:, None] + np.array([1, 1, 3, 3, 4], np.int32)).ravel()
    right = (roots[:, None] + np.array([2, 1, 4, 3, 4], np.int32)).ravel()
    feature = np.repeat(np.arange(n_values, dtype=np.int32), 5)
    threshold, value = np.tile([0.0, 0, 1, 0, 0], n_values), np.tile([0.0, -1, 0, 0.5, 1], n_values)
    trees = TreeStacker(
        roots, feature, threshold, left, right, np.tile([True, False, False, False, False], n_values), value, 0.0
    )
    linear = LinearStacker(np.ones(n_values), np.zeros(n_values), 0.0)
    return replace(blend, servable=replace(blend.servable, stacker=MeanStacker(linear, trees)))


def transformer(folder: Path) -> Model:
    """One of few weights."""
    write_transformer(folder)
    data = planted("texts", n_labels=N_LABELS, train=4, test=1)
    vectoriser = {"kind": "pretrained", "folder": str(folder), "max_length": 8}
    settings = {"epochs": 1, "vectoriser": vectoriser, "encoder": {"kind": "transformer"}}
    return config.build(algorithms.find("one_vs_all"), settings).fit(data, device="cpu", seed=0).model


def write_models(root: Path) -> Iterator[Path]:
    """A folder for each model and each form of one."""
    made = {name: fitted(name) for name in MODELS}
    for name, (model, _) in made.items():
        save_model(model, root / name)
        yield root / name
    save_model(stacked(made["blend"][0]), root / "stacked")
    yield root / "stacked"
    for name, (of, form) in FORMS.items():
        save_model(exported(*made[of], form), root / name)
        yield root / name
    save_model(transformer(root.parent / "pretrained"), root / "transformer")
    yield root / "transformer"


def exported(model: Model, data: Dataset, form: Form) -> Model:
    return Exporter(model, data).export(form)


if __name__ == "__main__":
    for path in write_models(Path(sys.argv[1])):
        print(path, sum(file.stat().st_size for file in path.iterdir()))
