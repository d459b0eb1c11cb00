"""The exact extreme step on a GPU against its floor: the three matrix products it cannot do without, in the same run.

python -m benchmarks.speed.exact_step --labels 103849 131073 670091 --dim 302 --batch 1024
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from benchmarks.record import RESULTS, record
from benchmarks.speed.timing import median_ms, products

from xclearn.parts.classifiers import RowClassifier, row_width
from xclearn.parts.label_rows import LabelRows
from xclearn.parts.losses import blocks, filled_up
from xclearn.parts.row_update import RowAdam, RowSgd
from xclearn.parts.rows import Gathered

UPDATES = {"sgd": RowSgd, "adam": RowAdam}


def main() -> None:
    arguments = _arguments()
    for n_labels in arguments.labels:
        for update in arguments.updates:
            row = measure(n_labels, arguments.dim, arguments.batch, update)
            record("exact_step", row, Path(arguments.folder))
            print(" ".join(f"{key}={value}" for key, value in row.items()), flush=True)


def measure(n_labels: int, dim: int, batch: int, update: str) -> dict[str, float | int | str]:
    """Milliseconds of one step and of its three products; medians."""
    device = torch.device("cuda")
    rows, width = LabelRows(0, n_labels), row_width(dim)
    optimiser = UPDATES[update](n_labels, width, 0.01)
    classifier = RowClassifier(rows, dim, -10.0, optimiser, torch.bfloat16).to(device)
    x = torch.randn(batch, dim, device=device)
    owner = torch.arange(batch, device=device).repeat_interleave(3)
    columns = torch.randint(n_labels, (3 * batch,), device=device)
    positives = Gathered(owner, columns, torch.ones_like(owner, dtype=torch.float32), owner[::3])
    left = torch.randn(batch, width, device=device, dtype=torch.bfloat16)
    weight = torch.randn(filled_up(n_labels), width, device=device, dtype=torch.bfloat16)
    floor = median_ms(lambda: products(left, weight, blocks(len(weight), batch, "cuda")), 20, 20)
    step = median_ms(lambda: classifier.step(x, positives, None, False), 20, 20)
    flops = 6 * batch * n_labels * width
    return {
        "labels": n_labels,
        "dim": dim,
        "batch": batch,
        "update": update,
        "step_ms": round(step, 3),
        "products_ms": round(floor, 3),
        "ratio": round(step / floor, 3),
        "tflops": round(flops / step / 1e9, 1),
        "peak_mib": torch.cuda.max_memory_allocated() >> 20,
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, nargs="+", default=[103_849])
    parser.add_argument("--dim", type=int, default=302)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--updates", nargs="+", default=["sgd", "adam"])
    parser.add_argument("--folder", default=str(RESULTS))
    return parser.parse_args()


if __name__ == "__main__":
    main()
