"""`xc train`: trains a model, evaluates it and writes its folder."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer

from xclearn import algorithms
from xclearn.cli.progress import Handler, say, training_view
from xclearn.cli.reading import read_data, warn
from xclearn.data.columns import USUAL, Reading
from xclearn.errors import ConfigError, nearest
from xclearn.writing import remove_leftovers

if TYPE_CHECKING:
    from xclearn.data import Dataset
    from xclearn.parts.ranks import Ranks
    from xclearn.training.algorithm import Algorithm
    from xclearn.training.checkpoint import Checkpoint

DEFAULT = "blend"  # the default algorithm
_CONFIG: dict[str, type] = {"algorithm": str, "data": str, "settings": dict}


@dataclasses.dataclass(frozen=True)
class Request:
    """Options from the command line."""

    data: str
    algorithm: str
    out: Path
    settings: tuple[str, ...] = ()
    config: Path | None = None
    device: str = "auto"
    seed: int = 0
    resume: bool = False
    overwrite: bool = False
    log: Path | None = None
    keep_texts: bool = False
    reading: Reading = USUAL
    test_share: float | None = None
    purpose: str = ""
    track: str = ""  # where to track the run
    time_budget: float | None = None  # minutes; shorthand for the setting of this name

    @property
    def checkpoint(self) -> Path:
        out = self.out if self.out.name else self.out.resolve()  # "." has no name
        return out.with_name(f"{out.name}.checkpoint")


def train_model(request: Request) -> None:
    """Train, evaluate, write; Ctrl-C keeps the checkpoint, says how to continue, and exits with 130."""
    from xclearn.training.sharding import job

    try:
        with job() as ranks:
            if ranks.is_first:
                _train(request, ranks)
            else:
                _join(request, ranks)
    except KeyboardInterrupt:
        if request.checkpoint.is_dir():
            say(f"interrupted: the checkpoint is in {request.checkpoint}; continue by the same command with --resume")
        else:
            say("interrupted before the first checkpoint: run the same command again")
        raise typer.Exit(130) from None


def _train(request: Request, ranks: Ranks) -> None:
    from xclearn.data.checks import missed_separator
    from xclearn.training.checkpoint import Checkpoint

    source, algorithm = read_request(request)
    if not ranks.by_first(lambda: _is_to_do(request)):
        return
    data = _read(source, request)
    say(describe(data))
    warn(missed_separator(data))
    if request.keep_texts and not isinstance(data.train.documents, Sequence):
        raise ConfigError("only texts can be kept", where="--keep-texts", got="features")
    checkpoint = Checkpoint(request.checkpoint, replace=request.overwrite)
    # held until the model is written, so that no other run removes it
    with checkpoint.held(), _tracked(request, algorithm) as track:
        fit(algorithm, data, request, checkpoint, *track)
        values = measure_and_save(algorithm, data, request)
        for tell in track:
            tell({"event": "measured", **values})
        checkpoint.remove()
    measured = "" if request.test_share is not None else shlex.join([source, *request.reading.flags()])
    _say_what_next(values, shlex.quote(str(request.out)), measured)


def _join(request: Request, ranks: Ranks) -> None:
    """Take part in training; only the first process prints and writes."""
    source, algorithm = read_request(request)
    if ranks.by_first(lambda: True):
        data, checkpoint = _read(source, request), request.checkpoint
        algorithm.fit(data, device=request.device, seed=request.seed, checkpoint=checkpoint, resume=request.resume)


def _is_to_do(request: Request) -> bool:
    """Whether the model is still to be trained; removes leftovers, and raises if something is in the way."""
    for path in (request.out, request.checkpoint):
        remove_leftovers(path)
    if request.resume and not request.overwrite and _was_finished(request):
        return False
    refuse_occupied(request.out, request.overwrite)
    return True


def _read(source: str, request: Request) -> Dataset:
    from xclearn.data.splits import with_test

    data = read_data(source, request.reading)
    return data if request.test_share is None else with_test(data, request.test_share)


def _was_finished(request: Request) -> bool:
    """Whether the run to resume had already written its model when it was killed; removes its checkpoint."""
    from xclearn.inference import load_model
    from xclearn.training.checkpoint import Checkpoint

    checkpoint = Checkpoint(request.checkpoint)
    if not (request.out / "model.json").is_file() or not request.checkpoint.is_dir():
        return False
    with checkpoint.held():
        if load_model(request.out).about.get("run") != checkpoint.fingerprint():
            return False
        checkpoint.remove()
    say(f"model: {request.out} (already written by the interrupted run)")
    return True


def read_request(request: Request) -> tuple[str, Algorithm]:
    """The data source and the configured algorithm, from the command line and the config file."""
    from xclearn import config as configuration

    table = _read_config(request.config) if request.config else {}
    name = request.algorithm or table.get("algorithm", DEFAULT)
    source = request.data or table.get("data", "")
    if not source:
        raise ConfigError(
            "no data given", where="DATA", todo="Give a folder, a file or a bundled set (`xc data list`)."
        )
    values = configuration.merge(table.get("settings", {}), request.settings)
    if request.time_budget is not None:
        values = values | {"time_budget": _minutes(request, name, values)}
    return source, configuration.build(algorithms.find(name), values, name)


def _minutes(request: Request, name: str, values: Mapping[str, Any]) -> float:
    """The minutes of `--time-budget`; raises if the algorithm has no such setting or `--set` gives it too."""
    known = {field.name for field in dataclasses.fields(algorithms.find(name))}
    if "time_budget" not in known:
        what = "the algorithm has no time budget"
        todo = "Leave it out, or train blend."
        raise ConfigError(what, where="--time-budget", got=name, todo=todo)
    if any(each.startswith("time_budget=") for each in request.settings):
        what = "the time budget is given twice"
        raise ConfigError(what, where="--time-budget", got=values["time_budget"], todo="Give one of them.")
    assert request.time_budget is not None
    return request.time_budget


def _read_config(path: Path) -> dict[str, Any]:
    from xclearn.config import read_toml

    table = read_toml(path)
    for key, value in table.items():
        if key not in _CONFIG:
            raise ConfigError("unknown key", where=str(path), got=key, todo=nearest(key, _CONFIG))
        if not isinstance(value, _CONFIG[key]):
            allowed = "a table" if _CONFIG[key] is dict else "a text"
            raise ConfigError(f"wrong type of '{key}'", where=str(path), got=value, allowed=allowed)
    return table


def refuse_occupied(out: Path, overwrite: bool) -> None:
    """Raise before training, not after, if the folder is taken."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not (out / "model.json").is_file():
        todo = "Choose another -o."
        raise ConfigError("something other than a model is in the way", where="-o", got=str(out), todo=todo)
    if not overwrite:
        todo = "Choose another -o, or give `xc train` --overwrite to replace it."
        raise ConfigError("there is already a model", where="-o", got=str(out), todo=todo)


def describe(data: Dataset) -> str:
    """One line about the data."""
    sizes = ", ".join(f"{len(split):,} {name}" for name, split in data.splits.items())
    return f"data: {data.name}, {data.n_labels:,} labels, documents: {sizes}"


@contextlib.contextmanager
def _tracked(request: Request, algorithm: Algorithm) -> Iterator[list[Handler]]:
    """The handlers of training events for `--track`, if given."""
    if not request.track:
        yield []
        return
    from xclearn.config import to_plain
    from xclearn.integrations.tracking import tracking

    with tracking(request.track, request.out.resolve().name, to_plain(algorithm)) as tracker:
        yield [tracker]


def fit(
    algorithm: Algorithm, data: Dataset, request: Request, checkpoint: Checkpoint | None = None, *also: Handler
) -> None:
    """Fit with progress shown."""
    with training_view(request.log, *also) as callback:
        algorithm.fit(
            data,
            device=request.device,
            seed=request.seed,
            checkpoint=checkpoint,
            resume=request.resume,
            callback=callback,
        )


def measure_and_save(algorithm: Algorithm, data: Dataset, request: Request) -> dict[str, Any]:
    """Evaluate, record metrics and bins in the model card, and write the folder."""
    from xclearn.inference.train_texts import TrainTexts

    values: dict[str, Any] = {}
    if data.test is not None:
        values = algorithm.evaluate(data, device="cpu" if request.device == "cpu" else "auto").values
    if request.purpose:
        algorithm.model.about["purpose"] = request.purpose
    if request.keep_texts:
        texts = TrainTexts.of(cast(Sequence[str], data.train.documents), data.train.relevance)
        algorithm.model_ = dataclasses.replace(algorithm.model, train_texts=texts)
    algorithm.save(request.out, replace=request.overwrite)
    return values


def _say_what_next(values: dict[str, Any], out: str, source: str) -> None:
    if values:
        say("test: " + "  ".join(f"{name} {values[name]:.2f}" for name in ("P@1", "P@3", "P@5", "PSP@5", "R@10")))
    say(f"model: {out}")
    say(
        f"next:  xc predict {out} TEXTS.txt"
        + (f"   or   xc evaluate {out} {source} --bins" if values and source else "")
    )
