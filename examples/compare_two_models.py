"""Is one setting better than another? A hold-out, two models, a paired test: python examples/compare_two_models.py

The data is made up: a text names a colour and a thing among noise, and its labels are these two.
"""

import dataclasses

import numpy as np
import scipy.sparse as sp

import xclearn
from xclearn.data import Dataset, LabelSet, Split, hold_out
from xclearn.metrics import paired_test

COLOURS = ("red", "green", "blue", "white", "black", "grey")
THINGS = ("shirt", "shoes", "hat", "coat", "scarf", "belt", "bag", "socks")


def made_up(n_documents: int, seed: int = 0) -> Dataset:
    """Every label is named by its own word; the other words are noise."""
    random = np.random.default_rng(seed)
    names = [*COLOURS, *THINGS]
    colours = random.integers(len(COLOURS), size=n_documents)
    things = len(COLOURS) + random.integers(len(THINGS), size=n_documents)
    noise = random.integers(500, size=(n_documents, 3))
    texts = [
        " ".join([names[colour], names[thing], *(f"noise{word}" for word in words)])
        for colour, thing, words in zip(colours, things, noise, strict=True)
    ]
    rows, labels = np.repeat(np.arange(n_documents), 2), np.column_stack([colours, things]).ravel()
    shape = (n_documents, len(names))
    relevance = sp.csr_matrix((np.ones(len(rows), np.float32), (rows, labels)), shape=shape)
    return Dataset("made up", Split(texts, relevance), LabelSet(names))


def main() -> None:
    data = made_up(600)
    train, held_out = hold_out(data, fraction=0.3)
    data = dataclasses.replace(data, train=train, dev=held_out)
    reports = {
        dim: xclearn.evaluate(xclearn.OneVsAll(embedding_dim=dim, epochs=5).fit(data), data, split="dev")
        for dim in (4, 32)
    }
    for dim, report in reports.items():
        print(f"embedding_dim {dim:2}: P@1 {report.values['P@1']:.1f}  P@3 {report.values['P@3']:.1f}")
    difference, low, high, p_value = paired_test(reports[32], reports[4], "P@3")
    print(f"P@3 differs by {difference:.1f} points ({low:.1f} to {high:.1f}), p = {p_value:.4f}")


if __name__ == "__main__":
    main()
