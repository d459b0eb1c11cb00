"""A power cut after every call that changes or syncs a file, while a model is trained and written: what is left?

The disk is worked out by `disk.py`. Run in a process that can be watched (`watched.preloaded`), with a folder to work
in; each scenario prints a line of JSON: how many states were looked at, and what was lost in which.
"""

from __future__ import annotations

import errno
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.chaos.disk import Disk
from benchmarks.chaos.watched import Operation, watch

SAID = "said"  # a folder that a scenario makes when it has told its user that the model is there
MOVED_ASIDE = re.compile(r"\.m\.[0-9a-f]{12}\.tmp/old/")
COLOURS = ["red", "green", "blue", "white", "black"]
THINGS = ["shirt", "shoes", "hat", "coat"]


def write_texts(path: Path) -> None:
    """Small texts whose labels are their words."""
    rows = [f"a {colour} {thing},{colour};{thing}" for colour in COLOURS for thing in THINGS]
    path.write_text("\n".join(["text,labels", *rows]) + "\n")


def train(folder: Path, overwrite: bool = False, epochs: int = 2) -> None:
    """What `xc train` does, in a folder where `texts.csv` lies."""
    from xclearn.cli.training import Request, train_model

    settings = (f"epochs={epochs}", "embedding_dim=8")
    source = str(folder / "texts.csv")
    out = folder / "work" / "m"
    train_model(Request(source, "one_vs_all", out, settings, device="cpu", overwrite=overwrite))
    (folder / "work" / SAID).mkdir()


SCENARIOS: dict[str, Callable[[Path], None]] = {
    "train": train,
    "overwrite": lambda folder: train(folder, overwrite=True),
    "overwrite without exchange": lambda folder: train(folder, overwrite=True),  # as on a file system without it
}


def prepare(name: str, folder: Path) -> None:
    """What is there before the scenario."""
    write_texts(folder / "texts.csv")
    (folder / "work").mkdir()
    if name != "train":
        train(folder, epochs=1)
        (folder / "work" / SAID).rmdir()
        (folder / "work" / "m" / "notes.txt").write_text("of the user")


def simulate(name: str, folder: Path) -> dict[str, object]:
    """Every state of the disk, and what is wrong with it."""
    prepare(name, folder)
    work = folder / "work"
    disk = Disk(work)
    states = [("the start", state) for state in disk.states()]

    def after(operation: Operation) -> None:
        disk.apply(operation)
        if operation.name != "write":
            states.extend((" ".join(operation), state) for state in disk.states())

    refused = errno.EINVAL if name.endswith("without exchange") else 0
    code = watch(lambda: SCENARIOS[name](folder), work, lambda call: refused * (call.name == "exchange"), after)
    assert code == 0, code
    final = {str(path.relative_to(work)): path.read_bytes() for path in work.rglob("*") if path.is_file()}
    return {"scenario": name, "states": len(states), "lost": complaints(states, model_of(final))}


def model_of(files: dict[str, bytes]) -> dict[str, bytes]:
    """The model; where there is none, the one that the next start brings back."""
    found = {name: content for name, content in files.items() if name.startswith("m/")}
    aside = {MOVED_ASIDE.sub("m/", name): content for name, content in files.items() if MOVED_ASIDE.match(name)}
    return found or aside


def complaints(states: list[tuple[str, dict[str, bytes]]], new: dict[str, bytes]) -> list[str]:
    """States that hold neither the old model nor the new one, or lack work that was kept before."""
    old = model_of(states[0][1])
    kept: set[str] = set()
    found: list[str] = []
    said = False
    for i, (after, files) in enumerate(states):
        said = said or (after.startswith("mkdir") and after.rstrip().endswith(f"/{SAID}"))
        model = model_of(files)
        if model not in ([new] if said else [old, new]):
            found.append(f"after {after}: the model is {sorted((n, len(c)) for n, c in model.items())}")
        if model != new and any(not files.get(name) for name in kept):
            found.append(f"after {after}: the work of {sorted(kept)} is gone")
        index = files.get("m.checkpoint/checkpoint.json")
        if index == b"":
            found.append(f"after {after}: checkpoint.json is empty")
        if i % 2 == 0:  # nothing unsynced in it
            kept |= {name for name, content in files.items() if content and name.startswith("m.checkpoint/done-")}
    return found


def main() -> None:
    folder = Path(sys.argv[1])
    for name in SCENARIOS:
        (folder / name).mkdir()
        print(json.dumps(simulate(name, folder / name)))


if __name__ == "__main__":
    main()
