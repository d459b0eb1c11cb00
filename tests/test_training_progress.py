"""The bar that `fit` shows by default: on a terminal, in a notebook, and nowhere else."""

import os
import pty
import subprocess
import sys

import pytest

FIT = """
import xclearn
texts, labels = ["a red hat", "a blue shoe"] * 20, [["red"], ["blue"]] * 20
model = xclearn.OneVsAll(epochs=2, embedding_dim=8)
"""


def test_off_a_terminal_nothing_is_shown() -> None:
    command = [sys.executable, "-c", f"{FIT}\nmodel.fit(texts, labels, device='cpu')"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize("callback", ["", ", callback=lambda event: None"])
def test_on_a_terminal_a_bar_is_shown_unless_a_callback_is_told(callback: str) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", f"{FIT}\nmodel.fit(texts, labels, device='cpu'{callback})"]
    process = subprocess.Popen(command, stderr=theirs, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 4096):
            shown += part
    except OSError:  # the other end was closed
        pass
    os.close(ours)
    assert process.wait() == 0
    assert (b"train" in shown) == (not callback)


def test_in_a_notebook_a_bar_is_shown_in_the_cell() -> None:
    nbclient = pytest.importorskip("nbclient", reason="a notebook's kernel shows it")
    pytest.importorskip("ipykernel", reason="a notebook's kernel shows it")
    import nbformat

    cell = nbformat.v4.new_code_cell(f"{FIT}\nmodel.fit(texts, labels, device='cpu')")
    book = nbformat.v4.new_notebook(cells=[cell])
    nbclient.NotebookClient(book, timeout=120, kernel_name="python3").execute()
    bar, model = cell.outputs
    assert '<progress value="6" max="6"></progress> train epoch 2 loss' in bar["data"]["text/html"]
    assert "OneVsAll" in model["data"]["text/html"]
