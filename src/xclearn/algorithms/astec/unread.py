"""Settings of Astec that have no effect, given the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, get_args

from xclearn.algorithms.astec.surrogates import UNTRAINED, drawn_outputs
from xclearn.search.shortlists import ListSource
from xclearn.text import Pretrained

if TYPE_CHECKING:
    from xclearn.algorithms.astec import Astec

_SEARCHED = ("centroids", "documents", "both")  # shortlists found by vector search


def unread(astec: Astec, device: str) -> Iterator[tuple[str, str]]:
    """Unused settings, each with the change that would make it effective."""
    yield from _of_features(astec, device)
    yield from _of_rows(astec) if astec.classifier == "rows" else _of_solver(astec)
    searches = astec.negatives in _SEARCHED if astec.classifier == "rows" else astec.classifier == "slice"
    if not searches:
        yield 'set negatives = "both"', "search"
    if not (searches or _listed(astec)) and astec.served_labels != astec.shortlist_size:
        yield 'set negatives = "both"', "shortlist_size"
    if not astec.head_centres:
        yield "set head_centres above 0", "head_documents"
    if not astec.reranker_epochs:
        yield "set reranker_epochs", "reranker_lr reranker_size reranker_random reranker_weight"
        yield from [("set reranker_epochs", "fusion")] if astec.fusion == "two_levels" else []
    if isinstance(astec.vectoriser, Pretrained):
        yield "choose an encoder other than a transformer", "embedding_dim"


def _of_features(astec: Astec, device: str) -> Iterator[tuple[str, str]]:
    """Unused settings of Module I."""
    trained = astec.surrogate not in UNTRAINED
    outputs = trained and astec.surrogate != "projection"
    if astec.surrogate != "correlated_clusters":
        yield 'set surrogate = "correlated_clusters"', "correlation"
    if astec.surrogate == "skip_gram":
        yield 'set surrogate = "word_vectors" or a task that starts from them', "word_vectors"
    if not trained:
        yield 'set surrogate = "clusters"', "n_clusters surrogate_epochs surrogate_lr"
    if not outputs:
        yield 'set surrogate = "clusters"', "surrogate_loss"
    draws = outputs and drawn_outputs(astec.n_drawn, astec.n_clusters, device) > 0
    if not draws and astec.negatives not in ("uniform", "unigram"):
        yield 'set negatives = "uniform"', "n_drawn"
    if astec.classifier != "rows" and not outputs:
        yield 'set classifier = "rows"', "label_optimiser label_lr"
    if astec.classifier != "rows" and not trained:
        yield 'set classifier = "rows"', "dropout batch_size warm_up"


def _of_rows(astec: Astec) -> Iterator[tuple[str, str]]:
    """Unused settings of Modules II to IV."""
    if not _listed(astec):
        yield 'set negatives = "both"', "n_random"
    if not (_listed(astec) and astec.trains_encoder_last):
        yield 'set surrogate = "none" or transfer = "fine_tune", with lists', "rebuild_every"
    if astec.negatives != "unigram":
        yield 'set negatives = "unigram"', "unigram_power"
    if astec.transfer in ("free", "fully_connected"):
        yield 'set transfer = "spectral"', "transfer_limit"


def _of_solver(astec: Astec) -> Iterator[tuple[str, str]]:
    names = "negatives n_random unigram_power rebuild_every transfer transfer_limit extreme_epochs extreme_lr loss"
    yield 'set classifier = "rows"', f"{names} reranker_epochs" if astec.reranker_epochs else names


def _listed(astec: Astec) -> bool:
    return astec.negatives in get_args(ListSource)
