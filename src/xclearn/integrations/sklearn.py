"""scikit-learn: an estimator around any algorithm, and scorers for sparse relevance.

Documents are texts or features, `Y` is a binary (n, L) matrix. Predictions are sparse, as dense ones would not fit into
memory. `GridSearchCV` accepts a sparse `Y`; `cross_val_score` needs
`sklearn.config_context(skip_parameter_validation=True)` for one.

Label names, label texts and filter pairs need a `Dataset` and the algorithm's own `fit`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from xclearn import algorithms, config
from xclearn.data.dataset import Dataset, Documents, LabelSet, Split
from xclearn.data.matrices import as_relevance
from xclearn.data.topk import TopK
from xclearn.errors import ConfigError, DataError, NotFitted
from xclearn.labels.propensity import inverse_propensity
from xclearn.metrics import evaluate_predictions
from xclearn.text.documents import documents_kind

_THRESHOLD = 0.5  # threshold of `predict`


@final
class XCClassifier(BaseEstimator):
    """Any algorithm by name, with settings as in `xc train --set`; `fit` stores it in `algorithm_`."""

    def __init__(
        self,
        algorithm: str = "blend",
        settings: Mapping[str, Any] | None = None,
        k: int = 5,
        device: str = "auto",
        seed: int = 0,
    ) -> None:
        self.algorithm = algorithm
        self.settings = settings
        self.k = k
        self.device = device
        self.seed = seed

    def fit(self, X: Any, Y: Any) -> Self:
        """Fit on documents `X` and their relevant labels `Y` (n, L), binary, sparse or dense."""
        relevance = _relevance(Y)
        labels = LabelSet([str(label) for label in range(relevance.shape[1])])
        data = Dataset("X, Y", Split(_documents(X), relevance), labels)
        algorithm = config.build(algorithms.find(self.algorithm), self.settings or {}, self.algorithm)
        self.algorithm_ = algorithm.fit(data, device=self.device, seed=self.seed)
        return self

    def predict_proba(self, X: Any) -> sp.csr_matrix:
        """The scores of the `k` best labels of each document, sparse (n, L)."""
        if not hasattr(self, "algorithm_"):
            raise NotFitted("XCClassifier has not been fitted", todo="Call fit(X, Y) first.")
        ids, scores = self.algorithm_.predict(_documents(X), self.k)  # (n, k)
        found = ids >= 0
        starts = np.concatenate([[0], np.cumsum(found.sum(axis=1))])
        shape = (len(ids), self.algorithm_.model.servable.n_labels)
        probabilities = sp.csr_matrix((scores[found], ids[found], starts), shape=shape)
        probabilities.sort_indices()
        return probabilities

    def predict(self, X: Any) -> sp.csr_matrix:
        """Which of the `k` best labels have a score of at least 0.5, sparse binary (n, L)."""
        chosen = self.predict_proba(X)
        chosen.data = (chosen.data >= _THRESHOLD).astype(np.int8)
        chosen.eliminate_zeros()
        return chosen


@final
@dataclass(frozen=True, eq=False)
class RankingScorer:
    """`scorer(estimator, X, Y)` for `scoring=`: a metric at k, from 0 to 1, of the result of `predict_proba`."""

    metric: str
    k: int
    inverse_propensity: np.ndarray | None = None  # (L,)

    def __call__(self, estimator: Any, X: Any, Y: Any) -> float:
        relevance = _relevance(Y)
        weights = np.ones(relevance.shape[1]) if self.inverse_propensity is None else self.inverse_propensity
        predictions = _best(estimator.predict_proba(X), self.k)
        report = evaluate_predictions(predictions, relevance, weights, ks=(self.k,), recall_ks=())
        return report.values[f"{self.metric}@{self.k}"] / 100


def precision_at_k(k: int = 1) -> RankingScorer:
    """The share of correct labels among the first k."""
    return RankingScorer("P", k)


def psp_at_k(k: int, Y: Any, *, a: float = 0.55, b: float = 1.5) -> RankingScorer:
    """Precision at k weighted by inverse propensity; `Y` gives the label frequencies."""
    relevance = _relevance(Y)
    return RankingScorer("PSP", k, inverse_propensity(relevance.getnnz(axis=0), relevance.shape[0], a, b))


def _documents(X: Any) -> Documents:
    """Sparse features as CSR, texts of an array or a column as a list."""
    documents = sp.csr_matrix(X) if sp.issparse(X) else list(X) if getattr(X, "ndim", None) == 1 else X
    documents_kind(documents)  # raises if they are not documents
    return documents


def _relevance(Y: Any) -> sp.csr_matrix:
    """A checked copy as relevance."""
    try:
        given = Y if sp.issparse(Y) else np.asarray(Y)
        if given.ndim != 2:
            raise ValueError(f"{given.ndim} dimensions")
        matrix = sp.csr_matrix(given, dtype=np.float32, copy=True)
    except (TypeError, ValueError) as error:
        allowed = "a sparse matrix or an array (n, L) of zeros and ones"
        raise DataError(f"Y is not a relevance matrix ({error})", allowed=allowed) from error
    matrix.eliminate_zeros()
    wrong = matrix.data[matrix.data != 1]  # also NaN
    if len(wrong):
        raise DataError("Y is not binary", got=float(wrong[0]), allowed="zeros and ones")
    return as_relevance(matrix)


def _best(probabilities: sp.csr_matrix, k: int) -> TopK:
    """The stored scores of each row, padded with -1."""
    stored = np.diff(probabilities.indptr)  # (n,)
    deepest = int(stored.max(initial=0))
    if deepest < min(k, probabilities.shape[1]):
        raise ConfigError("the scorer needs more labels than predict_proba gives", got=k, allowed=f"k up to {deepest}")
    ids = np.full((len(stored), deepest), -1, dtype=np.int64)
    scores = np.full(ids.shape, -np.inf, dtype=np.float32)
    filled = np.arange(deepest) < stored[:, None]  # (n, deepest)
    ids[filled], scores[filled] = probabilities.indices, probabilities.data
    return TopK(ids, scores)
