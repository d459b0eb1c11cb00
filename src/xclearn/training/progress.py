"""The progress bar of training, on a terminal or in a notebook only.

Knows only the events that the training loop sends.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from html import escape
from typing import Any

Event = Mapping[str, Any]
Handler = Callable[[Event], None]

_EVERY = 0.2  # seconds between updates in a notebook


@contextlib.contextmanager
def progress_shown() -> Iterator[Handler]:
    """A progress bar for each stage, on stderr or in the notebook's cell, until training ends."""
    if in_notebook():
        with _notebook_bar() as handle:
            yield handle
    elif sys.stderr.isatty():
        with terminal_bar() as handle:
            yield handle
    else:
        yield lambda _: None


def in_notebook() -> bool:
    """Whether this process is a notebook kernel."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


@contextlib.contextmanager
def terminal_bar() -> Iterator[Handler]:
    """A bar on stderr, with the loss and the score of the last epoch."""
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
            elif event["event"] == "epoch" and stage in tasks:
                progress.update(tasks[stage], note=_note(event))

        yield handle


@contextlib.contextmanager
def _notebook_bar() -> Iterator[Handler]:
    """A line of HTML for each stage, updated a few times per second; rich would need widgets."""
    from IPython.display import HTML, display

    rows: dict[str, tuple[int, int, str]] = {}  # stage → steps done, steps, note
    shown = display(HTML(""), display_id=True)
    drawn = 0.0

    def handle(event: Event) -> None:
        nonlocal drawn
        stage = str(event.get("stage"))
        if event["event"] == "step":
            rows[stage] = (event["step"], event["steps"], rows.get(stage, (0, 0, ""))[2])
        elif event["event"] == "epoch" and stage in rows:
            rows[stage] = (*rows[stage][:2], _note(event))
        if time.monotonic() > drawn + _EVERY:
            shown.update(HTML(_bars(rows)))
            drawn = time.monotonic()

    yield handle
    shown.update(HTML(_bars(rows)))


def _bars(rows: Mapping[str, tuple[int, int, str]]) -> str:
    return "".join(
        f'<div><progress value="{done}" max="{steps}"></progress> {escape(stage)} {escape(note)}</div>'
        for stage, (done, steps, note) in rows.items()
    )


def _note(event: Event) -> str:
    score = "" if event["score"] is None else f" score {event['score']:.2f}"
    return f"epoch {event['epoch']} loss {event['loss']:.3f}{score}"
