"""Hyper-parameter search by Optuna, with trials on held-out documents of train; test is never used.

The search space of a setting is declared beside it (`config.Span`). Trials are pruned if their score after an epoch is
below the median of earlier trials. The study is stored in one file, from which the same call continues. Needs the extra
`[tune]`.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, final, get_args

from xclearn import algorithms, config
from xclearn.config import Span
from xclearn.data.dataset import Dataset
from xclearn.data.splits import fingerprints, parted
from xclearn.errors import ConfigError, DataError, XclearnError
from xclearn.extras import require
from xclearn.inference.evaluation import evaluate
from xclearn.training.prepare import usable_label_texts
from xclearn.training.stage import Metric
from xclearn.writing import locked

if TYPE_CHECKING:
    import optuna

    from xclearn.training.algorithm import Algorithm

HELD_OUT, MOST_HELD_OUT = 0.1, 5_000  # share of train, and maximum documents, if there is no dev split
_FIRST_TRIALS = 4  # never pruned, to have a median
_FIRST_EPOCHS = 1  # epochs of a trial before it may be pruned
_NO_END = 1_000  # patience in epochs: trials are pruned by comparison instead

Watch = Callable[[str, Mapping[str, Any]], AbstractContextManager[Callable[[Mapping[str, Any]], None]]]


@final
@dataclass(frozen=True)
class TuningTask:
    """What to tune, and how to evaluate trials."""

    algorithm: str
    fixed: Mapping[str, Any]  # settings that are not searched
    metric: str
    seed: int
    device: str


@final
@dataclass(frozen=True)
class Trial:
    """One trial; the first, number −1, has the default settings."""

    number: int
    state: str  # complete, pruned or failed
    score: float | None
    settings: Mapping[str, Any]
    seconds: float


def spaces_of(request: TuningTask, data: Dataset) -> dict[str, Span]:
    """Setting → search space, without fixed settings and those without effect on this data."""
    found = config.search_spaces(algorithms.find(request.algorithm))
    with_texts = usable_label_texts(data) is not None
    spaces = {
        name: space
        for name, space in found.items()
        if name not in request.fixed and (with_texts or not space.of_label_texts)
    }
    if not spaces:
        todo = "Do not fix all settings; `xc algorithms NAME` lists them."
        raise ConfigError("there is nothing to search", where="--algorithm", got=request.algorithm, todo=todo)
    return spaces


def held_out(data: Dataset, seed: int = 0) -> Dataset:
    """The data without test, with a dev split for trials; without one, part of train without near-duplicates."""
    if data.dev is not None:
        return replace(data, test=None)
    train, held = parted(data, HELD_OUT, most=MOST_HELD_OUT, seed=seed)
    if not len(held):
        raise DataError("too few documents to hold some out", where=data.name, got=len(data.train))
    return replace(data, train=train, dev=held, test=None)


def tune(
    request: TuningTask, data: Dataset, study_file: Path, n_trials: int, watch: Watch = lambda *_: nullcontext(_ignore)
) -> list[Trial]:
    """All trials after this call, the one with default settings first."""
    require("optuna", "xc tune")
    if request.metric not in get_args(Metric):
        allowed = ", ".join(get_args(Metric))
        raise ConfigError("no such metric", where="--metric", got=request.metric, allowed=allowed)
    spaces = spaces_of(request, data)
    with locked(study_file.with_name(f"{study_file.name}.lock")) as alone:
        if not alone:
            raise ConfigError("another process works on this study", where=str(study_file))
        study = _study(request, data, study_file, spaces)
        return _Tuning(request, spaces, held_out(data), study, watch).trials(n_trials)


def best_of(trials: list[Trial]) -> Trial:
    """The complete trial with the highest score, ties by order."""
    complete = [trial for trial in trials if trial.state == "complete" and trial.score is not None]
    if not complete:
        raise ConfigError("no trial finished", got=len(trials), todo="Try fewer or smaller settings.")
    return max(complete, key=lambda trial: (trial.score or 0.0, -trial.number))


def settings_of(request: TuningTask) -> dict[str, Any]:
    """The fixed settings of every trial, including held-out scores after each epoch if useful."""
    kind = algorithms.find(request.algorithm)
    scored = "stopping" in {field.name for field in fields(kind)} and "members" not in {f.name for f in fields(kind)}
    if not scored or "stopping" in request.fixed:  # `stopping` of a blend also changes its stacker's data
        return dict(request.fixed)
    return {**request.fixed, "stopping": {"metric": request.metric, "patience": _NO_END}}


@final
class _Tuning:
    """The trials of one call."""

    def __init__(
        self, request: TuningTask, spaces: Mapping[str, Span], data: Dataset, study: optuna.Study, watch: Watch
    ) -> None:
        self._request, self._spaces, self._data = request, spaces, data
        self._study, self._watch = study, watch
        self._settings = settings_of(request)

    def trials(self, n_trials: int) -> list[Trial]:
        """Run until this many trials have finished, besides the default."""
        import optuna

        if "defaults" not in self._study.user_attrs:
            started = time.perf_counter()
            score = self._measured("defaults", {}, _ignore)
            self._study.set_user_attr("defaults", [score, time.perf_counter() - started])
        while (number := len([one for one in self._study.trials if one.state.is_finished()])) < n_trials:
            # reseeded for each trial, so that an interrupted search continues the same way
            self._study.sampler = optuna.samplers.TPESampler(seed=self._request.seed + number)
            self._study.optimize(self._objective, n_trials=1, catch=(XclearnError,))
        finished = [one for one in self._study.trials if one.state.is_finished()]
        if all(one.state.name == "FAIL" for one in finished):
            reason = finished[-1].user_attrs.get("reason", "") if finished else ""
            todo = f"The last one: {reason}"
            raise ConfigError("every trial failed", where=self._request.algorithm, got=len(finished), todo=todo)
        return self._all()

    def _objective(self, trial: optuna.Trial) -> float:
        import optuna

        chosen = {name: _suggested(trial, name, space) for name, space in self._spaces.items()}
        steps = count()

        def end_if_behind(event: Mapping[str, Any]) -> None:
            if event["event"] == "epoch" and event["score"] is not None:
                trial.report(event["score"], next(steps))
                if trial.should_prune():
                    raise optuna.TrialPruned

        try:
            return self._measured(f"trial {trial.number}", chosen, end_if_behind)
        except XclearnError as error:
            trial.set_user_attr("reason", str(error))
            raise

    def _built(self, chosen: Mapping[str, Any]) -> Algorithm:
        kind = algorithms.find(self._request.algorithm)
        return config.build(kind, {**self._settings, **chosen}, self._request.algorithm)

    def _measured(self, name: str, chosen: Mapping[str, Any], also: Callable[[Mapping[str, Any]], None]) -> float:
        with self._watch(name, chosen) as tell:

            def handle(event: Mapping[str, Any]) -> None:
                tell(event)
                also(event)

            try:
                algorithm = self._built(chosen)
                algorithm.fit(self._data, device=self._request.device, seed=self._request.seed, callback=handle)
                values = evaluate(algorithm, self._data, split="dev", device=self._request.device).values
            except XclearnError as error:
                tell({"event": "failed", "reason": str(error)})
                raise
            tell({"event": "measured", **values})
        return values[self._request.metric]

    def _all(self) -> list[Trial]:
        score, seconds = self._study.user_attrs["defaults"]
        found = [Trial(-1, "complete", score, {}, seconds)]
        for one in self._study.trials:
            if not one.state.is_finished():
                continue
            state = {"FAIL": "failed"}.get(one.state.name, one.state.name.lower())
            value = one.value if state == "complete" else None
            took = one.duration.total_seconds() if one.duration else 0.0
            found.append(Trial(one.number, state, value, one.params, took))
        return found


def _study(request: TuningTask, data: Dataset, file: Path, spaces: Mapping[str, Span]) -> optuna.Study:
    """The study in the file, created if missing; raises if it belongs to another request."""
    import optuna
    from optuna.trial import TrialState

    optuna.logging.set_verbosity(optuna.logging.ERROR)  # failed trials are reported in one sentence
    pruner = optuna.pruners.MedianPruner(_FIRST_TRIALS, _FIRST_EPOCHS)
    study = optuna.create_study(
        storage=f"sqlite:///{file.resolve()}",
        study_name="xclearn",
        direction="maximize",
        pruner=pruner,
        load_if_exists=True,
    )
    fingerprint = _fingerprint(request, data, spaces)
    if study.user_attrs.get("fingerprint", fingerprint) != fingerprint:
        todo = "Choose another -o, or remove the file."
        raise ConfigError("the study has other data, settings or search spaces", where=str(file), todo=todo)
    study.set_user_attr("fingerprint", fingerprint)
    for interrupted in study.get_trials(states=[TrialState.RUNNING]):
        study.tell(interrupted.number, state=TrialState.FAIL)
        study.enqueue_trial(interrupted.params)
    return study


def _fingerprint(request: TuningTask, data: Dataset, spaces: Mapping[str, Span]) -> str:
    asked = [request.algorithm, request.fixed, request.metric, request.seed, {n: str(s) for n, s in spaces.items()}]
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode())
    for part in [data.train] if data.dev is None else [data.train, data.dev]:
        digest.update(fingerprints(part.documents).tobytes())
        digest.update(part.relevance.indices.tobytes())
    return digest.hexdigest()


def _suggested(trial: optuna.Trial, name: str, space: Span) -> Any:
    if space.choices:
        return trial.suggest_categorical(name, list(space.choices))
    if isinstance(space.low, int):
        return trial.suggest_int(name, space.low, int(space.high), log=space.log)
    return trial.suggest_float(name, space.low, space.high, log=space.log)


def _ignore(_: Mapping[str, Any]) -> None:
    """Ignore an event."""
