"""Maps a function over many files on a Ray cluster, or on this machine; Ray restarts dead workers.

Knows nothing about models. The function and the files must be accessible from every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from xclearn.errors import ProcessError, XclearnError
from xclearn.extras import require

T = TypeVar("T")
_RETRIES = 3  # per file whose worker died


def over_files(task: Callable[[Path], T], files: Iterable[Path], workers: int | None, *, gpu: bool) -> Iterator[T]:
    """The results of `task` for each file, as completed; `workers` limits a cluster started here."""
    require("ray", "the engine ray")
    import ray
    from ray.exceptions import RayTaskError, WorkerCrashedError

    started = not ray.is_initialized()
    if started:
        ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    remote = ray.remote(num_cpus=1, num_gpus=1 if gpu else 0, max_retries=_RETRIES)(_done)
    waiting = [remote.remote(task, file) for file in files]
    try:
        while waiting:
            (ready, *_), waiting = ray.wait(waiting)
            yield ray.get(ready)
    except RayTaskError as error:
        cause = error.cause
        raise (cause if isinstance(cause, XclearnError) else error) from None
    except WorkerCrashedError as error:
        raise ProcessError("workers keep dying", where="ray", todo="Check the memory.") from error
    finally:
        if started:
            ray.shutdown()


def _done(task: Callable[[Path], T], file: Path) -> T:
    return task(file)
