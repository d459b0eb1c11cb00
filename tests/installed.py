"""What is tried of an installed wheel: `python tests/installed.py`, in an environment with nothing but the wheel.

A linear model learns a planted answer, is written, loaded and asked, in Python and by the command, without torch.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import sysconfig
import tempfile
from importlib import resources
from importlib.metadata import metadata
from itertools import combinations
from pathlib import Path

WORDS = {"printer": "paper toner", "network": "cable router", "account": "password login", "screen": "monitor pixel"}


def main() -> None:
    """Ends with an AssertionError or a CalledProcessError where something does not work."""
    import xclearn
    from xclearn.kernels import _native

    assert not Path(xclearn.__file__).is_relative_to(Path(__file__).parents[1] / "src"), "the checkout was imported"
    assert Path(_native.__file__).parent == Path(xclearn.__file__).parent / "kernels"
    assert (resources.files("xclearn") / "py.typed").is_file()
    assert (resources.files("xclearn") / "data" / "bundled" / "wordnet-related" / "train.jsonl.xz").is_file()
    with tempfile.TemporaryDirectory() as folder:
        _python(Path(folder) / "python-model")
        _command(Path(folder))
    assert "torch" not in sys.modules
    print(
        f"xclearn {metadata('xclearn')['Version']}, Python {sys.version.split()[0]}, {sysconfig.get_platform()}: works"
    )


def _planted() -> tuple[list[str], list[list[str]]]:
    pairs = list(combinations(WORDS, 2)) * 5
    return [f"{WORDS[one]} {WORDS[other]}" for one, other in pairs], [list(pair) for pair in pairs]


def _python(folder: Path) -> None:
    import xclearn

    xclearn.SparseOneVsAll().fit(*_planted()).save(folder)
    (suggested,) = xclearn.load(folder).suggest(["the cable of the router"], k=1)
    assert [label for label, _, _ in suggested] == ["network"], suggested


def _command(folder: Path) -> None:
    table, model = folder / "tickets.csv", folder / "model"
    rows = ((text, ";".join(names)) for text, names in zip(*_planted(), strict=True))
    with table.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "labels"), *rows])
    _xc("train", table, "-a", "label_tree", "-o", model)
    answers = _xc("predict", model, table, "-k", "2", "--format", "jsonl").splitlines()
    assert len(answers) == 30
    for answer in map(json.loads, answers):
        assert {one["label"] for one in answer["predictions"]} == set(answer["labels"].split(";")), answer


def _xc(*arguments: str | Path) -> str:
    scripts = Path(sysconfig.get_path("scripts"))
    done = subprocess.run([scripts / "xc", *arguments], stdout=subprocess.PIPE, text=True, encoding="utf-8", check=True)
    return done.stdout


if __name__ == "__main__":
    main()
