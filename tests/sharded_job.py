"""What each of several processes does for `test_training_sharding.py`: fits every case, and tells what it held."""

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from planted import planted

from xclearn import algorithms
from xclearn.algorithms.elias import Elias
from xclearn.algorithms.elias.stages import Phase
from xclearn.algorithms.one_vs_all import OneVsAll
from xclearn.algorithms.xml_cnn import XmlCnn
from xclearn.data import Dataset
from xclearn.errors import XclearnError
from xclearn.parts.calibration import Calibration
from xclearn.parts.ranks import Ranks
from xclearn.training.algorithm import Algorithm
from xclearn.training.checkpoint import Checkpoint
from xclearn.training.prepare import prepare
from xclearn.training.run import Run
from xclearn.training.sharding import job, make_equal
from xclearn.training.stage import Stopping

ADAM = Phase(label_lr=0.01)
CPU = torch.device("cpu")
N_LABELS = 151  # no multiple of the number of processes, nor of a block
CASES: dict[str, Callable[[], Algorithm]] = {
    "exact": lambda: OneVsAll(epochs=8),
    "adam": lambda: OneVsAll(epochs=8, label_optimiser="adam", label_lr=0.01),
    "sampled": lambda: OneVsAll(epochs=8, exact_labels=10, n_negatives=20),
    "few drawn": lambda: OneVsAll(epochs=1, exact_labels=10, n_negatives=1, batch_size=1, embedding_dim=8),
    "stopped": lambda: OneVsAll(epochs=8, stopping=Stopping(), calibration=Calibration()),
    "elias": lambda: Elias(
        first_epochs=3, second_epochs=3, label_optimiser="adam", first=ADAM, second=ADAM, stopping=Stopping()
    ),
    "xml_cnn": lambda: XmlCnn(epochs=2),
}


def data() -> Dataset:
    return planted(n_labels=N_LABELS, train=6)


def held_rows(algorithm: Algorithm) -> dict[str, list[int]]:
    """The shapes of what the module of its stage holds for labels."""
    prepared, run = prepare(data(), algorithm.vectoriser, None, 0), Run(CPU, 0, Checkpoint(None), lambda _: None)
    (stage,) = algorithm._resolve(prepared.size, "cpu")._stages(prepared, run)
    return {name: list(v.shape) for name, v in stage.module.state_dict().items() if name.startswith("classifier.")}


def planned(algorithm: Algorithm, ranks: Ranks) -> int:
    """Bytes of parameters in the plan."""
    size = dataclasses.replace(prepare(data(), algorithm.vectoriser, None, 0).size, n_processes=ranks.count)
    return algorithm._resolve(size, "cpu")._plan(size, "cpu").stages[0].parameters


def made_equal(ranks: Ranks) -> list[float]:
    """Weights and the optimiser's state that differ from process to process, after they were made equal."""
    module = torch.nn.Linear(1, 1, bias=False)
    optimiser = torch.optim.Adam(module.parameters())
    module.weight.grad = torch.full((1, 1), ranks.rank + 1.0)
    optimiser.step()
    torch.nn.init.constant_(module.weight, ranks.rank + 1.0)
    make_equal(ranks, module, [optimiser])
    return [module.weight.item(), round(optimiser.state[module.weight]["exp_avg"].item(), 6)]


def refused() -> str:
    try:
        algorithms.find("label_tree")().fit(data())
    except XclearnError as error:
        return str(error)
    except SystemExit as end:
        return f"exit {end.code}"
    return ""


def main(out: Path) -> None:
    with job() as ranks:
        for name, algorithm in CASES.items():
            fitted = algorithm().fit(data(), device="cpu")
            if ranks.is_first:
                fitted.save(out / name)
        told = {
            "rows": held_rows(OneVsAll(label_optimiser="adam", label_lr=0.01)),
            "bytes": planned(OneVsAll(), ranks),
            "equal": made_equal(ranks),
            "refused": refused(),
        }
        (out / f"told-{ranks.rank}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
