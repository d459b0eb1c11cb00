"""What the golden job trains: every algorithm with its main variants, on texts, sparse features and dense features.

A variant is a table of settings as `xc train --set` takes them.
Knows nothing about how results are recorded or compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

Variants: TypeAlias = Mapping[str, Mapping[str, Any]]

STOPPING = {"patience": 1, "hold_out": 0.1}
_AFTER = {"stopping": STOPPING, "sparse_ranker": {}, "calibration": {"depth": 2}}  # what may follow any model

_ONE_VS_ALL: Variants = {
    "default": {},
    "sampled": {"exact_labels": 0, "n_negatives": 8},
    "adam": {"label_optimiser": "adam", "label_lr": 0.01},
    "stopping": {"stopping": STOPPING},
    "after": {**_AFTER, "exact_labels": 0, "n_negatives": 8},
    "residual": {"encoder": {"kind": "bag", "residual": True}},
    "layers": {"encoder": {"kind": "multilayer", "n_layers": 2}},
}
_ASTEC: Variants = {
    "default": {},
    **{
        f"negatives-{kind}": {"negatives": kind, "shortlist_size": 9, "n_random": 3}
        for kind in ("both", "tree", "hash")
    },
    **{f"negatives-{kind}": {"negatives": kind, "n_drawn": 9} for kind in ("uniform", "unigram")},
    "cluster": {"negatives": "cluster", "shortlist_size": 9, "surrogate": "none", "rebuild_every": 1},
    "documents": {"negatives": "documents", "shortlist_size": 9, "transfer": "fine_tune", "rebuild_every": 1},
    "centres": {"negatives": "centroids", "shortlist_size": 9, "head_centres": 2, "head_documents": 9},
    **{f"surrogate-{kind}": {"surrogate": kind} for kind in ("correlated_clusters", "selection", "hashing")},
    **{f"surrogate-{kind}": {"surrogate": kind} for kind in ("projection", "word_vectors")},
    **{f"transfer-{kind}": {"transfer": kind} for kind in ("capped", "free", "fully_connected")},
    **{f"solved-{kind}": {"classifier": kind} for kind in ("label_tree", "slice", "sparse_one_vs_all")},
    "adam": {"label_optimiser": "adam", "label_lr": 0.01, "loss": "bce_mean", "surrogate_loss": "squared_hinge"},
    "hinge": {"loss": "squared_hinge", "negatives": "both", "shortlist_size": 9, "fusion": "row_max"},
    "members": {"n_members": 2, "game": {"share": 0.3}, "negatives": "both", "shortlist_size": 9},
    "stopping": {"stopping": STOPPING, "negatives": "both", "shortlist_size": 9},
    "after": _AFTER,
}
_DECAF: Variants = {
    "default": {},
    "sampled": {"ranker": "sampled", "n_negatives": 9},
    "clusters": {"ranker": "shortlist"},
    "beam": {"ranker": "shortlist", "beam": 2, "n_clusters": 8, "add_positives": False},
    "nearest": {"ranker": "shortlist", "shortlist": "nearest", "list_size": 9},
    "tree": {"ranker": "shortlist", "shortlist": "tree", "list_size": 9},
    "no-text": {"label_text": False, "refinement": "random"},
    "no-refinement": {"refinement": "none", "surrogate_epochs": 0},
    "lite": {"freeze_tokens": True, "restart_blocks": True, "spectral": False, "surrogate_dropout": 0.0},
    "members": {"n_members": 2, "game": {"share": 0.3}, "ranker": "shortlist"},
    "stopping": {"stopping": STOPPING},
    "after": _AFTER,
}
_ECLARE: Variants = {
    "default": {},
    "sampled": {"ranker": "sampled", "n_negatives": 9, "order": 2},
    "shortlist": {"ranker": "shortlist", "negatives": "clusters", "cluster_game": 0.0, "game": 1.0},
    "neighbours": {"ranker": "shortlist", "graph": {"source": {"kind": "cooccurrence"}, "head": 12}, "game": 0.3},
    "graph": {"ranker": "shortlist", "negatives": "graph", "graph": {"source": {"kind": "page_rank"}}},
    **{f"combine-{kind}": {"combine": kind} for kind in ("attention", "attention_sigmoid", "sum")},
    **{f"convolution-{kind}": {"convolution": kind, "order": 1} for kind in ("gcn", "light")},
    **{f"refinement-{kind}": {"refinement": kind} for kind in ("text", "random", "none")},
    "no-text": {"label_text": False, "least_cosine": 0.1, "graph": {"normalisation": "perron"}},
    "decaf": {"order": 0, "game": 0.0, "graph": {"normalisation": "rows"}},
    "members": {"n_members": 2, "freeze_tokens": True, "restart_blocks": True, "spectral": False},
    "stopping": {"stopping": STOPPING},
}
_PHASES = {"first": {"average_from": 0.3}, "second": {"average_from": 0.5, "accumulation": 2}}
_ELIAS: Variants = {
    "default": {"beam": 3, "shortlist_size": 20},
    "all": {"negatives": "all", "label_optimiser": "adam", "edge_start": "random", "restart_labels": True},
    "paths": {"negatives": "shortlist", "beam": 2, "shortlist_size": 20, "most_clusters": 2},
    "averaged": {"negatives": "shortlist", **_PHASES, "reduction": "mean", "stopping": STOPPING, "weight_decay": 0.01},
    "paths-adam": {"negatives": "shortlist", "label_optimiser": "adam", "first": {"label_lr": 0.005}},
    "partition": {"training": "partition", "cluster_text": True, "recluster_after": 1},
    "end-to-end": {"training": "end_to_end", "stopping": STOPPING},
    "members": {"n_members": 2, "n_clusters": 8, "beam": 2, "edges_per_cluster": 12},
    "after": _AFTER,
    "after-members": {**_AFTER, "n_members": 2},
}
_LABEL_TREE: Variants = {
    "default": {},
    "parabel": {"branching": 2, "max_leaf": 5, "n_trees": 2, "loss": "logistic"},
    "no-text": {"label_text_weight": 0.0, "game": {"share": 0.3}},
    "stopping": {"stopping": STOPPING, "max_leaf": 10},
}
_LIGHTDXML: Variants = {
    "default": {},
    "nearest": {"negatives": "nearest", "shortlist_size": 9, "n_random": 3, "refresh_every": 1},
    "stopping": {"negatives": "nearest", "shortlist_size": 9, "refresh_every": 1, "stopping": STOPPING},
    "adam": {"label_optimiser": "adam", "final_refresh": False, "label_encoder_relu": False},
    "reranker": {"reranker_epochs": 1, "reranker_size": 9, "reranker_random": 3, "fusion": "row_max"},
    "after": _AFTER,
}
_MACH: Variants = {
    "default": {},
    "geometric": {"combine": "geometric", "n_repetitions": 2, "n_buckets": 9, "encoder": {"n_layers": 2}},
    "stopping": {"stopping": STOPPING},
}
_SLICE: Variants = {
    "default": {},
    "short": {"shortlist_size": 5, "embedding_dim": 16},
    "stopping": {"stopping": STOPPING},
}
_SPARSE: Variants = {"default": {}, "logistic": {"loss": "logistic"}, "stopping": {"stopping": STOPPING}}
_XML_CNN: Variants = {
    "default": {},
    "sampled": {"exact_labels": 0, "n_negatives": 8},
    "stopping": {"stopping": STOPPING, "encoder": {"widths": [1, 2], "n_pools": 1}},
}

VARIANTS: Mapping[str, Variants] = {
    "astec": _ASTEC,
    "decaf": _DECAF,
    "eclare": _ECLARE,
    "elias": _ELIAS,
    "label_tree": _LABEL_TREE,
    "lightdxml": _LIGHTDXML,
    "mach": _MACH,
    "one_vs_all": _ONE_VS_ALL,
    "slice": _SLICE,
    "sparse_one_vs_all": _SPARSE,
    "xml_cnn": _XML_CNN,
}

# Only of texts: other vectorisers, and encoders that read tokens in their order.
_OF_TEXTS: Mapping[str, Variants] = {
    "one_vs_all": {
        "word-piece": {"vectoriser": {"kind": "word_piece"}},
        "sequences": {"vectoriser": {"kind": "sequences"}},
    },
    "astec": {"sequences": {"vectoriser": {"kind": "sequences"}}},
    "elias": {
        "sequences": {"vectoriser": {"kind": "sequences"}, "sparse_ranker": {"vector": True}},
        "shortlist-sequences": {"vectoriser": {"kind": "sequences"}, "negatives": "shortlist"},
    },
    "decaf": {"word-piece": {"vectoriser": {"kind": "word_piece"}}},
}
_OF_MANY = {"eclare": {"trial": {}, "trial-game": {"order": 1}}}  # documents: the choice on a hold-out of train
_INPUTS = ("texts", "sparse", "dense")
_TEXTS_ONLY = ("xml_cnn",)


@final
@dataclass(frozen=True)
class Case:
    """One model to train."""

    algorithm: str
    variant: str
    inputs: str  # texts, sparse or dense
    settings: Mapping[str, Any]
    train: int = 6  # documents a label

    @property
    def name(self) -> str:
        return f"{self.algorithm}.{self.variant}.{self.inputs}"


def all_cases(algorithms: Sequence[str]) -> Iterator[Case]:
    """Every model of the golden job; an algorithm that has no variants here is trained with its defaults."""
    for algorithm in algorithms:
        for variant, settings in VARIANTS.get(algorithm, {"default": {}}).items():
            for inputs in _INPUTS[:1] if algorithm in _TEXTS_ONLY else _INPUTS:
                yield Case(algorithm, variant, inputs, settings)
        for variant, settings in _OF_TEXTS.get(algorithm, {}).items():
            yield Case(algorithm, variant, "texts", settings)
        for variant, settings in _OF_MANY.get(algorithm, {}).items():
            yield Case(algorithm, variant, "texts", settings, train=40)
