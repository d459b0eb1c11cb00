"""The steps that `gpu.py` measures: each as the training loop runs it, optimisers included, on a planted set."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import final

import torch
from benchmarks.speed.planted import SHAPES, Planted, Shape, planted
from benchmarks.speed.timing import products

from xclearn.algorithms.decaf import Decaf
from xclearn.parts.classifiers import row_width
from xclearn.parts.encoders import BagEncoder, random_table
from xclearn.parts.losses import blocks, filled_up
from xclearn.parts.row_training import Negatives, RowTask, row_classifier
from xclearn.parts.sparse_products import PlainProduct
from xclearn.parts.text_network import Blocks, OutputTexts, TextNetwork, first_refinement
from xclearn.parts.text_training import TextTask
from xclearn.training.loop import step
from xclearn.training.row_stages import RowStages
from xclearn.training.stage import Batch, Stage

DIM = 302  # of one_vs_all; decaf has rows of the same width
_BATCHES = 16  # different ones in turn
_MOST_DOCUMENTS = 200_000  # a step does not depend on how many there are


@final
class Case:
    """A set on a device and the steps on it."""

    def __init__(self, name: str, device: str) -> None:
        self.name, self.device = name, torch.device(device)
        full = SHAPES[name]
        n = min(full.documents, _MOST_DOCUMENTS)
        self.shape = Shape(n, full.labels, full.words, full.length, full.relevant)
        self.data: Planted = planted(self.shape, device)

    def floor(self, batch: int) -> Callable[[], None]:
        """The three products of an exact step, in the blocks of the classifier."""
        half = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        left = torch.randn(batch, row_width(DIM), device=self.device, dtype=half)
        weight = torch.randn(filled_up(self.shape.labels), row_width(DIM), device=self.device, dtype=half)
        ranges = blocks(len(weight), batch, self.device.type)
        return lambda: products(left, weight, ranges)

    def step(self, what: str, batch: int) -> Callable[[], torch.Tensor]:
        """One step of an algorithm on the next batch."""
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(0)
            stage = STEPS[what](self, batch)
        stage.module.to(self.device).train()
        generator = torch.Generator(self.device).manual_seed(0)
        rows = torch.randint(stage.n_items, (_BATCHES, batch), generator=generator, device=self.device)
        turn = itertools.count(1)

        def run() -> torch.Tensor:
            number = next(turn)
            return step(stage, Batch(rows=rows[number % _BATCHES], step=number, generator=generator))

        return run


def _rows(case: Case, batch: int, optimiser: str) -> Stage:
    words, documents = case.shape.words, case.data.documents
    encoder = BagEncoder(words, DIM, 0.3, torch.Generator().manual_seed(0), sparse=case.device.type == "cpu")
    classifier = row_classifier(case.shape.labels, DIM, 0.1, optimiser, "bce_sum", case.device)
    task = RowTask(encoder.to(case.device), classifier, documents, case.data.relevance, Negatives())
    stages = RowStages(dim=DIM, batch_size=batch, warm_up=0.1, stopping=None, device=case.device.type)
    return stages.stage("train", task, 0.003, 1000)


def _decaf(case: Case, batch: int, *, refined: bool, plain: bool = False) -> Stage:
    dim = row_width(DIM)
    texts = OutputTexts(case.data.texts)
    table = random_table(case.shape.words, dim, torch.Generator().manual_seed(0)).detach().to(case.device)
    refinement = first_refinement(texts, table) if refined else None
    blocks = Blocks(0.25, spectral=True)
    network = TextNetwork(table, [texts], blocks, use_text=True, refinement=refinement, sparse=False).to(case.device)
    if plain:  # by autograd, whose gradients are the oracle
        texts.product = PlainProduct(case.data.texts)
        setattr(network, "mixture", lambda: None)  # noqa: B010 (a method of the class)
    compute = torch.bfloat16 if case.device.type == "cuda" else torch.float32
    task = TextTask(network, case.data.documents, case.data.relevance, -10.0, compute)
    return Decaf(ranker="exact", batch_size=batch)._stage("train", task, 1000, 0.005)


STEPS: dict[str, Callable[[Case, int], Stage]] = {
    "one_vs_all": lambda case, batch: _rows(case, batch, "sgd"),
    "one_vs_all adam": lambda case, batch: _rows(case, batch, "adam"),
    "decaf plain": lambda case, batch: _decaf(case, batch, refined=True, plain=True),
    "decaf surrogate": lambda case, batch: _decaf(case, batch, refined=False),
    "decaf": lambda case, batch: _decaf(case, batch, refined=True),
}
