"""`xc tune`: searches settings on held-out documents of train, and writes a file for `xc train --config`."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xclearn import config
from xclearn.cli.progress import say
from xclearn.cli.reading import read_data
from xclearn.cli.showing import print_table
from xclearn.data import Reading
from xclearn.errors import ConfigError
from xclearn.writing import atomic_path

if TYPE_CHECKING:
    from xclearn.integrations.tuning import Trial, TuningTask


@dataclasses.dataclass(frozen=True)
class TuneRequest:
    """Options from the command line."""

    algorithm: str
    out: Path
    n_trials: int
    metric: str
    settings: tuple[str, ...]
    device: str
    seed: int
    track: str
    reading: Reading


def tune_settings(source: str, asked: TuneRequest) -> None:
    """Run the trials, show them, and write the best settings."""
    from xclearn.integrations.tuning import TuningTask, best_of, tune

    if asked.n_trials < 1:
        raise ConfigError("must be above 0", where="--trials", got=asked.n_trials)
    request = TuningTask(asked.algorithm, config.merge({}, asked.settings), asked.metric, asked.seed, asked.device)
    data = read_data(source, asked.reading)
    trials = tune(request, data, asked.out.with_suffix(".study"), asked.n_trials, _watch(asked))
    best = best_of(trials)
    _print_trials(trials, best, asked.metric)
    settings = {**request.fixed, **best.settings}
    with atomic_path(asked.out) as temporary:
        temporary.write_text(_toml(request, source, settings), encoding="utf-8")
    say(f"settings: {asked.out}\nnext:  xc train --config {shlex.quote(str(asked.out))} -o MODEL")


def _watch(asked: TuneRequest) -> Any:
    @contextlib.contextmanager
    def watch(name: str, chosen: Mapping[str, Any]) -> Iterator[Callable[[Mapping[str, Any]], None]]:
        shown = "  ".join(f"{setting} {_rounded(value)}" for setting, value in chosen.items())
        say(f"{name}: {shown}" if shown else f"{name}:")
        with contextlib.ExitStack() as stack:
            tell: Callable[[Mapping[str, Any]], None] = lambda _: None  # noqa: E731
            if asked.track:
                from xclearn.integrations.tracking import tracking

                tell = stack.enter_context(tracking(asked.track, f"{asked.out.stem}-{name.replace(' ', '-')}", chosen))

            def handle(event: Mapping[str, Any]) -> None:
                tell(event)
                if event["event"] == "measured":
                    say(f"  {asked.metric} {event[asked.metric]:.2f}")
                elif event["event"] == "failed":
                    say(f"  failed: {event['reason']}")

            yield handle

    return watch


def _print_trials(trials: list[Trial], best: Trial, metric: str) -> None:
    rows = []
    for trial in trials:
        score = "" if trial.score is None else f"{trial.score:.2f}"
        settings = " ".join(f"{name}={_rounded(value)}" for name, value in trial.settings.items())
        name = "defaults" if trial.number < 0 else str(trial.number)
        mark = " ← best" if trial is best else ""
        rows.append((name, trial.state, score, f"{trial.seconds:.1f}", settings + mark))
    print_table(("trial", "state", metric, "s", "settings"), rows)


def _rounded(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _toml(request: TuningTask, source: str, settings: Mapping[str, Any]) -> str:
    """The settings as TOML; JSON strings, numbers, booleans and lists are valid TOML."""
    lines = [f"algorithm = {json.dumps(request.algorithm)}", f"data = {json.dumps(source)}", "", "[settings]"]
    lines += [f"{name} = {json.dumps(value)}" for name, value in _flat(settings)]
    return "\n".join(lines) + "\n"


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
