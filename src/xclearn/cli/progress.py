"""What a person sees while training: a bar on a terminal, nothing off it; and the JSON-lines log when asked for.

All of it goes to stderr; stdout belongs to results. Knows only the events the training loop sends.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from xclearn.writing import writing_to

Event = Mapping[str, Any]
Handler = Callable[[Event], None]


@contextlib.contextmanager
def training_view(log: Path | None) -> Iterator[Handler]:
    """A callback for `fit`: progress on stderr if it is a terminal, plan and notes always, events in the log file."""
    with contextlib.ExitStack() as stack:
        handlers: list[Handler] = [say_plan]
        if sys.stderr.isatty():
            handlers.append(stack.enter_context(_bar()))
        if log is not None:
            handlers.append(stack.enter_context(_log_file(log)))

        def handle(event: Event) -> None:
            for handler in handlers:
                handler(event)

        yield handle


def say(message: str) -> None:
    """A message for a person, on stderr."""
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()


def say_plan(event: Event) -> None:
    """The plan before training, and where a resumed run goes on."""
    if event["event"] == "plan":
        peak, device = event["peak_mib"], event["device"]
        say(f"plan: {event['algorithm']} on {device}, peak memory about {peak:,} MiB ({event['data_mib']:,} MiB data)")
        for stage in event["stages"]:
            seconds = max(stage["seconds_per_epoch"], 0.01)
            say(
                f"  {stage['stage']}: epochs {stage['epochs']} of about {seconds:g} s, "
                f"parameters {stage['parameters_mib']:,} MiB, {stage['path']}"
            )
    elif event["event"] == "note":
        say("note: " + ", ".join(f"{name} {value}" for name, value in event.items() if name != "event"))
    elif event["event"] == "resumed":
        say(f"resumed: stage {event['stage']} after epoch {event['epoch']}")


@contextlib.contextmanager
def _bar() -> Iterator[Handler]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        tasks: dict[str, Any] = {}

        def handle(event: Event) -> None:
            stage = str(event.get("stage"))
            if event["event"] == "step":
                if stage not in tasks:
                    tasks[stage] = progress.add_task(stage, total=event["steps"], note="")
                progress.update(tasks[stage], completed=event["step"])
            elif event["event"] == "epoch":
                score = "" if event["score"] is None else f" score {event['score']:.2f}"
                progress.update(tasks[stage], note=f"epoch {event['epoch']} loss {event['loss']:.3f}{score}")

        yield handle


@contextlib.contextmanager
def _log_file(path: Path) -> Iterator[Handler]:
    with writing_to(path):
        stream = path.open("a", encoding="utf-8")

    def handle(event: Event) -> None:
        if event["event"] != "step":
            with writing_to(path):
                stream.write(json.dumps({"time": round(time.time(), 3), **event}) + "\n")
                stream.flush()

    try:
        yield handle
    finally:
        with writing_to(path):
            stream.close()  # what could not be written before is tried again
