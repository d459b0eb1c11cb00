"""What is shown while training, from the events that the loop sends."""

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from xclearn.cli.progress import training_view

PLAN = {
    "event": "plan",
    "algorithm": "one_vs_all",
    "device": "cpu",
    "peak_mib": 2048,
    "data_mib": 3,
    "stages": [
        {"stage": "train", "epochs": 2, "seconds_per_epoch": 0.001, "parameters_mib": 1500, "path": "exact: all labels"}
    ],
}
EVENTS: list[dict[str, Any]] = [
    PLAN,
    {"event": "resumed", "stage": "first", "epoch": 1},
    {"event": "note", "beam": 4, "recall": 0.9},
    {"event": "stage", "stage": "first", "epochs": 2, "first_epoch": 1, "items": 20},
    {"event": "step", "stage": "first", "step": 3, "steps": 4},
    {"event": "step", "stage": "first", "step": 4, "steps": 4},
    {"event": "epoch", "stage": "first", "epoch": 2, "loss": 0.25, "score": None, "seconds": 1.0},
    {"event": "step", "stage": "second", "step": 1, "steps": 1},
    {"event": "epoch", "stage": "second", "epoch": 1, "loss": 0.5, "score": 31.25, "seconds": 1.0},
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def show(log: Path | None = None) -> None:
    with training_view(log) as callback:
        for event in EVENTS:
            callback(event)


def test_off_a_terminal_only_the_plan_and_notes_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    show()
    assert capsys.readouterr() == (
        "",
        "plan: one_vs_all on cpu, peak memory about 2,048 MiB (3 MiB data)\n"
        "  train: epochs 2 of about 0.01 s, parameters 1,500 MiB, exact: all labels\n"
        "resumed: stage first after epoch 1\n"
        "note: beam 4, recall 0.9\n",
    )


def test_on_a_terminal_each_stage_has_one_bar_with_its_loss_and_score(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    for name, value in (("TERM", "xterm"), ("COLUMNS", "120"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    show()
    frames = re.split(r"\x1b\[2K|\x1b\[1A", screen.getvalue())
    last = [frame for frame in frames if "second" in frame or "first" in frame][-1]
    bars = [line.split() for line in last.splitlines() if line.startswith(("first", "second"))]
    assert [(bar[0], " ".join(bar[2:6])) for bar in bars] == [
        ("first", "epoch 2 loss 0.250"),
        ("second", "epoch 1 loss 0.500"),
    ]
    assert "score 31.25" in last
    assert "plan: one_vs_all" in screen.getvalue()


def test_the_log_holds_every_event_but_steps_and_is_appended_to(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    show(log)
    show(log)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    expected = [event for event in EVENTS if event["event"] != "step"]
    assert [{key: value for key, value in line.items() if key != "time"} for line in lines] == expected * 2
    assert lines[0]["time"] > 1e9
