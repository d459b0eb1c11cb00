"""Adds re-ranking to a servable: a ranker learnt from its predictions on train, and calibration on a hold-out.

Works for the servable of any algorithm. Knows nothing about how it was trained.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cached_property, partial
from typing import final

import numpy as np
import scipy.sparse as sp

from xclearn.data.dataset import NO_PAIRS
from xclearn.data.topk import TopK
from xclearn.errors import ConfigError
from xclearn.inference.components import Encoder
from xclearn.inference.one_form import one_form
from xclearn.inference.re_ranking import CalibrationTree, ReRanking, SparseRanker, ranker_features
from xclearn.inference.servable import Ensemble, Servable
from xclearn.inference.sparse import SparseFeatures
from xclearn.inference.token_bag import bag_encoder
from xclearn.metrics.ranking import hits
from xclearn.parts.calibration import Calibration, calibration_tree
from xclearn.parts.linear import Solver, matrix_of
from xclearn.parts.sparse_ranking import SparseRanking, ranking_problems
from xclearn.training.prepare import Features, Prepared, required
from xclearn.training.run import Run
from xclearn.training.stage import Stopping

_BAG = "bag"  # the name of the added encoder


def require_hold_out(calibration: Calibration | None, stopping: Stopping | None) -> None:
    """Raise if there are no held-out documents for the calibration."""
    if calibration is not None and stopping is None:
        todo = "Set stopping too: the tree is learnt on its hold-out."
        raise ConfigError("calibration needs held-out documents", where="calibration", todo=todo)


def re_ranked(
    servable: Servable | Ensemble,
    data: Prepared,
    run: Run,
    ranking: SparseRanking | None,
    calibration: Calibration | None,
) -> Servable | Ensemble:
    """The servable, or each member of an ensemble, with re-ranking; unchanged if none is requested."""
    if ranking is None and calibration is None:
        return servable
    members = servable.members if isinstance(servable, Ensemble) else [servable]
    after = _After(data, run, ranking, calibration)
    steps = [after.step(each, f"ranker-{number}") for number, each in enumerate(members)]
    if calibration is not None:
        steps = _of_one_weight(steps, run)
    followed = [
        dataclasses.replace(each, encoders={**each.encoders, **after.encoders}, steps=[*each.steps, step])
        for each, step in zip(members, steps, strict=True)
    ]
    return Ensemble(followed) if isinstance(servable, Ensemble) else followed[0]


@final
@dataclasses.dataclass(frozen=True)
class _After:
    """Builds the re-ranking step of a servable; bags of documents are shared by all members of an ensemble."""

    data: Prepared
    run: Run
    ranking: SparseRanking | None
    calibration: Calibration | None

    @cached_property
    def encoders(self) -> dict[str, Encoder]:
        """The additional encoders of the step: a bag if there is a ranker."""
        if self.ranking is None:
            return {}
        return {_BAG: bag_encoder(self.data.vectoriser, self.data.features, pairs=self.ranking.pairs)}

    @cached_property
    def _bags(self) -> sp.csr_matrix:
        return self.encoders[_BAG].encode(self.data.features)  # (N, V)

    def step(self, servable: Servable, name: str) -> ReRanking:
        """The step, learnt from the servable's predictions."""
        step = ReRanking(min(servable.n_labels, (self.ranking or SparseRanking()).depth), None, None)
        if self.ranking is not None:
            step = dataclasses.replace(step, ranker=self._ranker(servable, self.ranking, step.depth, name))
        if self.calibration is not None:
            step = dataclasses.replace(step, calibration=self._tree(servable, self.calibration, step))
        return step

    def _ranker(self, servable: Servable, settings: SparseRanking, depth: int, name: str) -> SparseRanker:
        """The ranker, learnt on train and the best labels predicted for it."""
        shortlist = _best(servable, self.data.features, depth, self.run).ids
        vector = servable.scorers[0].vector if settings.vector else ""
        vector = "" if isinstance(servable.encoders.get(vector), SparseFeatures) else vector  # the bag itself
        features = ranker_features(self._bags, servable.encoders[vector].encode(self.data.features) if vector else None)
        solver = Solver("squared_hinge", settings.cost, settings.passes, settings.threshold, self.run.seed_of(name))
        parts = []
        for number, problems in enumerate(ranking_problems(shortlist, self.data.relevance)):
            arrays = self.run.keep_all(f"{name}-{number}", partial(solver.train, features, problems))
            parts.append((matrix_of(arrays, features.shape[1]), arrays["bias"]))
        weights, biases = zip(*parts, strict=True)
        return SparseRanker.of(_BAG, vector, sp.vstack(weights, format="csr"), np.concatenate(biases))

    def _tree(self, servable: Servable, settings: Calibration, step: ReRanking) -> CalibrationTree:
        """The calibration, learnt on the held-out documents and their best labels before the step."""
        held_out = self.data.held_out
        features = self.data.held_out_features
        before = _best(servable, features, step.depth, self.run, required(held_out).filter_pairs)
        encoders = {**servable.encoders, **self.encoders}
        _, now = step({name: encoders[name].encode(features) for name in step.reads}, *before)
        relevant = hits(before.ids, required(held_out).relevance)
        # without the hold-out: a label whose only document is held out would otherwise always be wrong
        counts = np.asarray(self.data.relevance.sum(axis=0)).ravel()
        return calibration_tree(settings, before.ids, now, before.scores, relevant, counts)


def _of_one_weight(steps: Sequence[ReRanking], run: Run) -> list[ReRanking]:
    """Use the smallest calibration weight for all, as averaging probabilities with plain scores makes no sense."""
    trees = [step.calibration for step in steps if step.calibration is not None]
    weight = min(tree.weight for tree in trees)
    run.note(calibration_weight=weight)
    alike = [dataclasses.replace(tree, weight=weight) for tree in trees]
    return [dataclasses.replace(step, calibration=tree) for step, tree in zip(steps, alike, strict=True)]


def _best(servable: Servable, features: Features, k: int, run: Run, exclude: np.ndarray = NO_PAIRS) -> TopK:
    """The k best labels of each document (N, k)."""
    form = one_form(servable, run.answers_on)
    return form.rank(features, k, exclude)
