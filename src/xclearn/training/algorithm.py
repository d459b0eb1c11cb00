"""The contract of algorithms. An algorithm implements four methods; fitting, resuming, saving and predicting are here.

An algorithm is a final, keyword-only dataclass whose fields are the hyper-parameters; a field at AUTO is chosen from
the data. `fit` changes no field: the model is in `model_`, and the chosen settings in `resolved_`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self, final

import numpy as np

from xclearn import config
from xclearn._version import __version__
from xclearn.data.checks import statistics
from xclearn.data.dataset import Dataset, Documents, LabelSet, Split
from xclearn.data.in_memory import dataset_of
from xclearn.data.shown import html_table
from xclearn.data.splits import fingerprints
from xclearn.data.topk import TopK
from xclearn.errors import ModelError, NotFitted
from xclearn.inference.blend import AnyServable, BlendServable
from xclearn.inference.evaluation import evaluate_and_note, label_counts
from xclearn.inference.folder import Model, load_model, save_model
from xclearn.inference.label_editing import NewLabel, with_labels, without_labels
from xclearn.inference.predictor import Suggestion, suggestions
from xclearn.inference.runner import runner
from xclearn.inference.servable import Ensemble, Servable
from xclearn.inference.text_rows import TextRows
from xclearn.metrics import Report
from xclearn.parts.calibration import Calibration
from xclearn.parts.sparse_ranking import SparseRanking
from xclearn.text import TextSettings
from xclearn.text.documents import as_documents
from xclearn.training.calibrating import calibrated_alone, cut_for_probabilities
from xclearn.training.checkpoint import Checkpoint
from xclearn.training.plan import Plan, available_memory, measured_speed, require_fit
from xclearn.training.prepare import Prepared, Size, prepare
from xclearn.training.progress import progress_shown
from xclearn.training.ranker_training import re_ranked, require_hold_out
from xclearn.training.run import Callback, Run, pick_device
from xclearn.training.sharding import require_alone_or
from xclearn.training.stage import Stage, Stopping
from xclearn.training.unread import refuse_unread

_SMALLER = ("batch_size", "embedding_dim")  # halved in turn when a plan does not fit


@dataclasses.dataclass(kw_only=True)
class Calibrating:
    """The setting shared by all algorithms."""

    calibrate: bool = False  # calibrate scores as probabilities, on a held-out twentieth of train or on the dev split


class View(NamedTuple):
    """An alternative ranking beside the one that an algorithm serves."""

    servable: Servable
    text_rows: TextRows | None  # makes a row from a new label's text


class Algorithm(Calibrating, ABC):
    """Trains a servable from documents and labels."""

    name: ClassVar[str]  # the file's name
    _makes_probabilities: ClassVar[bool] = False  # whether its scores are always calibrated
    vectoriser: TextSettings  # how texts become features
    stopping: Stopping | None  # stop early by a held-out metric
    sparse_ranker: SparseRanking | None = None  # for algorithms with this setting: re-rank the best labels
    calibration: Calibration | None = None  # for algorithms with this setting: calibrate scores on the hold-out

    def __init_subclass__(cls) -> None:
        """Keep our short `__repr__`; a dataclass would show every field."""
        if "__repr__" not in vars(cls):
            setattr(cls, "__repr__", Algorithm.__repr__)  # noqa: B010  (a dataclass keeps what is there)

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self._given().items())
        return f"{type(self).__name__}({given})" + ("" if self._fitted is None else f", fitted: {self._fitted.summary}")

    def _repr_html_(self) -> str:
        state = "not fitted" if self._fitted is None else self._fitted.summary
        return html_table(type(self).__name__, [("state", state), *self._given().items()])

    @final
    def _given(self) -> dict[str, Any]:
        """The settings that differ from their defaults."""
        given = {}
        for field in dataclasses.fields(self):
            factory = field.default_factory
            usual = field.default if factory is dataclasses.MISSING else factory()
            if getattr(self, field.name) != usual:
                given[field.name] = getattr(self, field.name)
        return given

    @property
    def _fitted(self) -> Model | None:
        return getattr(self, "model_", None)

    @abstractmethod
    def _auto(self, size: Size, device: str) -> dict[str, Any]:
        """Values for automatic fields."""

    @abstractmethod
    def _plan(self, size: Size, device: str) -> Plan:
        """The memory and time of training; every field is set."""

    @abstractmethod
    def _stages(self, data: Prepared, run: Run) -> Iterator[Stage]:
        """Yield stages; code after a yield runs once that stage is trained."""

    @abstractmethod
    def _servable(self, data: Prepared) -> AnyServable:
        """The servable of the trained stages."""

    def _unread(self, size: Size, device: str) -> Iterator[tuple[str, str]]:  # noqa: ARG002
        """Settings without effect, with every field set: the change that would make them effective, and their names."""
        yield from ()

    def _shares_rows(self) -> bool:
        """Whether processes can share the label rows (`training/sharding.py`); every field is set."""
        return False

    def _hand_over(self) -> None:
        """Send the first process what this one holds of label rows, where `_servable` gathers them there."""

    def _text_rows(self) -> Sequence[TextRows | None]:
        """How each served member makes a row from a new label's text; empty if none can."""
        return []

    def _views(self, data: Prepared) -> Mapping[str, View]:  # noqa: ARG002
        """Alternative rankings from the same training, by name; a blend uses each as a source of evidence."""
        return {}

    @final
    def fit(
        self,
        data: Any,
        labels: Any = None,
        *,
        device: str = "auto",
        seed: int = 0,
        checkpoint: str | Path | Checkpoint | None = None,
        resume: bool = False,
        callback: Callback | None = None,
    ) -> Self:
        """Train on the train split of a `Dataset`, on texts with their labels, or on a data frame with both.

        `checkpoint` is a folder that stores every epoch; `resume` continues from it. `callback` receives all events of
        training; without one, a terminal or notebook shows a progress bar. If several processes share the label rows,
        only the first one is fitted.
        """
        data = dataset_of(data, labels)
        config.check(self, self.name)
        require_hold_out(self.calibration, self.stopping)
        with progress_shown() if callback is None else contextlib.nullcontext(callback) as told:
            return self._fitted_in(data, Run(pick_device(device), seed, Checkpoint.of(checkpoint), told), resume)

    @final
    def _fitted_in(self, data: Dataset, run: Run, resume: bool) -> Self:
        """`fit` within a run, storing the result."""
        started, place, seed = time.perf_counter(), run.device, run.seed
        learnt_from, held = self._cut(data, seed)
        prepared = prepare(learnt_from, self.vectoriser, self.stopping, seed)
        if prepared.n_cut:
            run.note(texts_cut_at_max_length=prepared.n_cut)
        size = dataclasses.replace(prepared.size, n_processes=run.ranks.count)
        chosen = self._resolve(size, place.type)
        require_alone_or(chosen._shares_rows(), self.name)
        chosen._announce(size, run)
        fingerprint = chosen._fingerprint(data, seed, place.type)
        with run.checkpoint.held():
            run.checkpoint.open(fingerprint, resume=resume, threads=run.threads)
            chosen._train(prepared, run)
            if not run.ranks.is_first:
                chosen._hand_over()
                return self
            rest = run.alone()
            servable = chosen._finished(prepared, rest)
            if chosen.calibrate and not isinstance(servable, BlendServable):
                servable = calibrated_alone(self.name, servable, prepared, held or prepared.held_out, rest)
        about = self._about(chosen, data, run, time.perf_counter() - started) | {"run": fingerprint}
        counts = label_counts(data).astype(np.int32)
        self.model_ = Model(servable, data.labels, about, label_counts=counts, text_rows=chosen._text_rows())
        self.resolved_ = about["resolved"]
        return self

    @final
    def predict(self, documents: Documents, k: int = 5) -> TopK:
        """The k best labels of each document: ids, scores (n, k)."""
        return runner(self.model).predict(as_documents(documents), k)

    @final
    def suggest(self, texts: Sequence[str], k: int = 5, min_score: float = 0.0) -> list[list[Suggestion]]:
        """The same with label names: one list per text, best first."""
        return suggestions(self.model.labels, self.predict(texts, k), min_score)

    @final
    def evaluate(self, data: Any, *, split: str = "test", device: str = "cpu") -> Report:
        """The metrics on a split of a data set, as by `xclearn.evaluate`; `save` writes them into the model card."""
        return evaluate_and_note(self, data, split=split, device=device)

    @final
    def add_labels(self, labels: Sequence[Mapping[str, Any]]) -> Self:
        """Add labels to the model without training, given as records of `label`, `text` and optional `examples`."""
        added = [NewLabel.of(record, f"labels[{i}]") for i, record in enumerate(labels)]
        self.model_ = with_labels(self.model, added)
        return self

    @final
    def remove_labels(self, names: Sequence[str]) -> Self:
        """Remove labels from the model."""
        self.model_ = without_labels(self.model, names)
        return self

    @final
    def save(self, folder: str | Path, *, replace: bool = False) -> None:
        """Write the model folder."""
        save_model(self.model, folder, replace=replace)

    @classmethod
    @final
    def load(cls, folder: str | Path) -> Self:
        """A fitted algorithm from a model folder of the same algorithm."""
        model = load_model(folder)
        found = model.about.get("algorithm")
        if found != cls.name:
            raise ModelError(
                "the model was trained by another algorithm", where=str(folder), got=found, allowed=cls.name
            )
        settings = model.about.get("settings")
        resolved = model.about.get("resolved")
        if not isinstance(settings, dict) or not isinstance(resolved, dict):
            raise ModelError("the model has no record of its training", where=str(folder))
        algorithm = config.build(cls, settings, cls.name)
        algorithm.model_, algorithm.resolved_ = model, resolved
        return algorithm

    @final
    def plan(self, data: Dataset, *, device: str = "auto") -> Plan:
        """The memory and time that `fit` on this data would take."""
        place = pick_device(device)
        size = prepare(self._cut(data, 0)[0], self.vectoriser, self.stopping, 0).size
        return self._resolve(size, place.type)._plan(size, place.type)

    @property
    @final
    def model(self) -> Model:
        """The servable, labels and facts from `fit` or `load`."""
        model = self._fitted
        if model is None:
            raise NotFitted(f"{type(self).__name__} has not been fitted", todo="Call fit(data) first, or load a model.")
        return model

    @property
    @final
    def labels(self) -> LabelSet:
        """The labels that the model knows, as those of a loaded one."""
        return self.model.labels

    @property
    @final
    def about(self) -> dict[str, Any]:
        """What training recorded, as that of a loaded one."""
        return self.model.about

    @final
    def _cut(self, data: Dataset, seed: int) -> tuple[Dataset, Split | None]:
        """The training data, and documents to calibrate on; with `stopping`, its hold-out is used."""
        alone = self.calibrate and self.stopping is None and not self._makes_probabilities
        return cut_for_probabilities(data, seed) if alone else (data, None)

    @final
    def _resolve(self, size: Size, device: str) -> Self:
        """A copy with every automatic field set."""
        given = config.check(self, self.name)
        chosen = config.resolve(given, given._auto(size, device))
        refuse_unread(given, chosen._unread(size, device))
        return chosen

    @final
    def _announce(self, size: Size, run: Run) -> None:
        """Log the plan, or raise with a setting that would fit into memory."""
        kind = run.device.type
        plan = self._plan(size, kind)
        available = available_memory(run.device) // (run.ranks.n_here if kind == "cpu" else 1)
        require_fit(plan, available, lambda: self._alternatives(size, kind))
        run.log("plan", algorithm=self.name, **plan.facts(measured_speed(run.device)))

    @final
    def _alternatives(self, size: Size, device: str) -> list[tuple[str, Plan]]:
        plans = []
        for name in _SMALLER:
            value = getattr(self, name, None) or 0
            while value >= 2:
                value //= 2
                smaller = dataclasses.replace(self, **{name: value})  # type: ignore[arg-type]
                plans.append((f"{name} = {value}", smaller._plan(size, device)))
        return plans

    @final
    def _train(self, data: Prepared, run: Run) -> None:
        with run.fast_products():
            for stage in self._stages(data, run):
                from xclearn.training.loop import train  # needs torch; linear models yield no stage

                train(stage, run)
                del stage  # frees its optimisers before the next stage or the model is built

    @final
    def _finished(self, data: Prepared, run: Run) -> AnyServable:
        """The servable of the trained stages, with re-ranking if requested."""
        servable = self._servable(data)
        if isinstance(servable, BlendServable):  # a blend has neither setting
            return servable
        return re_ranked(servable, data, run, self.sparse_ranker, self.calibration)

    @final
    def _fingerprint(self, data: Dataset, seed: int, device: str) -> str:
        """A hash of the run: settings, seed, kind of device, and all data that training reads."""
        settings = [self.name, config.to_plain(self), seed, device, data.propensity]
        digest = hashlib.sha256(json.dumps(settings).encode())
        texts = [data.labels.names, data.labels.texts]
        for split in [data.train] if data.dev is None else [data.train, data.dev]:
            for array in (split.relevance.indptr, split.relevance.indices, split.filter_pairs):
                digest.update(array.tobytes())
            texts += [split.documents, split.names]
        for documents in texts:
            digest.update(b"none" if documents is None else fingerprints(documents).tobytes())
        return digest.hexdigest()

    @final
    def _about(self, chosen: Algorithm, data: Dataset, run: Run, seconds: float) -> dict[str, Any]:
        plain, resolved = config.to_plain(self), config.to_plain(chosen)
        threads = {} if run.threads is None else {"threads": run.threads}
        processes = {} if run.ranks.count == 1 else {"processes": run.ranks.count}
        training = {"seed": run.seed, "device": run.device.type, **threads, **processes, "seconds": round(seconds, 1)}
        return {
            "xclearn": __version__,
            "algorithm": self.name,
            "settings": plain,
            "resolved": {name: value for name, value in resolved.items() if plain[name] != value},
            "data": {"name": data.name, **statistics(data)},
            "training": training | run.noted,
        }


def together(members: Sequence[Servable]) -> Servable | Ensemble:
    """The ensemble of these members, or the only member itself."""
    return members[0] if len(members) == 1 else Ensemble(list(members))
