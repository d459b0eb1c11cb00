"""What each of several processes does for `test_training_sharding.py`: fits every case, and tells what it held."""

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from planted import planted

from xclearn import algorithms
from xclearn.algorithms.decaf import Decaf
from xclearn.algorithms.dual_encoder import DualEncoder
from xclearn.algorithms.elias import Elias
from xclearn.algorithms.elias.stages import Phase
from xclearn.algorithms.one_vs_all import OneVsAll
from xclearn.algorithms.xml_cnn import XmlCnn
from xclearn.data import Dataset
from xclearn.errors import XclearnError
from xclearn.parts.calibration import Calibration
from xclearn.parts.ranks import Ranks
from xclearn.parts.sparse_ranking import SparseRanking
from xclearn.training.algorithm import Algorithm
from xclearn.training.checkpoint import Checkpoint
from xclearn.training.loop import train
from xclearn.training.prepare import prepare
from xclearn.training.run import Run
from xclearn.training.sharding import job, kept_rows, make_equal
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
    "followed": lambda: OneVsAll(epochs=2, sparse_ranker=SparseRanking(), calibrate=True),
    "elias": lambda: Elias(
        first_epochs=3, second_epochs=3, label_optimiser="adam", first=ADAM, second=ADAM, stopping=Stopping()
    ),
    "xml_cnn": lambda: XmlCnn(epochs=2),
    "decaf": lambda: Decaf(ranker="exact", surrogate_epochs=3, ranker_epochs=3),
    "decaf sampled": lambda: Decaf(
        ranker="sampled", surrogate_epochs=3, ranker_epochs=3, n_negatives=20, stopping=Stopping()
    ),
    "decaf, few drawn": lambda: Decaf(
        ranker="sampled", surrogate_epochs=1, ranker_epochs=1, n_negatives=1, batch_size=1, embedding_dim=8
    ),
    "decaf without texts": lambda: Decaf(ranker="exact", surrogate_epochs=1, ranker_epochs=3, label_text=False),
    "dual": lambda: DualEncoder(epochs=3, row_epochs=2, n_negatives=N_LABELS, stopping=Stopping()),
    "dual, drawn": lambda: DualEncoder(
        epochs=4,
        n_negatives=20,
        hard_negatives=2,
        refresh_every=1,
        label_documents=True,
        average=0.3,
        row_negatives="drawn",
        row_epochs=2,
    ),
}


def data() -> Dataset:
    return planted(n_labels=N_LABELS, train=6)


HOLDING = [
    OneVsAll(label_optimiser="adam", label_lr=0.01),
    Decaf(ranker="exact", surrogate_epochs=1, ranker_epochs=1),
    DualEncoder(epochs=1, row_epochs=1),
    DualEncoder(epochs=1, row_epochs=1, row_negatives="drawn"),
]


def held_rows(algorithm: Algorithm) -> dict[str, list[int]]:
    """The shapes of what the module of its last stage holds for labels."""
    prepared, run = prepare(data(), algorithm.vectoriser, None, 0), Run(CPU, 0, Checkpoint(None), lambda _: None)
    for stage in algorithm._resolve(prepared.size, "cpu")._stages(prepared, run):
        module = stage.module
        train(stage, run)
    rows = {name.removeprefix("module.") for name in kept_rows(module)}
    return {name: list(value.shape) for name, value in module.state_dict().items() if name in rows}


def planned(algorithm: Algorithm, ranks: Ranks) -> int:
    """Bytes of parameters in the plan of the last stage."""
    size = dataclasses.replace(prepare(data(), algorithm.vectoriser, None, 0).size, n_processes=ranks.count)
    return algorithm._resolve(size, "cpu")._plan(size, "cpu").stages[-1].parameters


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
            kept = out / "checkpoints" / name if name == "followed" else None
            fitted = algorithm().fit(data(), device="cpu", checkpoint=kept)
            if ranks.is_first:
                fitted.save(out / name)
        told = {
            "rows": [held_rows(algorithm) for algorithm in HOLDING],
            "bytes": [planned(algorithm, ranks) for algorithm in HOLDING],
            "equal": made_equal(ranks),
            "refused": refused(),
        }
        (out / f"told-{ranks.rank}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
