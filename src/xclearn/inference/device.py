"""Many documents at once on a GPU: what a servable does in NumPy, in torch, with its tables on the device.

It knows bags and transformers with their layers, all labels or a shortlist by clusters, learnt edges or label centres,
linear scorers and every fusion; `unknown_part` names what it does not know. Texts become features on the CPU, and the
steps after fusion run there. Products are in float32, so the answers are the servable's up to rounding; the servable is
its oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from operator import mul
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np
import scipy.sparse as sp

from xclearn.data.dataset import NO_PAIRS, Documents
from xclearn.data.topk import TopK
from xclearn.errors import ConfigError, ModelError, PlanError
from xclearn.extras import is_installed, require
from xclearn.inference.components import (
    AllLabels,
    Bag,
    Candidates,
    Classifier,
    ClusterBeam,
    Encoder,
    Fusion,
    GatedBlock,
    Layer,
    Product,
    Relu,
    Residual,
    Sigmoid,
    Unit,
)
from xclearn.inference.hashed import Affine
from xclearn.inference.layered import Layered
from xclearn.inference.sequences import Transformer
from xclearn.inference.servable import _MEMBER_DEPTH, Ensemble, Servable, _blocks, check_k, in_blocks
from xclearn.inference.shortlists import CentroidSearch, LearnedEdges, Mix
from xclearn.text import Vectoriser

if TYPE_CHECKING:
    import torch

_SCORES_AT_ONCE = 1 << 27  # on the device: 512 MiB
_ROWS_AT_ONCE = 1024  # documents: enough for a product to be worth its labels' reading
_KNOWN = (
    *(Relu, Residual, GatedBlock, Affine, Unit, Bag, Transformer, Layered),
    *(AllLabels, ClusterBeam, LearnedEdges, CentroidSearch, Classifier, Sigmoid, Product, Mix),
)

Features: TypeAlias = sp.csr_matrix | np.ndarray
Found: TypeAlias = tuple[
    "torch.Tensor", "torch.Tensor"
]  # ids (n, m), −1 where there are fewer; scores or logits (n, m)
Place: TypeAlias = Callable[[np.ndarray], "torch.Tensor"]  # onto the device; floats in 32 bits


@final
class DevicePredictor:
    """Predicts what its servable, or the mean of an ensemble's members, predicts."""

    def __init__(self, members: Sequence[_Member], vectoriser: Vectoriser, n_labels: int, rows_at_once: int) -> None:
        self._members, self._rows_at_once = members, rows_at_once
        self.vectoriser, self.n_labels = vectoriser, n_labels

    def predict(self, documents: Documents, k: int, exclude: np.ndarray = NO_PAIRS) -> TopK:
        """As `Servable.predict`."""
        check_k(k)
        return self.rank(self.vectoriser.transform(documents), k, exclude)

    def rank(self, features: Features, k: int, exclude: np.ndarray = NO_PAIRS) -> TopK:
        """As `Servable.rank`."""
        return in_blocks(self._best_here, features, min(k, self.n_labels), exclude, self._rows_at_once)

    def _best_here(self, features: Features, k: int, exclude: np.ndarray) -> TopK:
        import torch

        with torch.inference_mode():
            return TopK(*(part.cpu().numpy() for part in self._best(features, k, exclude)))

    def _best(self, features: Features, k: int, exclude: np.ndarray) -> Found:
        if len(self._members) == 1:
            return self._members[0].best(features, k, exclude)
        depth = min(self.n_labels, max(_MEMBER_DEPTH, 2 * k))
        return _mean([member.best(features, depth, exclude) for member in self._members], k)


@final
@dataclass(frozen=True)
class _Member:
    """A servable on the device."""

    encoders: Mapping[str, Callable[[Features], torch.Tensor]]
    candidates: Callable[[Mapping[str, torch.Tensor]], Found] | None  # None: every label
    scorers: Sequence[_Rows]
    fusion: Callable[[torch.Tensor | None, Sequence[torch.Tensor]], torch.Tensor]
    place: Place
    scores_at_once: int
    servable: Servable  # whose steps follow

    @property
    def n_labels(self) -> int:
        return len(self.scorers[0].bias)

    def best(self, features: Features, k: int, exclude: np.ndarray) -> Found:
        """The k best labels and their scores; k ≤ L."""
        vectors = {name: encode(features) for name, encode in self.encoders.items()}
        whole = self.servable
        if not whole.steps:
            return self._fused(vectors, k, exclude)
        fused = TopK(*(part.cpu().numpy() for part in self._fused(vectors, whole.fused_depth, NO_PAIRS)))
        here = {name: encoder.encode(features) for name, encoder in whole.encoders.items() if name not in vectors}
        here |= {name: vector.cpu().numpy() for name, vector in vectors.items()}
        best = whole.after_steps(here, fused, k, exclude)
        return self.place(best.ids), self.place(best.scores)

    def _fused(self, vectors: Mapping[str, torch.Tensor], k: int, exclude: np.ndarray) -> Found:
        if self.candidates is None:
            return self._best_of_all(vectors, k, exclude)
        ids, candidate = self.candidates(vectors)
        logits = [rows.score(vectors[rows.vector], ids, self.scores_at_once) for rows in self.scorers]
        missing = ids < 0
        candidate, *logits = (part.masked_fill(missing, -np.inf) for part in (candidate, *logits))
        scores = self.fusion(candidate, logits).masked_fill(missing | self._among(ids, exclude), -np.inf)
        return _ordered(ids, scores, k)

    def _best_of_all(self, vectors: Mapping[str, torch.Tensor], k: int, exclude: np.ndarray) -> Found:
        """As the servable: ranked by the logit where there is one scorer. The best of each block of labels are kept."""
        import torch

        width = self.scores_at_once // len(vectors[self.scorers[0].vector])
        found = [self._best_of_block(vectors, k, exclude, own) for own in _blocks(self.n_labels, max(1, width))]
        ids, ranked = (torch.cat(parts, dim=1) for parts in zip(*found, strict=True))
        ids, ranked = _ordered(ids, ranked, k)
        scores = self.fusion(None, [ranked]) if len(self.scorers) == 1 else ranked
        return ids, scores.masked_fill(ids < 0, -np.inf)

    def _best_of_block(self, vectors: Mapping[str, torch.Tensor], k: int, exclude: np.ndarray, own: slice) -> Found:
        logits = [rows.score_block(vectors[rows.vector], own) for rows in self.scorers]  # each (n, own)
        ranked = logits[0] if len(logits) == 1 else self.fusion(None, logits)
        here = exclude[(exclude[:, 1] >= own.start) & (exclude[:, 1] < own.stop)]
        ranked[self.place(here[:, 0]), self.place(here[:, 1] - own.start)] = -np.inf
        places, best = _top(ranked, min(k, own.stop - own.start))
        return places + own.start, best

    def _among(self, ids: torch.Tensor, exclude: np.ndarray) -> torch.Tensor:
        """Which entries (n, m) are excluded (row, label) pairs."""
        import torch

        rows = torch.arange(len(ids), device=ids.device)[:, None]
        pairs = self.place(exclude[:, 0] * self.n_labels + exclude[:, 1])
        return torch.isin(rows * self.n_labels + ids, pairs) & (ids >= 0)


@final
@dataclass(frozen=True)
class _Rows:
    """A linear scorer."""

    vector: str
    weight: torch.Tensor  # (L, D)
    bias: torch.Tensor  # (L,)

    def score_block(self, vectors: torch.Tensor, own: slice) -> torch.Tensor:
        """The logits (n, own) of a block of labels."""
        return self.bias[own].addmm(vectors, self.weight[own].T)

    def score(self, vectors: torch.Tensor, ids: torch.Tensor, at_once: int) -> torch.Tensor:
        """The logits (n, m) of each document's own labels; rows of a few documents are gathered at a time."""
        import torch

        n = max(1, at_once // (ids.shape[1] * vectors.shape[1]))
        pairs = zip(vectors.split(n), ids.clamp(min=0).split(n), strict=True)
        return torch.cat([(self.weight[own] @ few[:, :, None])[:, :, 0] + self.bias[own] for few, own in pairs])


def device_predictor(
    servable: Servable | Ensemble, device: str, *, scores_at_once: int = _SCORES_AT_ONCE
) -> DevicePredictor:
    """The servable on a device of torch; a part that has no form there is refused."""
    import torch

    unknown = unknown_part(servable)
    if unknown is not None:
        raise ModelError("the model has a part that runs on a CPU only", got=unknown, todo="Use the device cpu.")
    where = device_named(device)

    def place(array: np.ndarray) -> torch.Tensor:
        kind = np.float32 if array.dtype.kind == "f" else np.int64
        return torch.from_numpy(np.array(array, dtype=kind)).to(where)

    members = servable.members if isinstance(servable, Ensemble) else [servable]
    try:
        placed = [_member(member, place, scores_at_once) for member in members]
    except torch.cuda.OutOfMemoryError as error:
        raise PlanError("the model does not fit on the device", where=device, todo="Use the device cpu.") from error
    widest = max(_shortlist_width(member.candidates) for member in members)
    rows = max(1, min(_ROWS_AT_ONCE, scores_at_once // widest))
    return DevicePredictor(placed, servable.vectoriser, servable.n_labels, rows)


def on_device(servable: Servable | Ensemble, device: str) -> DevicePredictor | None:
    """None on a CPU, where native core and NumPy answer. `auto` is a GPU, if there is one that the model can run on."""
    if device == "cpu":
        return None
    if device == "auto":
        if not is_installed("torch"):
            return None
        import torch

        if not torch.cuda.is_available() or unknown_part(servable) is not None:
            return None
        device = "cuda"
    return device_predictor(servable, device)


def device_named(name: str) -> torch.device:
    """A device of torch that is there, cpu or cuda."""
    require("torch", f"the device {name}")
    import torch

    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, TypeError, AssertionError, NotImplementedError) as error:
        there = "auto, cpu, cuda" if torch.cuda.is_available() else "auto, cpu (no CUDA device is visible)"
        raise ConfigError("the device is not there", where="device", got=name, allowed=there) from error
    if device.type not in ("cpu", "cuda"):
        raise ConfigError("unsupported device", where="device", got=name, allowed="auto, cpu, cuda")
    return device


def unknown_part(servable: Servable | Ensemble) -> str | None:
    """The first part that has no form on a device."""
    members = servable.members if isinstance(servable, Ensemble) else [servable]
    parts = chain.from_iterable(_parts(member) for member in members)
    return next((part.kind for part in parts if not isinstance(part, _KNOWN)), None)


def _parts(servable: Servable) -> list[Any]:
    encoders = list(_read_encoders(servable).values())
    inner = [encoder.encoder for encoder in encoders if isinstance(encoder, Layered)]
    layers = [layer for encoder in encoders if isinstance(encoder, Bag | Layered) for layer in encoder.layers]
    return [*encoders, *inner, *layers, servable.candidates, *servable.scorers, servable.fusion]


def _read_encoders(servable: Servable) -> dict[str, Encoder]:
    """Those whose vectors candidates and scorers read; others are the steps'."""
    read = {part.vector for part in (servable.candidates, *servable.scorers) if hasattr(part, "vector")}
    return {name: encoder for name, encoder in servable.encoders.items() if name in read}


def _member(servable: Servable, place: Place, scores_at_once: int) -> _Member:
    scorers = []
    for scorer in servable.scorers:
        assert isinstance(scorer, Classifier)
        scorers.append(_Rows(scorer.vector, place(scorer.weight), place(scorer.bias)))
    encoders = {name: _encoder(encoder, place) for name, encoder in _read_encoders(servable).items()}
    candidates = _candidates(servable.candidates, place)
    return _Member(encoders, candidates, scorers, _fusion(servable.fusion), place, scores_at_once, servable)


def _encoder(encoder: Encoder, place: Place) -> Callable[[Features], torch.Tensor]:
    if isinstance(encoder, Transformer):
        return lambda features: place(encoder.encode(features))
    assert isinstance(encoder, Bag | Layered)
    start = _bag(encoder, place) if isinstance(encoder, Bag) else _encoder(encoder.encoder, place)
    layers = [_layer(layer, place) for layer in encoder.layers]

    def encode(features: Features) -> torch.Tensor:
        vectors = start(features)  # (n, D)
        for layer in layers:
            vectors = layer(vectors)
        return vectors

    return encode


def _bag(bag: Bag, place: Place) -> Callable[[Features], torch.Tensor]:
    from torch.nn.functional import embedding_bag

    table = place(bag.token_embeddings)

    def encode(features: Features) -> torch.Tensor:
        if not isinstance(features, sp.csr_matrix):
            return place(features) @ table
        ids, starts, weights = place(features.indices), place(features.indptr), place(features.data)
        return embedding_bag(ids, table, starts, mode="sum", per_sample_weights=weights, include_last_offset=True)

    return encode


def _norms(vectors: torch.Tensor) -> torch.Tensor:
    """The length of each row (n, 1); one where it is zero."""
    norms = vectors.norm(dim=1, keepdim=True)
    return norms.where(norms > 0, 1)


def _layer(layer: Layer, place: Place) -> Callable[[torch.Tensor], torch.Tensor]:
    if isinstance(layer, Relu):
        return lambda vectors: vectors.relu()
    if isinstance(layer, Unit):
        return lambda vectors: vectors / _norms(vectors)
    assert isinstance(layer, Residual | GatedBlock | Affine)
    weight, bias = place(layer.weight).T, place(layer.bias)
    if isinstance(layer, Residual):
        return lambda vectors: vectors + bias.addmm(vectors, weight).relu()
    if isinstance(layer, Affine):
        return lambda vectors: bias.addmm(vectors, weight)
    block, skip = place(layer.block_gate), place(layer.skip_gate)
    return lambda vectors: block * bias.addmm(vectors.relu(), weight) + skip * vectors


def _candidates(candidates: Candidates, place: Place) -> Callable[[Mapping[str, torch.Tensor]], Found] | None:
    if isinstance(candidates, ClusterBeam):
        return _cluster_beam(candidates, place)
    if isinstance(candidates, LearnedEdges):
        return _learned_edges(candidates, place)
    return _centroid_search(candidates, place) if isinstance(candidates, CentroidSearch) else None


def _shortlist_width(candidates: Candidates) -> int:
    """Values that finding a document's shortlist takes."""
    if isinstance(candidates, ClusterBeam):
        return max(len(candidates.bias), candidates.beam * int(np.diff(candidates.offsets).max()))
    if isinstance(candidates, LearnedEdges):
        return 2 * int(candidates.labels.max()) + 6 * candidates.beam * candidates.labels.shape[1]
    return len(candidates.labels) if isinstance(candidates, CentroidSearch) else 1


def _cluster_beam(stage: ClusterBeam, place: Place) -> Callable[[Mapping[str, torch.Tensor]], Found]:
    clusters = _Rows(stage.vector, place(stage.weight), place(stage.bias))
    labels, offsets = place(stage.labels), place(stage.offsets)
    steps = place(np.arange(np.diff(stage.offsets).max()))  # (largest,)

    def find(vectors: Mapping[str, torch.Tensor]) -> Found:
        logits = clusters.score_block(vectors[stage.vector], slice(None))  # (n, K)
        found, best = _top(logits, min(stage.beam, len(clusters.bias)))  # (n, b)
        places = offsets[found][:, :, None] + steps  # (n, b, largest)
        there = places < offsets[found + 1][:, :, None]
        ids = labels[places.clamp(max=len(labels) - 1)].masked_fill(~there, -1)
        return ids.flatten(1), best.repeat_interleave(len(steps), dim=1)

    return find


def _learned_edges(stage: LearnedEdges, place: Place) -> Callable[[Mapping[str, torch.Tensor]], Found]:
    clusters = _Rows(stage.vector, place(stage.weight), place(stage.bias))
    labels, edges, n_labels = place(stage.labels), place(stage.edges), int(stage.labels.max()) + 1

    def find(vectors: Mapping[str, torch.Tensor]) -> Found:
        logits = clusters.score_block(vectors[stage.vector], slice(None))  # (n, C)
        found, best = _top(logits, min(stage.beam, len(clusters.bias)))  # (n, b)
        total = (logits - best[:, :1]).exp().sum(dim=1, keepdim=True)
        chance = (stage.scale * (best - best[:, :1]).exp() / total).clamp(max=1)
        paths = (chance[:, :, None] * edges[found]).flatten(1)  # (n, b · E)
        reached = paths.new_full((len(paths), 1 + n_labels), -np.inf)  # first for edges that are not there
        reached.scatter_reduce_(1, labels[found].flatten(1) + 1, paths, "amax")
        ids, chances = _top(reached[:, 1:], min(stage.size, n_labels))
        return ids.masked_fill(chances == -np.inf, -1), chances.clamp(min=0).logit()

    return find


def _centroid_search(stage: CentroidSearch, place: Place) -> Callable[[Mapping[str, torch.Tensor]], Found]:
    own, number_of_label = np.unique(stage.labels, return_inverse=True)  # only labels that have centres
    centres, labels, numbers = place(stage.centres), place(own), place(number_of_label)

    def find(vectors: Mapping[str, torch.Tensor]) -> Found:
        document = vectors[stage.vector]
        norms = document.norm(dim=1, keepdim=True)
        cosines = (document / norms.where(norms > 0, 1)) @ centres.T  # (n, M)
        nearest = cosines.new_full((len(cosines), len(labels)), -np.inf)
        nearest.scatter_reduce_(1, numbers.expand_as(cosines), cosines, "amax")
        places, best = _top(nearest, min(stage.size, len(labels)))
        return labels[places], best

    return find


def _fusion(fusion: Fusion) -> Callable[[torch.Tensor | None, Sequence[torch.Tensor]], torch.Tensor]:
    if isinstance(fusion, Sigmoid):
        return lambda _, logits: _sigmoid(logits[0])
    if isinstance(fusion, Product):
        return _product
    assert isinstance(fusion, Mix)
    return lambda candidate, logits: _mix(fusion, candidate, logits)


def _product(candidate: torch.Tensor | None, logits: Sequence[torch.Tensor]) -> torch.Tensor:
    return reduce(mul, [_sigmoid(each) for each in (*logits, *(() if candidate is None else (candidate,)))])


def _mix(fusion: Mix, candidate: torch.Tensor | None, logits: Sequence[torch.Tensor]) -> torch.Tensor:
    assert candidate is not None
    missing = candidate == -np.inf
    weighted = zip(fusion.scorer_weights, logits, strict=True)
    added: Any = sum(weight * own.masked_fill(missing, 0) for weight, own in weighted)
    scored, similar = (_sigmoid(part).masked_fill(missing, 0) for part in (added, candidate))
    if fusion.by_row:
        scored, similar = _by_largest(scored), _by_largest(similar)
    return fusion.weight * scored + (1 - fusion.weight) * similar


def _by_largest(scores: torch.Tensor) -> torch.Tensor:
    largest = scores.amax(dim=1, keepdim=True)
    return scores / largest.where(largest > 0, 1)


def _sigmoid(logits: torch.Tensor) -> torch.Tensor:
    """By way of the logarithm, as in NumPy: a very small chance is not yet zero."""
    from torch.nn.functional import logsigmoid

    return logsigmoid(logits).exp()


def _top(scores: torch.Tensor, k: int) -> Found:
    """Places and values (n, k) of the best of each row; of equal values those of the lowest places. k ≤ columns."""
    values, places = scores.topk(min(k + 1, scores.shape[1]), dim=1)
    if values.shape[1] > k:  # of values that equal the last one topk takes any
        unclear = ((values[:, k - 1] == values[:, k]) & (values[:, k] > -np.inf)).nonzero().flatten()
        again, order = scores[unclear].sort(dim=1, descending=True, stable=True)
        values[unclear, :k], places[unclear, :k] = again[:, :k], order[:, :k]
    return _by_score(places[:, :k], values[:, :k])


def _ordered(ids: torch.Tensor, scores: torch.Tensor, k: int) -> Found:
    """The k best of (n, m), score descending, then id ascending, in 32 bits; −1 and −∞ where there are fewer."""
    from torch.nn.functional import pad

    ids, scores = (part[:, :k] for part in _by_score(ids, scores))
    short = (0, k - ids.shape[1])
    return pad(ids.masked_fill(scores == -np.inf, -1), short, value=-1), pad(scores.float(), short, value=-np.inf)


def _by_score(ids: torch.Tensor, scores: torch.Tensor) -> Found:
    ids, order = ids.sort(dim=1)
    scores, best = scores.gather(1, order).sort(dim=1, descending=True, stable=True)
    return ids.gather(1, best), scores


def _mean(found: Sequence[Found], k: int) -> Found:
    """As the ensemble: a label's score is the mean of its scores, 0 where a member does not name it."""
    import torch

    ids = torch.cat([own for own, _ in found], dim=1)  # (n, members · depth)
    scores = torch.cat([scores.masked_fill(own < 0, 0) for own, scores in found], dim=1) / len(found)
    ids, order = ids.sort(dim=1)
    first = torch.ones_like(ids, dtype=torch.bool)
    first[:, 1:] = ids[:, 1:] != ids[:, :-1]
    group = first.cumsum(dim=1) - 1  # equal ids of a row are one
    summed = torch.zeros_like(scores, dtype=torch.float64).scatter_add_(1, group, scores.gather(1, order).double())
    kept = first & (ids >= 0)
    return _ordered(ids.masked_fill(~kept, -1), summed.gather(1, group).masked_fill(~kept, -np.inf), k)
