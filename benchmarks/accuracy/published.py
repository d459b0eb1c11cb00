"""A published table end to end: the set, each shipped configuration for it, and our figures beside those of the paper.

    python -m benchmarks.accuracy.published LF-AmazonTitles-131K --algorithms decaf eclare astec

fetches the set where it is not in `--data-folder` yet (`--from` names an archive that is here), trains every file
configs/<algorithm>/<set>*.toml, and adds a row for each to published.csv in `--folder` with what the paper says, which
stands in the file's own comment `# expected:`. What has a row is not run again unless `--again`. A file that cannot be
trained, such as one that needs a pretrained encoder, is reported at the end and does not stop the others.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
import time
import traceback
from pathlib import Path

from benchmarks.accuracy.run import forget_peak, peak_mib, settings_for
from benchmarks.record import RESULTS, record, resolved

from xclearn import algorithms, config
from xclearn.data import Dataset, load_dataset
from xclearn.data.published import download_dataset
from xclearn.inference import evaluate

CONFIGS = Path(__file__).parents[2] / "configs"
ALGORITHMS = ("decaf", "eclare", "astec", "lightdxml", "elias")
_FIGURES = re.compile(r"\b(P|PSP|nDCG|R)@([\d/]+) ([\d./]+)")


def main() -> None:
    arguments = _arguments()
    folder = Path(arguments.data_folder) / arguments.name
    if not folder.exists():
        found = download_dataset(arguments.name, folder, source=arguments.source)
        print(f"{found.folder}: the archive's SHA-256 is {found.sha256}", flush=True)
    files = configurations(arguments.name, arguments.algorithms, Path(arguments.configs))
    data = load_dataset(folder, name=arguments.name)
    failed = []
    for path in files:
        for seed in arguments.seeds:
            try:
                measure(path, data, seed, arguments)
            except Exception:  # one file that cannot be trained must not cost the rows of the others
                traceback.print_exc()
                failed.append(f"{path.parent.name}/{path.stem}")
    if failed or not files:
        print(f"failed: {', '.join(failed)}" if failed else f"no configuration of {arguments.name}", flush=True)
        sys.exit(1)


def configurations(name: str, wanted: list[str], folder: Path) -> list[Path]:
    """The files of a set, the plain one of each algorithm before its variants."""
    return [path for algorithm in wanted for path in sorted((folder / algorithm).glob(f"{name}*.toml"), key=_by_length)]


def published(path: Path) -> dict[str, float]:
    """The figures in the comment of a configuration that says what is expected."""
    comment = path.read_text(encoding="utf-8").partition("# expected:")[2].partition(";")[0]
    found = {}
    for metric, ks, values in _FIGURES.findall(comment):
        for k, value in zip(ks.split("/"), values.split("/"), strict=True):
            found[f"{metric}@{k}"] = float(value)
    return found


def measure(path: Path, data: Dataset, seed: int, arguments: argparse.Namespace) -> None:
    """Train one configuration, write its row down, and print both lines."""
    name = path.parent.name
    changes = settings_for(name, arguments)
    facts = {"data": data.name, "config": f"{name}/{path.stem}", "settings": " ".join(changes), "seed": f"{seed}"}
    if not arguments.again and _recorded(facts, Path(arguments.folder)):
        print(f"{facts['config']} seed {seed}: has its row", flush=True)
        return
    settings = config.merge(config.read_toml(path).get("settings", {}), changes)
    algorithm = config.build(algorithms.find(name), settings, name)
    forget_peak()
    started = time.perf_counter()
    algorithm.fit(data, device=arguments.device, seed=seed)
    times = {"train_s": round(time.perf_counter() - started, 1), "peak_mib": peak_mib()}
    report = evaluate(algorithm, data, device="auto")
    expected = published(path)
    values = {metric: round(value, 3) for metric, value in report.values.items()}
    said = {f"{metric}_published": value for metric, value in expected.items()}
    folder = Path(arguments.folder)
    record("published", facts | {"resolved": resolved(algorithm, folder)} | times | values | said, folder)
    shown = [metric for metric in expected or ("P@1", "P@5", "PSP@1", "PSP@5") if metric in values]
    beside = (f"{metric} {values[metric]:.2f} ({expected.get(metric, 'none')})" for metric in shown)
    print(f"{facts['config']} seed {seed}, ours (published): {', '.join(beside)}", flush=True)


def _recorded(facts: dict[str, str], folder: Path) -> bool:
    path = folder / "published.csv"
    if not path.exists():
        return False
    with path.open(encoding="utf-8") as stream:
        return any(all(row[key] == value for key, value in facts.items()) for row in csv.DictReader(stream))


def _by_length(path: Path) -> tuple[int, str]:
    return len(path.stem), path.stem


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="a published set: see `xc data download`")
    parser.add_argument("--algorithms", nargs="+", default=list(ALGORITHMS), choices=ALGORITHMS)
    parser.add_argument("--data-folder", default=".", help="where the set is, or is put")
    parser.add_argument("--from", dest="source", help="the set's zip file, or another address of it")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="of every algorithm that has it"
    )
    parser.add_argument("--again", action="store_true", help="run what has a row too")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--configs", default=str(CONFIGS), help="the folder of configurations")
    parser.add_argument("--folder", default=str(RESULTS), help="where the results are")
    return parser.parse_args()


if __name__ == "__main__":
    main()
