"""`make golden BASE=commit`: prove that a change of the code changed nothing that a user gets.

    python -m benchmarks.golden.run BASE [--only PART]

Trains every case of `cases.py` with the commit BASE and with the working tree, on this machine, and compares: trained
tensors bit for bit, ids, scores, settings, command-line options, and the server's interface. The record of BASE is kept
in build/golden and made again when the cases change. Exit code 1 if anything differs.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from benchmarks.golden.compare import differences

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "golden"
_RECORDERS = ("cases.py", "record.py")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("base", help="the commit to compare with")
    parser.add_argument("--only", default="", help="cases whose name holds this")
    asked = parser.parse_args()
    commit = _git("rev-parse", "--short=12", f"{asked.base}^{{commit}}")
    package = _installed(commit)
    old = BUILD / f"{commit}-{_version()}"
    new = BUILD / "working-tree"
    shutil.rmtree(new, ignore_errors=True)
    running = [_record(new, None, asked.only)]
    if not (old / "record.json").exists():
        shutil.rmtree(old, ignore_errors=True)
        running.append(_record(old, package, ""))
    if any(process.wait() for process in running):
        raise SystemExit("a record could not be made")
    found = list(differences(old, new, asked.only))
    for line in found:
        print(line)
    cases = len(list(new.glob("*/model")))
    print(f"{cases} models, {commit} and the working tree: {len(found) or 'no'} differences")
    sys.exit(bool(found))


def _installed(commit: str) -> Path:
    """The package of a commit, with its own native core, built once."""
    package = BUILD / f"{commit}-package"
    if package.exists():
        return package
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD) as temporary:
        archive, source, site = (Path(temporary) / name for name in ("source.tar", "source", "site"))
        _git("archive", "--output", str(archive), commit)
        with tarfile.open(archive) as files:
            files.extractall(source, filter="data")
        install = ["pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target", str(site), str(source)]
        subprocess.run([sys.executable, "-m", *install], check=True)
        site.rename(package)
    return package


def _record(out: Path, source: Path | None, only: str) -> subprocess.Popen[bytes]:
    out.mkdir(parents=True)
    command = [sys.executable, "-m", "benchmarks.golden.record", str(out), "--only", only]
    command += ["--source", str(source)] if source else []
    return subprocess.Popen(command, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL)


def _version() -> str:
    """Of what is recorded: a record made by other cases is not to be compared with."""
    content = b"".join((Path(__file__).parent / name).read_bytes() for name in _RECORDERS)
    content += (ROOT / "tests" / "planted.py").read_bytes()
    return hashlib.sha256(content).hexdigest()[:12]


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
