"""Published data sets by name: fetched from their official address, or unpacked from an archive that is here already.

Of an archive only the files that `load_dataset` reads are taken, and their headers must say what the papers say: nobody
has published hashes of these archives. Whoever knows a hash can have it checked.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import urllib.request
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, final
from urllib.error import URLError

from xclearn.errors import ConfigError, DataError, nearest
from xclearn.limits import largest_contents, too_much
from xclearn.writing import atomic_folder

_DRIVE = "https://drive.usercontent.google.com/download?export=download&confirm=t&id="
_FEATURES = {"trn_X_Xf.txt": "train", "tst_X_Xf.txt": "test"}
_RELEVANCE = {"trn_X_Y.txt": "train", "tst_X_Y.txt": "test"}
_LABELS = ("lbl_X_Xf.txt", "Yf.txt")  # features of labels, under one of these names
_FILTER = "filter_labels_test.txt"
_AT_ONCE = 1 << 20  # bytes
_TIMEOUT = 60  # seconds without an answer


@final
@dataclass(frozen=True, kw_only=True)
class Published:
    """Where an archive is, and what its set holds."""

    drive_id: str  # as in the READMEs of DECAF and ECLARE
    train: int
    test: int
    labels: int

    @property
    def address(self) -> str:
        return _DRIVE + self.drive_id


PUBLISHED: dict[str, Published] = {
    "LF-AmazonTitles-131K": Published(
        drive_id="1VlfcdJKJA99223fLEawRmrXhXpwjwJKn", train=294_805, test=134_835, labels=131_073
    ),
    "LF-WikiSeeAlsoTitles-320K": Published(
        drive_id="1edWtizAFBbUzxo9Z2wipGSEA9bfy5mdX", train=693_082, test=177_515, labels=312_330
    ),
    "LF-AmazonTitles-1.3M": Published(
        drive_id="1Davc6BIfoTIAS3mP1mUY5EGcGr2zN2pO", train=2_248_619, test=970_237, labels=1_305_265
    ),
}


class Downloaded(NamedTuple):
    """A data folder, and the hash of the archive that it came from."""

    folder: Path
    sha256: str


def download_dataset(
    name: str, folder: Path | None = None, *, source: str | None = None, sha256: str | None = None
) -> Downloaded:
    """The published set `name` as a new data folder; `source` is another address of its archive, or its file."""
    if name not in PUBLISHED:
        raise ConfigError("no such published data set", where="NAME", got=name, todo=nearest(name, PUBLISHED))
    target = folder or Path(name)
    wanted = source or PUBLISHED[name].address
    with atomic_folder(target) as new:
        archive = Path(wanted)
        if not archive.is_file():
            archive = new / "archive"
            _fetch(wanted, archive, name)
        digest = _hash_of(archive)
        if sha256 is not None and digest != sha256.lower():
            raise DataError("the archive has another hash", where=wanted, got=digest, allowed=sha256)
        _unpack(archive, new, wanted)
        if archive.parent == new:
            archive.unlink()
        _check(new, name)
        (new / "dataset.json").write_text(json.dumps({"name": name}) + "\n", encoding="utf-8")
    return Downloaded(target, digest)


def _fetch(address: str, target: Path, name: str) -> None:
    by_hand = f"Get the archive where there is a network, and run `xc data download {name} --from FILE`."
    if not address.startswith(("https://", "http://")):
        raise DataError("there is no such archive", where="--from", got=address, allowed="a file, or an http address")
    try:
        with urllib.request.urlopen(address, timeout=_TIMEOUT) as answer, target.open("wb") as out:
            expected = answer.headers.get("Content-Length")
            shutil.copyfileobj(answer, out, _AT_ONCE)
            got = out.tell()
    except (URLError, OSError) as error:
        reason = str(getattr(error, "reason", error))
        raise DataError("the archive cannot be fetched", where=address, got=reason, todo=by_hand) from error
    if expected is not None and int(expected) != got:
        what = "the archive came incomplete"
        raise DataError(what, where=address, got=f"{got:,} of {int(expected):,} bytes", todo="Try again.")
    if not zipfile.is_zipfile(target):
        with target.open("rb") as stream:
            start = stream.read(40).decode("utf-8", "replace")
        raise DataError("what came is not a zip archive", where=address, got=start, todo=by_hand)


def _unpack(archive: Path, folder: Path, where: str) -> None:
    """Write the files that are read, by their names alone, wherever in the archive they are."""
    try:
        with zipfile.ZipFile(archive) as opened:
            found = {Path(member.filename).name: member for member in opened.infolist() if not member.is_dir()}
            for file in _chosen(found, where):
                _copy(opened, found[file], folder / file, archive)
    except (zipfile.BadZipFile, OSError, EOFError) as error:
        raise DataError("the archive cannot be read", where=where, got=str(error)) from error


def _chosen(found: Mapping[str, zipfile.ZipInfo], where: str) -> list[str]:
    needed = [*_FEATURES, *_RELEVANCE]
    if missing := [file for file in needed if file not in found]:
        what = f"the archive lacks {', '.join(missing)}"
        raise DataError(what, where=where, got=", ".join(sorted(found)[:20]), allowed=", ".join(needed))
    of_labels = [file for file in _LABELS if file in found][:1]
    return [*needed, *of_labels, *([_FILTER] if _FILTER in found else [])]


def _copy(opened: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path, archive: Path) -> None:
    most = largest_contents(archive)
    with opened.open(member) as source, target.open("wb") as out:
        while block := source.read(_AT_ONCE):
            out.write(block)
            if out.tell() > most:
                what = f"{member.filename} unpacks to too much"
                raise too_much("expansion", what, where=str(archive), most=most)


def _check(folder: Path, name: str) -> None:
    """The headers say what the papers say of the set."""
    known = PUBLISHED[name]
    rows = {"train": known.train, "test": known.test}
    for file, role in (_FEATURES | _RELEVANCE).items():
        with (folder / file).open("rb") as stream:
            header = stream.readline(200).split()
        numbers = [int(each) for each in header] if all(each.isdigit() for each in header) else []
        wanted = (rows[role], *([known.labels] if file in _RELEVANCE else []))
        shown = numbers if file in _RELEVANCE else numbers[:1]
        if len(numbers) != 2 or tuple(shown) != wanted:
            what = f"{file} is not that of {name}"
            raise DataError(what, where=str(folder / file), got=b" ".join(header), allowed=" ".join(map(str, wanted)))


def _hash_of(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
