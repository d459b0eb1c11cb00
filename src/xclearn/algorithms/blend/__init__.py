"""Blends several algorithms, label texts and a memory of train by a stacker that gives calibrated probabilities.

Members are trained without some held-out documents. Every source lists its best labels for these, and a stacker
(logistic regression or boosted trees) learns from the sources' evidence whether a label is correct: stacked
generalisation after Wolpert (1992), with gradient boosting as in most winning stacks since. Then the members are
trained again on all of train, and the stacker is kept. Scores are probabilities, by isotonic regression on the held-out
documents.

Near-duplicates are held out together, so that a memory is not evaluated on copies. Small sets use several folds, each
held out once. The stack is used only if it beats the best member by two standard errors; members without which it ranks
as well are dropped.

Good for: the best accuracy without choosing an algorithm, and scores that are probabilities.
Cost: the training of all its members; minutes on two cores.
"""

from __future__ import annotations

import shlex
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, ClassVar, Literal, final

import numpy as np
import scipy.sparse as sp

from xclearn import algorithms, config
from xclearn.algorithms.blend.choice import usual_cut, usual_members
from xclearn.algorithms.blend.sources import centroid_rows, heavy_rows, label_text_rows, memory_of
from xclearn.config import AUTO, Auto, Count, Rate, Share, Span
from xclearn.data.dataset import Dataset, Split, kind_of
from xclearn.data.splits import FEWEST, hold_outs
from xclearn.errors import ConfigError
from xclearn.extras import is_installed
from xclearn.inference.blend import COLUMNS, BlendServable, Sources, servables_of
from xclearn.inference.servable import Ensemble, Servable
from xclearn.inference.text_rows import TextRows
from xclearn.parts.held_out import HeldOut, judged, together
from xclearn.parts.probabilities import Judged, best_tail
from xclearn.parts.stacking import KINDS, Learnt, StackerKind, dispensed, is_ahead, learn, only, single, unlearnt
from xclearn.text import WordPiece, Words
from xclearn.text.encoder_folders import MINILM
from xclearn.training.algorithm import Algorithm
from xclearn.training.calibrating import propensity_weights, with_probabilities
from xclearn.training.member import Member
from xclearn.training.plan import Plan
from xclearn.training.prepare import Prepared, Size, prepare
from xclearn.training.run import Run
from xclearn.training.stage import Stage, Stopping
from xclearn.training.unread import with_own_epochs


@final
@dataclass(kw_only=True)
class Blend(Algorithm):
    """A stacker over several algorithms, label texts and a memory of train."""

    name: ClassVar[str] = "blend"
    _makes_probabilities: ClassVar[bool] = True

    vectoriser: Words | WordPiece = field(default_factory=Words)  # how texts become tokens, except in members
    members: Auto[tuple[str, ...]] = AUTO  # names of algorithms, each followed by its settings: "decaf dropout=0.5"
    time_budget: Rate = 10.0  # minutes of training allowed by the plan, for a slow ordinary machine
    epochs: Auto[Count] = AUTO  # epochs of every stage of the members; auto: their own, or fewer to meet time_budget
    folds: Auto[Count] = AUTO  # parts held out in turn; auto: 1, more for small sets
    hold_out: Auto[Count] = AUTO  # held-out documents in total, to train the stacker; auto: by the size of train
    encoder: str | None = MINILM  # pretrained encoder for members on a GPU: minilm or a folder; none: do not use one
    memory: bool = True  # use the nearest training documents; the model then contains the words of train
    depth: Annotated[Count, Span(20, 120, log=True)] = 60  # labels listed by each source
    stacker: Auto[Literal["linear", "trees", "both"]] = AUTO  # auto: the best one by cross-fit
    refit: Auto[bool] = AUTO  # retrain the members on all of train; auto: unless `stopping` is set
    tail: Auto[Share] = AUTO  # exponent that favours rare labels; auto: if a member would find more of them
    stopping: Stopping | None = None  # stop members early by this metric on the stacker's held-out documents

    def _auto(self, size: Size, device: str) -> dict[str, Any]:
        refit = self.stopping is None if self.refit is AUTO else self.refit
        wanted = None if refit else 1  # the members of the last fold are served
        folds, held = usual_cut(size, wanted if self.folds is AUTO else self.folds)
        return {
            "members": usual_members(size, device, self.time_budget, folds + refit, self.encoder),
            "folds": folds,
            "hold_out": held,
            "refit": refit,
        }

    def _unread(self, size: Size, device: str) -> Iterator[tuple[str, str]]:  # noqa: ARG002
        if size.n_dev:
            yield "remove the dev split from the data", "folds hold_out"

    def _plan(self, size: Size, device: str) -> Plan:
        members = self._members(size, device)
        plans = [_plan_of(member, size, device) for member in members.values()]
        stages = tuple(
            replace(stage, name=f"{name}-{stage.name}")
            for name, plan in zip(members, plans, strict=True)
            for stage in plan.stages
        )
        kept = 16 * size.n_feature_entries if self.memory else 0
        return Plan(device=device, data=max(plan.data for plan in plans) + kept, stages=stages)

    def _stages(self, data: Prepared, run: Run) -> Iterator[Stage]:
        source = data.source
        assert source is not None
        whole = replace(source, dev=None, test=None)
        cuts = self._cuts(data, source, run.seed)
        members, found = self._members(data.size, run.device.type), []
        self.text_rows_: dict[str, Sequence[TextRows | None]] = {}
        if not is_installed("torch"):
            run.note(members="linear only; pip install 'xclearn[deep]' adds neural members")
        for fold, (train, held) in enumerate(cuts):
            sources = yield from self._sources(members, replace(whole, train=train), held, run, f"fold{fold}")
            found.append(judged(sources, held, run.answers_on))
            run.log("step", stage="hold-out", step=fold + 1, steps=len(cuts))
        judgement = together(found, run.seed_of("halves")) if found else None
        if judgement is None or not judgement.right.any():
            members = dict(list(members.items())[:1])
            run.note(stacker=f"none: too few documents to hold some out, {next(iter(members))} alone")
            sources = yield from self._sources(members, whole, None, run, "all")
            self.served_ = BlendServable(sources, *unlearnt(len(sources.value_names)))
            return
        learnt, kept, singles = self._learn(judgement, sources, run)
        if self.refit:
            needed = {name: each for name, each in members.items() if any(_is_of(view, name) for view in kept)}
            sources = yield from self._sources(needed, whole, None, run, "all")
        sources = replace(sources, members={name: sources.members[name] for name in kept})
        weights = propensity_weights(sources.counts, data)
        tail = self.tail if self.tail is not AUTO else best_tail(learnt.judged, singles, weights)
        self.served_ = with_probabilities(sources, learnt, weights, tail, run)

    def _servable(self, data: Prepared) -> BlendServable:  # noqa: ARG002
        return self.served_

    def _text_rows(self) -> list[TextRows | None]:
        return [rows for name in self.served_.sources.members for rows in self.text_rows_[name]]

    def _members(self, size: Size, device: str) -> dict[str, Algorithm]:
        """Members by name, with their settings; repeated names get a number.

        Epochs are derived from all of train, so that they are the same in folds and in the refit.
        """
        found: dict[str, Algorithm] = {}
        for wanted in self.members:
            name, *assignments = shlex.split(wanted)
            cls = algorithms.find(name)
            settings = config.merge({}, assignments)
            if self.epochs is not AUTO:
                settings = dict.fromkeys(_epochs_of(cls), self.epochs) | settings
            if self.stopping is not None:
                settings = {"stopping": config.to_plain(self.stopping)} | settings
            label = name if name not in found else f"{name} {len(found) + 1}"
            member = with_own_epochs(config.build(cls, settings, f"members.{name}"), size, device)
            resolved = member._resolve(size, device)
            decided: Any = {each: getattr(resolved, each) for each in _epochs_of(cls)}
            found[label] = with_own_epochs(replace(member, **decided), size, device)
        return found

    def _cuts(self, data: Prepared, source: Dataset, seed: int) -> list[tuple[Split, Split]]:
        """The dev split if there is one, else parts of train."""
        if source.dev is not None:
            return [(source.train, source.dev)]
        if len(source.train) >= FEWEST and self.hold_out >= self.folds * len(source.train):
            what = "no documents would be left to train on"
            todo = "Hold out fewer, or set more folds."
            raise ConfigError(what, where=f"{self.name}.hold_out", got=self.hold_out, todo=todo)
        features = data.features if self.stopping is None else data.vectoriser.transform(source.train.documents)
        rows = heavy_rows(features) if sp.issparse(features) else None
        return hold_outs(source, rows, folds=self.folds, most=self.hold_out, seed=seed)

    def _sources(
        self, wanted: dict[str, Algorithm], data: Dataset, held: Split | None, run: Run, part: str
    ) -> Generator[Stage, None, Sources]:
        """Members trained on `data.train`, and the other sources of evidence from it."""
        members: dict[str, Servable | Ensemble] = {}
        prepared: dict[str, Prepared] = {}
        for name, algorithm in wanted.items():
            reading = repr(algorithm.vectoriser)
            if reading not in prepared:
                prepared[reading] = prepare(data, algorithm.vectoriser, None, run.seed)
            own = prepared[reading]
            if held is None:  # nothing to stop on
                algorithm = replace(algorithm, stopping=None)  # type: ignore[call-arg]
            elif algorithm.stopping is not None:
                own = replace(own, held_out=held, held_out_features=own.vectoriser.transform(held.documents))
            member = Member(f"{part}-{name.replace(' ', '')}", algorithm, own, run)
            yield from member.stages()
            members[name] = member.servable()
            self.text_rows_[name] = member.algorithm._text_rows() or [None] * len(servables_of(members[name]))
            for view, (servable, rows) in member.algorithm._views(own).items():
                members[f"{name}: {view}"] = servable
                self.text_rows_[f"{name}: {view}"] = [rows]
            del member
        return self._with_parts(members, prepared.get(repr(self.vectoriser)), data, run)

    def _with_parts(
        self, members: dict[str, Servable | Ensemble], prepared: Prepared | None, data: Dataset, run: Run
    ) -> Sources:
        whole = prepared or prepare(data, self.vectoriser, None, run.seed)
        texts = centroids = memory = None
        if kind_of(data.train.documents) != "dense features":
            rows = heavy_rows(whole.features)
            centroids = centroid_rows(rows, data.train.relevance)
            memory = memory_of(rows, data.train) if self.memory else None
            texts = None if whole.label_features is None else label_text_rows(whole.label_features)
        counts = np.asarray(data.train.relevance.sum(axis=0), dtype=np.float32).ravel()
        return Sources(whole.vectoriser, members, texts, centroids, memory, counts, self.depth, everywhere=True)

    def _learn(self, held: HeldOut, sources: Sources, run: Run) -> tuple[Learnt, list[str], list[Judged]]:
        """The best stacker, or the best member if none wins; the members it needs; and every member's own results."""
        alone = {name: single(held, COLUMNS * place) for place, name in enumerate(sources.lists)}
        singles = [alone[name].judged for name in sources.members]
        best = max(sources.members, key=lambda name: float(alone[name].gains.mean()))
        needed, linear, kept = dispensed(held, list(sources.members), best)
        for name in sources.members.keys() - kept:
            run.note(**{f"dropped {name}": "the others rank as well without it"})
        stacks: dict[StackerKind, Learnt] = {"linear": linear}
        kinds: Sequence[StackerKind] = KINDS if self.stacker is AUTO else [self.stacker]
        for kind in kinds:
            stacks[kind] = stacks.get(kind) or learn(needed, kind)
        said = {f"{name} alone": one for name, one in alone.items()}
        said |= {f"{kind} stack": one for kind, one in stacks.items()}
        run.note(**{f"hold-out: {name}": round(100 * float(one.gains.mean()), 2) for name, one in said.items()})
        kind = max(kinds, key=lambda kind: float(stacks[kind].gains.mean()))
        chosen = stacks[kind]
        if is_ahead(chosen, alone[best]):
            run.note(stacker=kind)
            return chosen, kept, singles
        chosen = single(only(held, list(sources.members), best), 0)
        run.note(stacker=f"none: {best} alone")
        return chosen, [best], singles


def _plan_of(member: Algorithm, size: Size, device: str) -> Plan:
    own = size.read_by(member.vectoriser)
    return member._resolve(own, device)._plan(own, device)


def _is_of(view: str, member: str) -> bool:
    """Whether a list of labels is the member's or one of its other views."""
    return view == member or view.startswith(f"{member}: ")


def _epochs_of(cls: type[Algorithm]) -> list[str]:
    return [each.name for each in fields(cls) if each.name.endswith("epochs")]
