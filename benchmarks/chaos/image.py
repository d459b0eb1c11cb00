"""A real file system in an image file, cut while it is mounted: what was not on the disk at that moment is gone.

`log lost` stops the file system at once, `log kept` after it has written its journal, so that names are kept whose
content is not; `copied` takes the image as it is. Needs root and loop devices.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import final

from benchmarks.chaos.trial import Trials
from benchmarks.chaos.watched import Kill, Operation

_SHUT_DOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN, XFS_IOC_GOINGDOWN
_FLAGS = {"log kept": 1, "log lost": 2}
KINDS = {  # how it is made, mounted (ext4 would sync a file before a rename replaces another, of its own) and cut
    "ext4": (("mkfs.ext4", "-q"), "loop,noauto_da_alloc", ("log lost", "log kept")),
    "xfs": (("mkfs.xfs", "-q"), "loop", ("log lost", "log kept")),
    "btrfs": (("mkfs.btrfs", "-q"), "loop", ("copied",)),
}
_SIZE = 320 << 20


@final
class Image:
    """A file system of its own for each trial."""

    def __init__(self, kind: str, folder: Path) -> None:
        make, self.options, self.cuts = KINDS[kind]
        self.empty, self.image, self.copy = (folder / name for name in ("empty", "image", "copy"))
        self.mounted = folder / "mounted"
        self.mounted.mkdir()
        with self.empty.open("wb") as file:
            file.truncate(_SIZE)
        subprocess.run([*make, str(self.empty)], check=True, capture_output=True)

    def struck(self, trials: Trials, number: int, cut: str) -> list[str]:
        """What is wrong after a power cut at this call, and after the run that follows it."""
        _copy(self.empty, self.image)
        self._mount(self.image)
        try:
            trials.prepare(self.mounted / "work")
            os.sync()
            _, said = trials.strike(number, lambda call: self._cut(call, cut))
            self._unmount()
            self._mount(self.copy if cut == "copied" else self.image)
            return trials.wrong_after_the_blow(said) + trials.wrong_after_another_run()
        finally:
            self._unmount()

    def _cut(self, _: Operation, cut: str) -> int:
        if cut == "copied":
            _copy(self.image, self.copy)
            raise Kill
        descriptor = os.open(self.mounted, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _SHUT_DOWN, struct.pack("I", _FLAGS[cut]))
        finally:
            os.close(descriptor)
        raise Kill

    def _mount(self, image: Path) -> None:
        subprocess.run(["mount", "-o", self.options, str(image), str(self.mounted)], check=True)

    def _unmount(self) -> None:
        subprocess.run(["umount", str(self.mounted)], check=True)


def available(kind: str) -> bool:
    """Whether such an image can be made and mounted here."""
    return os.name == "posix" and os.geteuid() == 0 and shutil.which(KINDS[kind][0][0]) is not None


def _copy(source: Path, target: Path) -> None:
    subprocess.run(["cp", "--sparse=always", str(source), str(target)], check=True)
