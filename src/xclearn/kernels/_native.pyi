from typing import Any

import numpy as np

def topk_csr(
    indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, k: int, n_threads: int
) -> tuple[np.ndarray, np.ndarray]: ...
def balanced_clusters_csr(
    indptr: np.ndarray,
    indices: np.ndarray,
    data: np.ndarray,
    n_columns: int,
    n_clusters: int,
    seed: int,
    n_threads: int,
) -> np.ndarray: ...
def balanced_clusters_dense(rows: np.ndarray, n_clusters: int, seed: int, n_threads: int) -> np.ndarray: ...
def train_linear(
    indptr: np.ndarray,
    indices: np.ndarray,
    data: np.ndarray,
    n_columns: int,
    group_indptr: np.ndarray,
    group_rows: np.ndarray,
    problem_indptr: np.ndarray,
    positive_indptr: np.ndarray,
    positive_rows: np.ndarray,
    logistic: bool,
    cost: float,
    tolerance: float,
    max_passes: int,
    threshold: float,
    bias: float,
    learn_bias: bool,
    seed: int,
    n_threads: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]: ...
def listed_logits(
    indptr: np.ndarray,
    indices: np.ndarray,
    data: np.ndarray,
    n_columns: int,
    weight_indptr: np.ndarray,
    weight_indices: np.ndarray,
    weights: np.ndarray,
    ids: np.ndarray,
    n_threads: int,
) -> np.ndarray: ...
def random_walks(
    document_indptr: np.ndarray,
    document_labels: np.ndarray,
    label_indptr: np.ndarray,
    label_documents: np.ndarray,
    steps: int,
    restart: float,
    top: int,
    seed: int,
    n_threads: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]: ...
def best_paths(
    starts: np.ndarray,
    clusters: np.ndarray,
    chances: np.ndarray,
    wanted_starts: np.ndarray,
    wanted: np.ndarray,
    labels: np.ndarray,
    strengths: np.ndarray,
    n_labels: int,
    k: int,
    n_threads: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]: ...
def train_pairs(
    x: np.ndarray,
    owner: np.ndarray,
    row: np.ndarray,
    targets: np.ndarray,
    table: np.ndarray,
    rate: float,
    first: np.ndarray | None,
    second: np.ndarray | None,
    steps: np.ndarray | None,
    beta_first: float,
    beta_second: float,
    epsilon: float,
    hinge: bool,
    scale: float,
    fixed: int,
    n_threads: int,
) -> tuple[float, np.ndarray]: ...
def pair_scores(
    x: np.ndarray, weight: np.ndarray, owner: np.ndarray, row: np.ndarray, n_threads: int
) -> np.ndarray: ...
def pair_products(
    x: np.ndarray, weight: np.ndarray, owner: np.ndarray, row: np.ndarray, outer: np.ndarray, n_threads: int
) -> tuple[np.ndarray, np.ndarray]: ...

class Predictor:
    def __init__(self, n_labels: int) -> None: ...
    def set_prepared(self) -> None: ...
    def set_text(
        self, tokens: list[str], pieces: bool, idf: np.ndarray, damped: np.ndarray, normalise: bool
    ) -> None: ...
    def add_encoder(self, embeddings: np.ndarray) -> None: ...
    def add_relu(self) -> None: ...
    def add_unit(self) -> None: ...
    def add_residual(self, weight: np.ndarray, bias: np.ndarray) -> None: ...
    def add_gated(
        self, weight: np.ndarray, bias: np.ndarray, block_gate: np.ndarray, skip_gate: np.ndarray
    ) -> None: ...
    def add_level(self, encoder: int, rows: tuple[Any, ...], offsets: np.ndarray, beam: int) -> None: ...
    def set_index(
        self,
        offsets: np.ndarray,
        labels: np.ndarray,
        weights: np.ndarray,
        always: np.ndarray,
        tokens: int,
        postings: int,
        shortlist: int,
    ) -> None: ...
    def set_centres(self, encoder: int, rows: tuple[Any, ...], labels: np.ndarray, size: int) -> None: ...
    def set_edges(
        self,
        encoder: int,
        rows: tuple[Any, ...],
        scale: float,
        beam: int,
        labels: np.ndarray,
        chances: np.ndarray,
        size: int,
    ) -> None: ...
    def set_cluster_game(self, game: tuple[Any, ...]) -> None: ...
    def set_label_game(self, game: tuple[Any, ...], depth: int) -> None: ...
    def set_re_ranking(self, depth: int) -> None: ...
    def set_ranker(self, parts: tuple[np.ndarray, ...], n_bag: int, unit_bag: bool, encoder: int) -> None: ...
    def set_calibration(self, parts: tuple[np.ndarray, ...], depth: int, weight: float) -> None: ...
    def set_labels(self, labels: np.ndarray) -> None: ...
    def add_scorer(self, encoder: int, rows: tuple[Any, ...], row_of_position: np.ndarray) -> None: ...
    def set_product(self) -> None: ...
    def set_mix(self, scorer_weights: list[float], weight: float, by_row: bool) -> None: ...
    def bag(self, text: str) -> tuple[list[int], list[float]]: ...
    def predict_texts(
        self,
        texts: list[str],
        offsets: np.ndarray,
        labels: np.ndarray,
        n_threads: int,
        ids: np.ndarray,
        scores: np.ndarray,
    ) -> None: ...
    def predict_rows(
        self,
        indptr: np.ndarray,
        indices: np.ndarray,
        data: np.ndarray,
        offsets: np.ndarray,
        labels: np.ndarray,
        n_threads: int,
        ids: np.ndarray,
        scores: np.ndarray,
    ) -> None: ...

class SparsePredictor:
    def __init__(self, n_features: int, n_labels: int) -> None: ...
    def set_prepared(self) -> None: ...
    def set_text(
        self, tokens: list[str], pieces: bool, idf: np.ndarray, damped: np.ndarray, normalise: bool
    ) -> None: ...
    def set_trees(self, loss: str, beam: int, unit: bool) -> None: ...
    def add_tree(self, levels: list[tuple[np.ndarray, ...]], labels: np.ndarray) -> None: ...
    def set_classifier(self, parts: tuple[np.ndarray, ...], loss: str, unit: bool) -> None: ...
    def set_label_text(self, parts: tuple[np.ndarray, ...], weight: float, unit: bool) -> None: ...
    def bag(self, text: str) -> tuple[list[int], list[float]]: ...
    def predict_texts(
        self,
        texts: list[str],
        offsets: np.ndarray,
        labels: np.ndarray,
        n_threads: int,
        ids: np.ndarray,
        scores: np.ndarray,
    ) -> None: ...
    def predict_rows(
        self,
        indptr: np.ndarray,
        indices: np.ndarray,
        data: np.ndarray,
        offsets: np.ndarray,
        labels: np.ndarray,
        n_threads: int,
        ids: np.ndarray,
        scores: np.ndarray,
    ) -> None: ...

class RowIndex:
    def __init__(self, starts: np.ndarray, rows: np.ndarray, weights: np.ndarray, n_rows: int) -> None: ...
    def nearest(
        self, indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, k: int, n_threads: int
    ) -> tuple[np.ndarray, np.ndarray]: ...

class DocumentLabels:
    def __init__(self, starts: np.ndarray, labels: np.ndarray, n_labels: int) -> None: ...
    def votes(
        self, ids: np.ndarray, similarities: np.ndarray, power: float, n_threads: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]: ...

class BoostedTrees:
    def __init__(
        self,
        roots: np.ndarray,
        columns: np.ndarray,
        thresholds: np.ndarray,
        left: np.ndarray,
        right: np.ndarray,
        missing_left: np.ndarray,
        values: np.ndarray,
    ) -> None: ...
    def sum(self, rows: np.ndarray, base: float, n_threads: int) -> np.ndarray: ...

def strings(block: np.ndarray, offsets: np.ndarray, ids: np.ndarray) -> list[str]: ...
def adam_rows(
    values: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    ids: np.ndarray,
    gradients: np.ndarray,
    size: float,
    first_share: float,
    second_share: float,
    epsilon: float,
    n_threads: int,
) -> None: ...
def text_bags(
    tokens: list[str],
    pieces: bool,
    prepared: bool,
    idf: np.ndarray,
    damped: np.ndarray,
    normalise: bool,
    texts: list[str],
    n_threads: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]: ...
def bag_gradient(
    ids: np.ndarray, owner: np.ndarray, weights: np.ndarray, gradients: np.ndarray, n_rows: int, n_threads: int
) -> tuple[np.ndarray, np.ndarray]: ...
