"""`xc predict` over many files: one file of answers for each, by several processes on this machine or by Ray.

A file of answers appears whole or not at all, so what is there is done: `--resume` asks only about the rest. A worker
that dies is replaced, and the file it had is begun again.
"""

from __future__ import annotations

import dataclasses
import glob
import hashlib
import json
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from xclearn.cli.answers import Output
from xclearn.cli.predicting import Asked, answers
from xclearn.cli.progress import say
from xclearn.data.columns import Reading
from xclearn.errors import ConfigError, ProcessError
from xclearn.extras import require
from xclearn.integrations.arrow import mapped
from xclearn.writing import atomic_path, remove_leftovers_in

_JOB = "_job.json"  # engines that read a folder of Parquet files pass over names that start like this
_RESTARTS = 3  # of processes that died

ENGINES = ("processes", "ray")


@dataclasses.dataclass(frozen=True)
class Many:
    """How many files are answered at once, and what becomes of answers that are there already."""

    engine: str = ""
    workers: int | None = None  # none: one, which uses all cores; by Ray one for each core
    resume: bool = False

    def __post_init__(self) -> None:
        if self.engine not in ("", *ENGINES):
            raise ConfigError("unknown engine", where="--engine", got=self.engine, allowed=", ".join(ENGINES))
        if self.engine == "ray":
            require("ray", "--engine ray", otherwise="give --workers alone")
        if self.workers is not None and self.workers < 1:
            raise ConfigError("there must be a worker", where="--workers", got=self.workers)

    @property
    def asked_for(self) -> bool:
        return bool(self.engine or self.workers or self.resume)

    @property
    def n_threads(self) -> int:
        """Of a worker, so that all cores are used once."""
        return max(1, (os.cpu_count() or 1) // (self.workers or 1))


@dataclasses.dataclass(frozen=True)
class Work:
    """What a worker does with a file. It is sent to the worker, and maps the model there."""

    model: Path
    out: Path
    format: str
    asked: Asked
    reading: Reading
    device: str
    n_threads: int

    def __call__(self, file: Path) -> int:
        """Write the answers to a file's texts; gives how many."""
        predictor = mapped(self.model, self.device, self.n_threads)
        output = Output(self.target(file), self.format, overwrite=True)
        return sum(answers(predictor, self.asked, str(file), output, self.reading))

    def target(self, file: Path) -> Path:
        """A file of the same name; Parquet stays Parquet, all else becomes JSON lines."""
        chosen = self.format or ("parquet" if file.suffix == ".parquet" else "jsonl")
        return self.out / f"{file.name.split('.')[0]}.{chosen}"

    @property
    def said(self) -> dict[str, object]:
        """What decides about answers: a job that goes on must be the same."""
        content = hashlib.sha256((self.model / "model.json").read_bytes()).hexdigest()
        threshold = dataclasses.asdict(self.asked.threshold)
        rest = {"tail": self.asked.tail, "reading": self.reading.flags(), "format": self.format}
        return {"model": content, "k": self.asked.k, **threshold, **rest}


def is_many(file: str) -> bool:
    """Whether a name stands for files: a folder, or a pattern that is itself no file."""
    return file != "-" and (Path(file).is_dir() or (glob.has_magic(file) and not Path(file).exists()))


def predict_files(work: Work, files: Sequence[Path], many: Many, *, overwrite: bool) -> None:
    """Answer the texts of every file into the folder of answers."""
    waiting = _begin(work, files, resume=many.resume, overwrite=overwrite)
    if len(waiting) < len(files):
        say(f"{len(files) - len(waiting):,} of {len(files):,} files are done already")
    n_texts = 0
    for done, n in enumerate(_results(work, waiting, many), 1):
        n_texts += n
        say(f"{done:,} of {len(waiting):,} files, {n_texts:,} texts")
    say(f"answers: {work.out}")


def files_of(pattern: str) -> list[Path]:
    """The files that a folder holds or a pattern names, in the order of their names."""
    inside = Path(pattern).is_dir()
    found = Path(pattern).iterdir() if inside else map(Path, glob.glob(pattern, recursive=True))
    files = sorted(path for path in found if path.is_file() and not path.name.startswith(("_", ".")))
    if not files:
        raise ConfigError("no file there", where="FILE", got=pattern)
    return files


def _begin(work: Work, files: Sequence[Path], *, resume: bool, overwrite: bool) -> list[Path]:
    """The files to ask about; refuses a folder with other answers, and files whose answers would have one name."""
    targets = dict(zip(map(work.target, files), files, strict=True))
    if len(targets) < len(files):
        (double, *_) = set(files) - set(targets.values())
        raise ConfigError("two files would have one file of answers", where="FILE", got=str(double), todo="Rename one.")
    job = work.out / _JOB
    if work.out.exists() and not work.out.is_dir():
        raise ConfigError("answers to many files need a folder", where="-o", got=str(work.out))
    work.out.mkdir(parents=True, exist_ok=True)
    remove_leftovers_in(work.out)
    there = [path for path in work.out.iterdir() if path != job]
    if resume and job.exists():
        _require_same(work, job)
        return [file for target, file in targets.items() if not target.exists()]
    if there and not overwrite:
        todo = "Choose another -o, give --overwrite to write the answers again, or --resume to go on with a job."
        raise ConfigError("the folder is not empty", where="-o", got=str(work.out), todo=todo)
    for target in targets:
        target.unlink(missing_ok=True)
    with atomic_path(job) as path:
        path.write_text(json.dumps(work.said, indent=1))
    return list(files)


def _require_same(work: Work, job: Path) -> None:
    """Files answered by another model, or to another question, are no part of this job."""
    try:
        before = json.loads(job.read_text(encoding="utf-8"))
        other = [name for name, value in work.said.items() if before[name] != value]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError("the job cannot be read", where=str(job), todo="Give --overwrite to begin again.") from error
    if other:
        todo = "Ask as before, or give --overwrite to write all answers again."
        raise ConfigError("the job to resume was asked differently", where=str(job), got=", ".join(other), todo=todo)


def _results(work: Work, files: Sequence[Path], many: Many) -> Iterator[int]:
    """How many texts each file had, as answers are written."""
    if many.engine == "ray":
        from xclearn.integrations.ray import over_files

        return over_files(work, files, many.workers, gpu=work.device == "cuda")
    return _in_processes(work, files, many.workers or 1)


def _in_processes(work: Work, files: Sequence[Path], workers: int) -> Iterator[int]:
    waiting, restarts = set(files), 0
    while waiting:
        # spawned: a forked child of a process with threads may wait for a lock forever
        with ProcessPoolExecutor(min(workers, len(waiting)), multiprocessing.get_context("spawn")) as pool:
            asked = {pool.submit(work, file): file for file in sorted(waiting)}
            try:
                for done in as_completed(asked):
                    n_texts = done.result()
                    waiting.remove(asked[done])
                    yield n_texts
            except BrokenProcessPool as error:
                restarts += 1
                if restarts > _RESTARTS:
                    what = "a worker ended again and again"
                    todo = "Is there enough memory? Then go on with --resume."
                    raise ProcessError(what, where="--workers", got=workers, todo=todo) from error
                say(f"a worker ended: {len(waiting):,} files are asked about again")
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
