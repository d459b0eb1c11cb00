"""`xc predict` over many files: one output file for each, by several processes on this machine or by Ray.

Output files are written atomically, so existing ones are complete and `--resume` does only the rest. A worker that dies
is replaced, and its file is started again.
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

_JOB = "_job.json"  # readers of Parquet folders skip names that start with an underscore
_RESTARTS = 3  # of dead processes

ENGINES = ("processes", "ray")


@dataclasses.dataclass(frozen=True)
class Many:
    """How many files to process at once, and what to do with existing output."""

    engine: str = ""
    workers: int | None = None  # None: one worker on all cores; with Ray, one per core
    resume: bool = False

    def __post_init__(self) -> None:
        if self.engine not in ("", *ENGINES):
            raise ConfigError("unknown engine", where="--engine", got=self.engine, allowed=", ".join(ENGINES))
        if self.engine == "ray":
            require("ray", "--engine ray", otherwise="give --workers alone")
        if self.workers is not None and self.workers < 1:
            raise ConfigError("at least one worker is needed", where="--workers", got=self.workers)

    @property
    def asked_for(self) -> bool:
        return bool(self.engine or self.workers or self.resume)

    @property
    def n_threads(self) -> int:
        """Threads per worker, dividing all cores."""
        return max(1, (os.cpu_count() or 1) // (self.workers or 1))


@dataclasses.dataclass(frozen=True)
class Work:
    """The task of a worker for each file; it is pickled to the worker, which maps the model."""

    model: Path
    out: Path
    format: str
    asked: Asked
    reading: Reading
    device: str
    n_threads: int

    def __call__(self, file: Path) -> int:
        """Write the predictions for a file's texts; returns the number of texts."""
        predictor = mapped(self.model, self.device, self.n_threads)
        output = Output(self.target(file), self.format, overwrite=True)
        return sum(answers(predictor, self.asked, str(file), output, self.reading))

    def target(self, file: Path) -> Path:
        """The output file of the same name: Parquet for Parquet, else JSON lines."""
        chosen = self.format or ("parquet" if file.suffix == ".parquet" else "jsonl")
        return self.out / f"{file.name.split('.')[0]}.{chosen}"

    @property
    def said(self) -> dict[str, object]:
        """Everything that determines predictions; a resumed job must be the same."""
        content = hashlib.sha256((self.model / "model.json").read_bytes()).hexdigest()
        threshold = dataclasses.asdict(self.asked.threshold)
        chunks = None if self.asked.chunks is None else dataclasses.asdict(self.asked.chunks)
        rest = {"tail": self.asked.tail, "chunks": chunks, "reading": self.reading.flags(), "format": self.format}
        return {"model": content, "k": self.asked.k, **threshold, **rest}


def is_many(file: str) -> bool:
    """Whether a name stands for several files: a folder, or a pattern that is not a file itself."""
    return file != "-" and (Path(file).is_dir() or (glob.has_magic(file) and not Path(file).exists()))


def predict_files(work: Work, files: Sequence[Path], many: Many, *, overwrite: bool) -> None:
    """Predict the texts of every file, writing to the output folder."""
    waiting = _begin(work, files, resume=many.resume, overwrite=overwrite)
    if len(waiting) < len(files):
        say(f"{len(files) - len(waiting):,} of {len(files):,} files are already done")
    n_texts = 0
    for done, n in enumerate(_results(work, waiting, many), 1):
        n_texts += n
        say(f"{done:,} of {len(waiting):,} files, {n_texts:,} texts")
    say(f"answers: {work.out}")


def files_of(pattern: str) -> list[Path]:
    """The files in a folder or matching a pattern, sorted by name."""
    inside = Path(pattern).is_dir()
    found = Path(pattern).iterdir() if inside else map(Path, glob.glob(pattern, recursive=True))
    files = sorted(path for path in found if path.is_file() and not path.name.startswith(("_", ".")))
    if not files:
        raise ConfigError("no such files", where="FILE", got=pattern)
    return files


def _begin(work: Work, files: Sequence[Path], *, resume: bool, overwrite: bool) -> list[Path]:
    """The files to process; raises for a folder with other output, and for files with the same output name."""
    targets = dict(zip(map(work.target, files), files, strict=True))
    if len(targets) < len(files):
        (double, *_) = set(files) - set(targets.values())
        raise ConfigError(
            "two files would have the same output file", where="FILE", got=str(double), todo="Rename one."
        )
    job = work.out / _JOB
    if work.out.exists() and not work.out.is_dir():
        raise ConfigError("the output of many files must be a folder", where="-o", got=str(work.out))
    work.out.mkdir(parents=True, exist_ok=True)
    remove_leftovers_in(work.out)
    there = [path for path in work.out.iterdir() if path != job]
    if resume and job.exists():
        _require_same(work, job)
        return [file for target, file in targets.items() if not target.exists()]
    if there and not overwrite:
        todo = "Choose another -o, give --overwrite to replace the output, or --resume to continue a job."
        raise ConfigError("the folder is not empty", where="-o", got=str(work.out), todo=todo)
    for target in targets:
        target.unlink(missing_ok=True)
    with atomic_path(job) as path:
        path.write_text(json.dumps(work.said, indent=1))
    return list(files)


def _require_same(work: Work, job: Path) -> None:
    """Raise if existing output comes from another model or other options."""
    try:
        before = json.loads(job.read_text(encoding="utf-8"))
        other = [name for name, value in work.said.items() if before[name] != value]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError("the job cannot be read", where=str(job), todo="Give --overwrite to start again.") from error
    if other:
        todo = "Use the same options as before, or give --overwrite to start again."
        raise ConfigError("the job to resume had other options", where=str(job), got=", ".join(other), todo=todo)


def _results(work: Work, files: Sequence[Path], many: Many) -> Iterator[int]:
    """The number of texts of each file, as files are finished."""
    if many.engine == "ray":
        from xclearn.integrations.ray import over_files

        return over_files(work, files, many.workers, gpu=work.device == "cuda")
    return _in_processes(work, files, many.workers or 1)


def _in_processes(work: Work, files: Sequence[Path], workers: int) -> Iterator[int]:
    waiting, restarts = set(files), 0
    while waiting:
        # spawned, as a forked child of a process with threads may deadlock
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
                    what = "workers keep dying"
                    todo = "Check the memory, then continue with --resume."
                    raise ProcessError(what, where="--workers", got=workers, todo=todo) from error
                say(f"a worker died: restarting {len(waiting):,} files")
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
