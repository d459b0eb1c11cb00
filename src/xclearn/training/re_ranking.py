"""A servable followed by a re-ranking: the ranker learnt from its answers on train, the calibration on a hold-out.

Works on what any algorithm serves. Knows nothing about how it was trained.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from functools import partial

import numpy as np
import scipy.sparse as sp

from xclearn.data.dataset import NO_PAIRS
from xclearn.data.topk import TopK
from xclearn.errors import ConfigError, PlanError
from xclearn.inference.components import Encoder
from xclearn.inference.device import on_device
from xclearn.inference.native import NativePredictor, native_predictor
from xclearn.inference.re_ranking import CalibrationTree, ReRanking, SparseRanker, ranker_features
from xclearn.inference.servable import Ensemble, Servable
from xclearn.inference.sparse import SparseFeatures
from xclearn.inference.token_bag import bag_encoder
from xclearn.metrics.ranking import hits
from xclearn.parts.calibration import Calibration, calibration_tree
from xclearn.parts.linear import Solver, matrix_of
from xclearn.parts.re_ranking import SparseRanking, ranking_problems
from xclearn.training.prepare import Features, Prepared
from xclearn.training.run import Run
from xclearn.training.stage import Stopping

_BAG = "bag"  # the encoder that is added


def require_hold_out(calibration: Calibration | None, stopping: Stopping | None) -> None:
    """Refuse a calibration without documents to learn it on."""
    if calibration is not None and stopping is None:
        todo = "Set stopping too: its hold-out is what the tree learns on."
        raise ConfigError("calibration needs held-out documents", where="calibration", todo=todo)


def re_ranked(
    servable: Servable | Ensemble,
    data: Prepared,
    run: Run,
    ranking: SparseRanking | None,
    calibration: Calibration | None,
) -> Servable | Ensemble:
    """The servable, or each member of an ensemble, followed by a re-ranking; itself where none is asked for."""
    if ranking is None and calibration is None:
        return servable
    members = servable.members if isinstance(servable, Ensemble) else [servable]
    # one bag for all members: what is the same object is stored once
    bag = None if ranking is None else bag_encoder(data.vectoriser, data.features, pairs=ranking.pairs)
    readers = [each if bag is None else _with(each, bag) for each in members]
    steps = [
        _step(each, reader, data, run, f"ranker-{number}", ranking, calibration)
        for number, (each, reader) in enumerate(zip(members, readers, strict=True))
    ]
    steps = steps if calibration is None else _of_one_weight(steps, run)
    pairs = zip(readers, steps, strict=True)
    followed = [dataclasses.replace(reader, steps=[*reader.steps, step]) for reader, step in pairs]
    return Ensemble(followed) if isinstance(servable, Ensemble) else followed[0]


def _with(servable: Servable, bag: Encoder) -> Servable:
    return dataclasses.replace(servable, encoders={**servable.encoders, _BAG: bag})


def _of_one_weight(steps: Sequence[ReRanking], run: Run) -> list[ReRanking]:
    """Each calibrated with the least weight that one got: members are averaged, and chances are no scores."""
    trees = [step.calibration for step in steps if step.calibration is not None]
    weight = min(tree.weight for tree in trees)
    run.note(calibration_weight=weight)
    alike = [dataclasses.replace(tree, weight=weight) for tree in trees]
    return [dataclasses.replace(step, calibration=tree) for step, tree in zip(steps, alike, strict=True)]


def _step(
    servable: Servable,
    reader: Servable,
    data: Prepared,
    run: Run,
    name: str,
    ranking: SparseRanking | None,
    calibration: Calibration | None,
) -> ReRanking:
    """What is to follow a servable; `reader` is the servable with the encoders that the step reads."""
    step = ReRanking(min(servable.n_labels, (ranking or SparseRanking()).depth), None, None)
    if ranking is not None:
        shortlist = _best(servable, data.features, step.depth, run).ids
        step = dataclasses.replace(step, ranker=_ranker(reader, shortlist, data, run, name, ranking))
    if calibration is not None:
        assert data.held_out is not None
        before = _best(servable, data.held_out_features, step.depth, run, data.held_out.filter_pairs)
        step = dataclasses.replace(step, calibration=_tree(reader, step, before, data, calibration))
    return step


def _best(servable: Servable, features: Features, k: int, run: Run, exclude: np.ndarray = NO_PAIRS) -> TopK:
    """The k best labels of each document (N, k), by the fastest way there is."""
    if run.device.type == "cuda":
        with contextlib.suppress(PlanError):  # what was trained may still fill the GPU
            if (on_gpu := on_device(servable, "auto")) is not None:
                return on_gpu.rank(features, k, exclude)
    native = native_predictor(servable)
    return (native if isinstance(native, NativePredictor) else servable).rank(features, k, exclude)


def _ranker(
    servable: Servable, shortlist: np.ndarray, data: Prepared, run: Run, name: str, settings: SparseRanking
) -> SparseRanker:
    vector = servable.scorers[0].vector if settings.vector else ""
    vector = "" if isinstance(servable.encoders.get(vector), SparseFeatures) else vector  # the bag itself
    vectors = servable.encoders[vector].encode(data.features) if vector else None
    features = ranker_features(servable.encoders[_BAG].encode(data.features), vectors)
    solver = Solver("squared_hinge", settings.cost, settings.passes, settings.threshold, run.seed_of(name))
    parts = []
    for number, problems in enumerate(ranking_problems(shortlist, data.relevance)):
        arrays = run.keep_all(f"{name}-{number}", "", partial(solver.train, features, problems))
        parts.append((matrix_of(arrays, features.shape[1]), arrays["bias"]))
    weights, biases = zip(*parts, strict=True)
    return SparseRanker.of(_BAG, vector, sp.vstack(weights, format="csr"), np.concatenate(biases))


def _tree(servable: Servable, step: ReRanking, before: TopK, data: Prepared, settings: Calibration) -> CalibrationTree:
    """Learnt on the held-out documents and the labels ranked first for them before the step."""
    assert data.held_out is not None
    encoders = {name: servable.encoders[name] for name in step.reads}
    vectors = {name: encoder.encode(data.held_out_features) for name, encoder in encoders.items()}
    _, now = step(vectors, *before)
    relevant = hits(before.ids, data.held_out.relevance)
    # without the hold-out: a label found there that one document has in all has it in train, so it would never be right
    counts = np.asarray(data.relevance.sum(axis=0)).ravel()
    return calibration_tree(settings, before.ids, now, before.scores, relevant, counts)
