"""The command as a whole: its commands, its version, its help."""

import os
import subprocess
import sys
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import xclearn
from xclearn.cli.main import app

runner = CliRunner()


def test_the_version() -> None:
    assert runner.invoke(app, ["--version"]).stdout == f"xclearn {xclearn.__version__}\n"


def test_help_names_every_command() -> None:
    words = runner.invoke(app, ["--help"]).stdout.split()
    for command in ("train", "predict", "evaluate", "inspect", "verify", "algorithms", "demo", "data"):
        assert command in words


@pytest.mark.parametrize("path", [["train"], ["predict"], ["evaluate"], ["demo"], ["algorithms"], ["data", "convert"]])
def test_help_says_what_each_option_is_for(path: list[str]) -> None:
    command: Any = get_command(app)
    for name in path:
        command = command.commands[name]
    assert command.params
    assert [option.name for option in command.params if not option.help] == []


def test_output_is_utf8_whatever_the_locale_says() -> None:
    command = [sys.executable, "-c", "from xclearn.cli.main import main; main()", "data", "list"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert done.returncode == 0
    assert "→" in done.stdout.decode()  # of the bundled set's description
