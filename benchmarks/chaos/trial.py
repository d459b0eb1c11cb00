"""One trial: `xc train` meets a blow at one of its calls, and is run again as a user would; what is there then?

After the blow there is the old model or the new one, whole; once the run has said that the model is written, the new
one. After the second run the model has the bits of an undisturbed run, and nothing else is left.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, final

from benchmarks.chaos.planted import quick, write_data
from benchmarks.chaos.watched import Before, Kill, Operation, fork_and_wait, watch

MODEL, SAID, NOTES = "m", "said", "notes.txt"
FILES = ("model.json", "tensors.safetensors", "README.md")
NAMES = ("create", "mkdir", "rename", "exchange", "unlink", "rmdir", "fsync")

Blow = Callable[[Operation], int]
"""What happens instead of a call: an error number, or `Kill`."""


class Flow(NamedTuple):
    """What is trained, and whether over an older model."""

    algorithm: str
    overwrite: bool
    settings: tuple[str, ...] = ()


def kill(_: Operation) -> int:
    """End the process before the call."""
    raise Kill


@final
class Trials:
    """All trials of one flow, in a folder. This process must have been preloaded with `watched.c`."""

    def __init__(self, flow: Flow, folder: Path) -> None:
        self.flow = flow
        self.folder = folder
        self.work = folder / "work"
        self.data = write_data(folder / "data")
        self.old = folder / "old"
        if flow.overwrite:
            self._train(self.old, epochs=1)
            (self.old / NOTES).write_text("of the user")
        self._train(folder / "whole", epochs=2)
        self.whole = (folder / "whole" / "tensors.safetensors").read_bytes()

    def calls(self) -> list[Operation]:
        """Those of an undisturbed run, in their order, without writes."""
        found: list[Operation] = []
        self.prepare()

        def before(call: Operation) -> int:
            found.append(call)
            return 0

        assert watch(self.run, self.work, _not_writes(before), lambda _: None) == 0
        assert self.wrong_at_the_end() == []
        return found

    def prepare(self, work: Path | None = None) -> None:
        """The folder before the run, with the old model where there is one."""
        self.work = work or self.work
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()
        if self.flow.overwrite:
            shutil.copytree(self.old, self.work / MODEL)

    def struck(self, number: int, blow: Blow) -> list[str]:
        """What is wrong after a blow at this call, and after the run that follows it."""
        code, said = self.strike(number, blow)
        wrong = [] if code in (0, 2, -9) else [f"the run ended with {code}"]
        return wrong + self.wrong_after_the_blow(said) + self.wrong_after_another_run()

    def strike(self, number: int, blow: Blow) -> tuple[int, bool]:
        """Run until the blow at this call: how it ended, and whether the model was said to be written."""
        seen = 0
        said = False

        def before(call: Operation) -> int:
            nonlocal seen, said
            said = said or (call.name == "mkdir" and call.path.endswith(f"/{SAID}"))
            seen += 1
            return blow(call) if seen == number + 1 else 0

        return watch(self.run, self.work, _not_writes(before), lambda _: None), said

    def run(self, resume: bool = False) -> None:
        """As `xc train` does it."""
        self._train(self.work / MODEL, epochs=2, overwrite=self.flow.overwrite, resume=resume)
        with contextlib.suppress(OSError):
            (self.work / SAID).mkdir()

    def wrong_after_the_blow(self, said: bool) -> list[str]:
        from xclearn.errors import XclearnError
        from xclearn.inference import load_model

        folder = self.work / MODEL
        if not folder.exists():
            return ["the model is gone"] if self.flow.overwrite or said else []
        try:
            load_model(folder)
        except XclearnError as error:
            return [f"the model is damaged: {error}"]
        is_new = (folder / "tensors.safetensors").read_bytes() == self.whole
        if not is_new and (said or not self.flow.overwrite):
            return ["the model is not the new one"]
        return [] if not self.flow.overwrite or (folder / NOTES).exists() else ["what else was in the folder is gone"]

    def wrong_after_another_run(self) -> list[str]:
        resume = (self.work / f"{MODEL}.checkpoint" / "checkpoint.json").exists()
        with contextlib.suppress(FileNotFoundError):
            (self.work / SAID).rmdir()
        finished = (self.work / MODEL / "model.json").exists() and not self.flow.overwrite and not resume
        code = fork_and_wait(lambda: self.run(resume))
        expected = 2 if finished else 0  # 2: there already is a model, and nothing is left to do
        wrong = [] if code == expected else [f"the second run ended with {code}"]
        return wrong + self.wrong_at_the_end()

    def wrong_at_the_end(self) -> list[str]:
        tensors = self.work / MODEL / "tensors.safetensors"
        wrong = [] if tensors.exists() and tensors.read_bytes() == self.whole else ["other bits than undisturbed"]
        left = {path.name for path in self.work.iterdir()} - {MODEL, SAID, "lost+found"}
        inside = {path.name for path in (self.work / MODEL).glob("*")} - {
            "model.json",
            "tensors.safetensors",
            "README.md",
        }
        if left or inside != ({NOTES} if self.flow.overwrite else set()):
            wrong.append(f"left behind: {sorted(left | inside)}")
        return wrong

    def _train(self, out: Path, epochs: int, overwrite: bool = False, resume: bool = False) -> None:
        from xclearn.cli.training import Request, train_model

        settings = (*quick(self.flow.algorithm, epochs), *self.flow.settings)
        request = Request(str(self.data), self.flow.algorithm, out, settings, device="cpu")
        with quiet():
            train_model(dataclasses.replace(request, overwrite=overwrite, resume=resume))


def _not_writes(before: Before) -> Before:
    return lambda call: before(call) if call.name in NAMES else 0


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """What a run says is not shown, unless asked for by `CHAOS_SHOW`."""
    if os.environ.get("CHAOS_SHOW"):
        yield
        return
    with open(os.devnull, "w") as nothing, contextlib.redirect_stderr(nothing):
        yield
