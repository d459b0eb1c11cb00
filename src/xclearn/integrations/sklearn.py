"""scikit-learn: an estimator around any algorithm, and scorers for sparse relevance.

Documents are texts or features. `y` is a binary (n, L) matrix, sparse or dense, and predictions come back in its form;
or it names one class for each document, and the estimator is a classifier like scikit-learn's own. `GridSearchCV` takes
a sparse `y` as it is; `cross_val_score` refuses one unless it runs within
`sklearn.config_context(skip_parameter_validation=True)`.

Label names, label texts and filter pairs need a `Dataset` and the algorithm's own `fit`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, column_or_1d, validate_data

from xclearn import algorithms, config
from xclearn.data.dataset import Dataset, Documents, LabelSet, Split
from xclearn.data.matrices import as_relevance
from xclearn.data.topk import TopK
from xclearn.errors import ConfigError, DataError, NotFitted
from xclearn.labels.propensity import inverse_propensity
from xclearn.metrics import evaluate_predictions
from xclearn.text.documents import documents_kind

_THRESHOLD = 0.5  # of `predict`, for a matrix
_NESTED = "settings__"


class _Unfitted(NotFitted, NotFittedError):
    """The error of both: of our tree, and what scikit-learn looks for."""


@final
class XCClassifier(ClassifierMixin, BaseEstimator):
    """Any algorithm by its name, with its settings as `xc train --set` takes them; `fit` leaves it in `algorithm_`.

    A search varies single settings by `settings__epochs`, and `settings__vectoriser__longest` inside of another.
    """

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

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments of the constructor; if `deep`, also each setting that was given, as `settings__NAME`."""
        given = dict(super().get_params(deep=False))
        return given | (_flat(_NESTED, self.settings) if deep and isinstance(self.settings, Mapping) else {})

    def set_params(self, **params: Any) -> Self:
        """Arguments of the constructor and, as `settings__NAME`, single settings: all others stay."""
        settings = [name for name in params if name.startswith(_NESTED)]
        super().set_params(**{name: value for name, value in params.items() if name not in settings})
        for name in settings:
            path = name.removeprefix(_NESTED).split("__")
            self.settings = _with(self.settings or {}, path, params[name])
        return self

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from documents `X` and what `y` says of each: a class (n,), or a binary matrix (n, L)."""
        if y is None:
            raise DataError("XCClassifier requires y to be passed, but the target y is None")
        documents = self._documents(X, reset=True)
        one_each = not sp.issparse(y) and _n_columns(y) == 1
        relevance, self.classes_ = _one_each(y) if one_each else _several(y)
        _require_rows(documents, relevance)
        data = Dataset("X, y", Split(documents, relevance), LabelSet(list(map(str, self.classes_))))
        algorithm = config.build(algorithms.find(self.algorithm), self.settings or {}, self.algorithm)
        self.algorithm_ = algorithm.fit(data, device=self.device, seed=self.seed)
        self.form_ = "classes" if one_each else "sparse" if sp.issparse(y) else "dense"
        return self

    def predict_proba(self, X: Any) -> sp.csr_matrix | np.ndarray:
        """The scores of the `k` best labels of each document, (n, L), in the form of the `y` that was learnt from.

        Where `y` named classes, the scores of all of them, which sum to one.
        """
        best = self._scored(X)
        if self.form_ == "sparse":
            return best
        scores = best.toarray()
        if self.form_ == "dense":
            return scores
        scores[~scores.any(axis=1)] = 1  # nothing is known: all classes alike
        return scores / scores.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> sp.csr_matrix | np.ndarray:
        """Which of the `k` best labels have a score of at least 0.5, (n, L); or the best class of each, (n,)."""
        if getattr(self, "form_", None) == "classes":
            return self.classes_[self.predict_proba(X).argmax(axis=1)]
        chosen = self._scored(X)
        chosen.data = (chosen.data >= _THRESHOLD).astype(np.int8)
        chosen.eliminate_zeros()
        return chosen if self.form_ == "sparse" else chosen.toarray().astype(np.int64)

    def _scored(self, X: Any) -> sp.csr_matrix:
        if not hasattr(self, "algorithm_"):
            raise _Unfitted("XCClassifier is not fitted yet", todo="Call fit(X, y) first.")
        n_labels = len(self.classes_)
        k = n_labels if self.form_ == "classes" else self.k
        ids, scores = self.algorithm_.predict(self._documents(X, reset=False), k)  # (n, k)
        found = ids >= 0
        starts = np.concatenate([[0], np.cumsum(found.sum(axis=1))])
        best = sp.csr_matrix((scores[found], ids[found], starts), shape=(len(ids), n_labels))
        best.sort_indices()
        return best

    def _documents(self, X: Any, *, reset: bool) -> Documents:
        """Texts as a list; features checked as scikit-learn does, which keeps their number and names in `fit`."""
        texts = _texts(X)
        if texts is not None:
            return texts
        try:
            features = validate_data(self, X, reset=reset, accept_sparse="csr", dtype=np.float32)
        except ValueError as error:
            raise DataError(str(error).rstrip(".")) from error
        return sp.csr_matrix(features) if sp.issparse(features) else features

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.string = True
        tags.target_tags.multi_output = True
        tags.classifier_tags.multi_label = True
        return tags


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
        predictions = _best(sp.csr_matrix(estimator.predict_proba(X)), self.k)
        report = evaluate_predictions(predictions, relevance, weights, ks=(self.k,), recall_ks=())
        return report.values[f"{self.metric}@{self.k}"] / 100


def precision_at_k(k: int = 1) -> RankingScorer:
    """The share of correct labels among the first k."""
    return RankingScorer("P", k)


def psp_at_k(k: int, Y: Any, *, a: float = 0.55, b: float = 1.5) -> RankingScorer:
    """Precision at k weighted by inverse propensity; `Y` gives the label frequencies."""
    relevance = _relevance(Y)
    return RankingScorer("PSP", k, inverse_propensity(relevance.getnnz(axis=0), relevance.shape[0], a, b))


def _texts(X: Any) -> list[str] | None:
    """The texts of a list, an array or a column; None for anything else, which may be features."""
    if isinstance(X, str | Iterator):
        documents_kind(X)  # says what it should have been
    if sp.issparse(X) or not hasattr(X, "__len__") or getattr(X, "ndim", 1) != 1 or not len(X):
        return None
    values = list(X)
    return values if isinstance(values[0], str) else None


def _one_each(y: Any) -> tuple[sp.csr_matrix, np.ndarray]:
    """A column for each class that `y` (n,) names, and these classes."""
    try:
        named = column_or_1d(check_array(y, ensure_2d=False, dtype=None, input_name="y"), warn=True)
        check_classification_targets(named)
    except ValueError as error:
        raise DataError(str(error).rstrip(".")) from error
    classes, columns = np.unique(named, return_inverse=True)
    parts = (np.ones(len(columns), dtype=np.float32), columns, np.arange(len(columns) + 1))
    return as_relevance(sp.csr_matrix(parts, shape=(len(columns), len(classes)))), classes


def _several(y: Any) -> tuple[sp.csr_matrix, np.ndarray]:
    relevance = _relevance(y)
    return relevance, np.arange(relevance.shape[1])


def _n_columns(y: Any) -> int | None:
    """1 where `y` names a class for each document, in a list, a column, or an array of one column."""
    try:
        shape = np.asarray(y).shape
    except ValueError:  # lists of several lengths
        return None
    return 1 if len(shape) == 1 or shape[1:] == (1,) else None


def _require_rows(documents: Documents, relevance: sp.csr_matrix) -> None:
    n = documents.shape[0] if hasattr(documents, "shape") else len(documents)
    if n != relevance.shape[0]:
        raise DataError("X and y differ in rows", got=(n, relevance.shape[0]))


def _flat(prefix: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= _flat(f"{prefix}{name}__", value) if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return found


def _with(settings: Mapping[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    """A copy of the settings in which the one at `path` has this value."""
    name, *rest = path
    inner = settings.get(name)
    return {**settings, name: _with(inner if isinstance(inner, Mapping) else {}, rest, value) if rest else value}


def _relevance(Y: Any) -> sp.csr_matrix:
    """A checked copy as relevance."""
    try:
        given = Y if sp.issparse(Y) else np.asarray(Y)
        if given.ndim != 2:
            raise ValueError(f"{given.ndim} dimensions")
        matrix = sp.csr_matrix(given, dtype=np.float32, copy=True)
    except (TypeError, ValueError) as error:
        allowed = "a sparse matrix or an array (n, L) of zeros and ones, or one class for each document"
        todo = "MultiLabelBinarizer(sparse_output=True) makes a matrix of lists of labels."
        raise DataError(f"y is not a relevance matrix ({error})", allowed=allowed, todo=todo) from error
    matrix.eliminate_zeros()
    wrong = matrix.data[matrix.data != 1]  # also NaN
    if len(wrong):
        raise DataError("y is not binary", got=float(wrong[0]), allowed="zeros and ones")
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
