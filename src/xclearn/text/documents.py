"""Detects the kind of documents (texts, sparse features or dense features) and checks them.

Knows nothing about vocabularies or weights. Invalid documents raise a `DataError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from xclearn.errors import DataError

Features: TypeAlias = sp.csr_matrix | np.ndarray  # (n, V)
Documents: TypeAlias = Sequence[str] | Features

TEXTS, SPARSE, DENSE = "texts", "sparse features", "dense features"


def documents_kind(documents: Documents) -> str:
    """`TEXTS`, `SPARSE` or `DENSE`; anything else is an error."""
    if isinstance(documents, str):
        raise DataError("not a list of texts but one text", got=documents, todo="Pass [text].")
    if sp.issparse(documents):
        return SPARSE
    if isinstance(documents, np.ndarray):
        return DENSE
    if isinstance(documents, Sequence):
        return TEXTS
    allowed = "a list of texts, a sparse matrix (n, V), an array (n, V)"
    raise DataError("not documents", got=type(documents).__name__, allowed=allowed)


def as_documents(documents: Any) -> Documents:
    """A column of a data frame (pandas, polars, Arrow) or an array (n,) of texts becomes a list; others stay."""
    if isinstance(documents, list | str) or sp.issparse(documents) or getattr(documents, "ndim", 1) != 1:
        return documents
    if isinstance(documents, np.ndarray) and documents.dtype.kind not in "OUT":
        return documents
    for method in ("to_pylist", "to_list", "tolist"):  # Arrow; pandas and polars; NumPy
        if hasattr(documents, method):
            return list(getattr(documents, method)())
    return documents


def require(documents: Documents, kind: str, width: int | None = None, where: str | None = None) -> Any:
    """`documents` unchanged, after checking their kind and, for features, their width."""
    came = documents_kind(documents)
    if came != kind:
        raise DataError("not the kind of documents the model is trained on", where=where, got=came, allowed=kind)
    checked: Any = documents
    if kind == TEXTS:
        check_texts(checked, where or "documents")
    else:
        _check_features(checked, width, where)
    return checked


def check_texts(texts: Sequence[str], where: str = "documents") -> None:
    """Raise unless every item is a text."""
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError("not a text", where=f"{where}[{row}]", got=text)


def as_float32(values: np.ndarray) -> np.ndarray:
    """`values` as float32; NaN, infinity and overflow in 32 bits are errors."""
    with np.errstate(over="ignore"):
        converted = np.ascontiguousarray(values, dtype=np.float32)
    if not np.isfinite(converted).all():
        raise DataError("a feature is NaN, or infinite in 32 bits", todo="Clean the features first.")
    return converted


def _check_features(documents: sp.csr_matrix | np.ndarray, width: int | None, where: str | None) -> None:
    """Raise unless features are numbers in rows of `width` (any width above zero if None)."""
    if documents.dtype.kind not in "biuf":
        raise DataError("features are not numbers", where=where, got=str(documents.dtype), todo="Give texts as a list.")
    if documents.ndim != 2 or documents.shape[1] == 0 or width not in (None, documents.shape[1]):
        allowed = f"(n, {'V' if width is None else width})"
        raise DataError("features have the wrong shape", where=where, got=documents.shape, allowed=allowed)
