"""`xc train`: from a request to a written, measured model folder."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from xclearn.cli.progress import say, training_view
from xclearn.errors import ConfigError

if TYPE_CHECKING:
    from xclearn.data import Dataset
    from xclearn.training.algorithm import Algorithm

_CONFIG_KEYS = ("algorithm", "data", "settings")


@dataclasses.dataclass(frozen=True)
class Request:
    """What was asked for on the command line."""

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

    @property
    def checkpoint(self) -> Path:
        return self.out.with_name(f"{self.out.name}.checkpoint")


def train_model(request: Request) -> None:
    """Train, measure on test if there is one, write the folder, say what to type next."""
    from xclearn.data import load_dataset

    source, algorithm = read_request(request)
    refuse_occupied(request.out, request.overwrite)
    data = load_dataset(source)
    fit(algorithm, data, request)
    values = measure_and_save(algorithm, data, request)
    if values:
        say("test: " + "  ".join(f"{name} {values[name]:.2f}" for name in ("P@1", "P@3", "P@5", "PSP@5", "R@10")))
    say(f"model: {request.out}")
    say(f"next:  xc predict {request.out} TEXTS.txt   or   xc evaluate {request.out} {source} --bins")


def read_request(request: Request) -> tuple[str, Algorithm]:
    """The data source and the algorithm with its settings, from command line and config file together."""
    from xclearn import algorithms
    from xclearn import config as configuration

    table = configuration.read_toml(request.config) if request.config else {}
    for key in table:
        if key not in _CONFIG_KEYS:
            raise ConfigError("unknown key", where=str(request.config), got=key, allowed=", ".join(_CONFIG_KEYS))
    name, source = request.algorithm or table.get("algorithm", "one_vs_all"), request.data or table.get("data", "")
    if not source:
        raise ConfigError(
            "no data given", where="DATA", todo="Name a folder, a file or a bundled set (`xc data list`)."
        )
    values = configuration.merge(table.get("settings", {}), request.settings)
    return source, configuration.build(algorithms.find(name), values, name)


def refuse_occupied(out: Path, overwrite: bool) -> None:
    """Say before training, not after, that the folder is taken."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())) and not (overwrite and (out / "model.json").is_file()):
        todo = "Choose another -o, or add --overwrite if it holds a model."
        raise ConfigError("the output folder is not empty", where="-o", got=str(out), todo=todo)


def fit(algorithm: Algorithm, data: Dataset, request: Request) -> None:
    """Fit with a checkpoint beside the model folder; Ctrl-C keeps it and says how to go on."""
    with training_view(request.log) as callback:
        try:
            algorithm.fit(
                data,
                device=request.device,
                seed=request.seed,
                checkpoint=request.checkpoint,
                resume=request.resume,
                callback=callback,
            )
        except KeyboardInterrupt:
            say(f"interrupted: the checkpoint is in {request.checkpoint}; run the same command with --resume to go on")
            raise typer.Exit(130) from None


def measure_and_save(algorithm: Algorithm, data: Dataset, request: Request) -> dict[str, Any]:
    """Metrics into the model card, the folder onto disk, the checkpoint away."""
    from xclearn.inference import evaluate
    from xclearn.training.checkpoint import Checkpoint

    values = evaluate(algorithm, data).values if data.test is not None else {}
    if values:
        algorithm.model.about["metrics"] = {"test": values}
    algorithm.save(request.out, replace=request.overwrite)
    Checkpoint(request.checkpoint).remove()
    return values
