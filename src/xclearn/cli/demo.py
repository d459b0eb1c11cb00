"""`xc demo`: training, evaluation and prediction on the bundled set, in minutes."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from xclearn.cli.answers import cut, label_text
from xclearn.cli.progress import say
from xclearn.cli.training import DEFAULT, Request, describe, fit, measure_and_save, read_request, refuse_occupied

if TYPE_CHECKING:
    from xclearn.data import Dataset
    from xclearn.inference import Predictor

DATA, EXAMPLES = "wordnet-related", 10
SETTINGS = ("time_budget=4", "refit=false")  # overridden by the command line; time goes into members, not a refit
# The best peer on the same texts and split (benchmarks/results/peers.csv).
PEER = "omikuji Bonsai ×3"
PEERS = {"P@1": 25.22, "P@3": 12.57, "P@5": 8.50, "PSP@1": 14.82, "PSP@5": 21.25, "R@10": 40.51}


def run_demo(out: Path, settings: tuple[str, ...], device: str, overwrite: bool) -> None:
    """Train, compare with label popularity, print ten predictions and the next commands."""
    from xclearn.data import load_dataset
    from xclearn.inference import Predictor

    request = Request(DATA, DEFAULT, out, (*SETTINGS, *settings), device=device, overwrite=overwrite)
    _, algorithm = read_request(request)
    refuse_occupied(out, overwrite)
    started = time.perf_counter()
    data = load_dataset(DATA)
    say(describe(data))
    fit(algorithm, data, request)
    values = measure_and_save(algorithm, data, request)
    _print_scores(values, _popularity(data), time.perf_counter() - started)
    _print_examples(Predictor.load(out), data)
    folder = shlex.quote(str(out))
    print(f"\nThe model is in {folder}. Next:")
    print(f'  echo "a small wild cat" | xc predict {folder}\n  xc evaluate {folder} {DATA} --bins')


def _popularity(data: Dataset) -> dict[str, float]:
    """The scores of always predicting the most frequent labels."""
    from xclearn.data.topk import TopK
    from xclearn.inference.evaluation import label_counts, label_weights
    from xclearn.metrics import RECALL_KS, evaluate_predictions

    counts, test = label_counts(data), data.split("test")
    order = np.argsort(-counts, kind="stable")[: 2 * max(RECALL_KS)]
    ids = np.tile(order, (len(test), 1))
    scores = np.tile(counts[order].astype(np.float32), (len(test), 1))
    weights, pairs = label_weights(data), test.filter_pairs
    return evaluate_predictions(TopK(ids, scores), test.relevance, weights, filter_pairs=pairs).values


def _print_scores(values: dict[str, float], baseline: dict[str, float], seconds: float) -> None:
    names = ("P@1", "P@3", "P@5", "PSP@1", "PSP@5", "R@10")
    print(f"\nTest split, percent ({seconds:.0f} s from data to scores):")
    print("                   " + "".join(f"{name:>8}" for name in names))
    for title, row in ((f"xclearn {DEFAULT}", values), (PEER, PEERS), ("label popularity", baseline)):
        print(f"  {title:<17}" + "".join(f"{row[name]:8.2f}" for name in names))


def _print_examples(predictor: Predictor, data: Dataset) -> None:
    test = data.split("test")
    rows = np.linspace(0, len(test) - 1, EXAMPLES).astype(int)
    part = test.take(rows)
    texts = [str(text) for text in part.documents]
    print(f"\n{EXAMPLES} texts of the test split and their best labels (+ marks a correct one):")
    for i, found in enumerate(predictor.suggest(texts, 3, part.filter_pairs)):
        right = {data.labels.names[label] for label in part.relevance[i].indices}
        print(f"\n{cut(texts[i], 100)}")
        for suggestion in found:
            print(
                f"  {'+' if suggestion.label in right else ' '} {suggestion.score:5.3f}  {label_text(suggestion, 90)}"
            )
