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
