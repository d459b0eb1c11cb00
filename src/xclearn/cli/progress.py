"""What is shown while training: the plan, a progress bar on a terminal, and optionally a JSON-lines log.

All of it goes to stderr; stdout belongs to results. Knows only the events the training loop sends.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from xclearn.training.progress import Event, Handler, progress_shown
from xclearn.writing import writing_to


@contextlib.contextmanager
def training_view(log: Path | None, *also: Handler) -> Iterator[Handler]:
    """A callback for `fit`: a bar on a terminal, plan and notes always, events in the log file, and other handlers."""
    with contextlib.ExitStack() as stack:
        handlers: list[Handler] = [say_plan, *also, stack.enter_context(progress_shown())]
        if log is not None:
            handlers.append(stack.enter_context(_log_file(log)))

        def handle(event: Event) -> None:
            for handler in handlers:
                handler(event)

        yield handle


def say(message: str) -> None:
    """Print a message on stderr."""
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()


def say_plan(event: Event) -> None:
    """Show the plan before training, and where a resumed run continues."""
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
            stream.close()  # retries what could not be written before
