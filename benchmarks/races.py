"""`make races`: predictions by threads and by forks of a native core that is built with ThreadSanitizer.

`train FOLDER` writes a small model of every algorithm, in an ordinary process; `ask FOLDER NATIVE` reads them with the
other build preloaded and asks each by eight threads at once and by a fork. ThreadSanitizer itself ends the process with
66 if it saw a race; other answers end it with 1. `record FOLDER` adds the row of a run that ended well.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

K, ASKERS, TIMES, ALONE = 5, 8, 3, 30
ASKED = "asked.json"


def train(folder: Path) -> None:
    """A model of each algorithm that finds its labels natively, and texts to ask."""
    from benchmarks.chaos.planted import quick, write_data

    from xclearn import algorithms, config, load_dataset

    data = load_dataset(write_data(folder / "data"))
    for name in algorithms.algorithm_names():
        algorithm = config.build(algorithms.find(name), config.merge({}, quick(name, 2)), name)
        algorithm.fit(data, device="cpu").save(folder / "models" / name)
    (folder / "texts.txt").write_text("\n".join(data.train.documents), encoding="utf-8")


def ask(folder: Path, native: Path) -> int:
    """How many models did not give the same answers from everywhere."""
    _load(native)
    from xclearn.inference import load_model

    texts = (folder / "texts.txt").read_text(encoding="utf-8").split("\n")
    wrong, started, paths = 0, time.monotonic(), sorted((folder / "models").iterdir())
    for path in paths:
        same = _same_from_everywhere(load_model(path).servable, texts)
        print(f"{path.name}: {'the same' if same else 'OTHER'} answers", flush=True)
        wrong += not same
    row = {"models": len(paths), "askers": ASKERS, "texts": len(texts), "wrong": wrong}
    (folder / ASKED).write_text(json.dumps(row | {"seconds": round(time.monotonic() - started)}))
    return wrong


def _load(native: Path) -> None:
    spec = importlib.util.spec_from_file_location("xclearn.kernels._native", native)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["xclearn.kernels._native"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


def _same_from_everywhere(servable: Any, texts: list[str]) -> bool:
    expected = _answers(servable, texts)
    found: list[str] = []

    def work() -> None:
        found.extend(_answers(servable, texts) for _ in range(TIMES))

    threads = [threading.Thread(target=work) for _ in range(ASKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    child = os.fork()
    if child == 0:
        os._exit(0 if _answers(servable, texts) == expected else 3)
    by_a_fork = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return found == [expected] * (ASKERS * TIMES) and by_a_fork == 0


def _answers(servable: Any, texts: list[str]) -> str:
    """Of all texts at once, and of some alone."""
    digest = hashlib.sha256()
    for asked in (texts, *([text] for text in texts[:ALONE])):
        found = servable.predict(asked, K)
        digest.update(found.ids.tobytes() + found.scores.tobytes())
    return digest.hexdigest()


if __name__ == "__main__":
    if sys.argv[1] == "train":
        train(Path(sys.argv[2]))
    elif sys.argv[1] == "record":
        from benchmarks.record import record

        record("races", json.loads((Path(sys.argv[2]) / ASKED).read_text()))
    else:
        sys.exit(min(1, ask(Path(sys.argv[2]), Path(sys.argv[3]))))
