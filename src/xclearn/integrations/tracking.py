"""Tracks training in TensorBoard or MLflow: losses, scores, settings, metrics. Needs the extra `[track]`."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, final

from xclearn.errors import ConfigError, nearest
from xclearn.extras import require

_FOLLOWED = ("loss", "score", "items_per_second")  # tracked values of an epoch


class Tracker(ABC):
    """Records the events of one training run."""

    def __call__(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "epoch":
            for name in _FOLLOWED:
                if event[name] is not None:
                    self.number(f"{event['stage']}/{name}", float(event[name]), event["epoch"])
        elif event["event"] == "measured":
            for name, value in event.items():
                if name != "event":
                    self.number(f"measured/{name}", float(value), 0)

    @abstractmethod
    def number(self, name: str, value: float, step: int) -> None:
        """A point of a curve."""

    @abstractmethod
    def settings(self, values: Mapping[str, Any]) -> None:
        """Record the settings of the run."""


@contextlib.contextmanager
def tracking(target: str, run: str, settings: Mapping[str, Any]) -> Iterator[Tracker]:
    """A tracker for `tensorboard[:FOLDER]` or `mlflow[:ADDRESS]`, with the name of the run."""
    kind, _, place = target.partition(":")
    if kind not in _KINDS:
        raise ConfigError("unknown tracker", where="--track", got=kind, todo=nearest(kind, _KINDS))
    require(kind, f"--track {kind}")
    with _KINDS[kind](place, run) as tracker:
        tracker.settings(settings)
        yield tracker


@final
class _TensorBoard(Tracker):
    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def number(self, name: str, value: float, step: int) -> None:
        self._writer.add_scalar(name, value, step)

    def settings(self, values: Mapping[str, Any]) -> None:
        rows = [f"| {name} | {value} |" for name, value in values.items()]
        self._writer.add_text("settings", "\n".join(["| setting | value |", "|---|---|", *rows]))


@final
class _MlFlow(Tracker):
    def __init__(self, client: Any) -> None:
        self._client = client

    def number(self, name: str, value: float, step: int) -> None:
        self._client.log_metric(name.replace("@", "_at_"), value, step=step)  # MLflow rejects @

    def settings(self, values: Mapping[str, Any]) -> None:
        self._client.log_params({name: str(value) for name, value in values.items()})


@contextlib.contextmanager
def _tensorboard(place: str, run: str) -> Iterator[Tracker]:
    require("torch", "--track tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(f"{place or 'runs'}/{run}") as writer:
        yield _TensorBoard(writer)


@contextlib.contextmanager
def _mlflow(place: str, run: str) -> Iterator[Tracker]:
    import mlflow

    if place:
        mlflow.set_tracking_uri(place)
    with mlflow.start_run(run_name=run):
        yield _MlFlow(mlflow)


_KINDS = {"tensorboard": _tensorboard, "mlflow": _mlflow}
