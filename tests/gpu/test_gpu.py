"""What only a GPU can show. Skipped where there is none; runs under pytest, or as a plain script where that is missing.

python3 -m pytest tests/gpu
python3 tests/gpu/test_gpu.py
"""

import math
import sys
import tempfile
import time
import traceback
from dataclasses import replace
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests"), str(ROOT / "tests" / "contract")]

from planted import planted, relevant_first  # noqa: E402
from quick import epochs_everywhere  # noqa: E402

from xclearn import algorithms  # noqa: E402
from xclearn.algorithms.elias.learned_edges import EdgeIndex, random_edges  # noqa: E402
from xclearn.algorithms.one_vs_all import OneVsAll  # noqa: E402
from xclearn.data import Dataset, LabelSet, Split  # noqa: E402
from xclearn.inference import load  # noqa: E402
from xclearn.inference.components import (  # noqa: E402
    AllLabels,
    Bag,
    Candidates,
    Classifier,
    ClusterBeam,
    GatedBlock,
    Product,
    Sigmoid,
)
from xclearn.inference.placed import DevicePredictor, device_predictor  # noqa: E402
from xclearn.inference.re_ranking import ReRanking, SparseRanker  # noqa: E402
from xclearn.inference.runner import answered_on  # noqa: E402
from xclearn.inference.servable import Ensemble, Servable  # noqa: E402
from xclearn.inference.shortlists import LearnedEdges  # noqa: E402
from xclearn.inference.sparse import SparseFeatures  # noqa: E402
from xclearn.parts.classifiers import RowClassifier, row_width  # noqa: E402
from xclearn.parts.label_rows import LabelRows  # noqa: E402
from xclearn.parts.row_update import RowAdam, RowSgd, RowUpdate  # noqa: E402
from xclearn.parts.rows import Gathered, SparseRows  # noqa: E402
from xclearn.text.vectorisers import SparseVectoriser  # noqa: E402
from xclearn.training.algorithm import Algorithm  # noqa: E402

try:
    import pytest

    pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
except ImportError:  # run as a script
    pytestmark = None

DEVICE = "cuda"
MIB = 1 << 20


def random_rows(n: int, width: int, entries: int, seed: int) -> sp.csr_matrix:
    """(n, width) with about so many ones a row."""
    rng = np.random.default_rng(seed)
    rows, columns = np.repeat(np.arange(n), entries), rng.integers(width, size=n * entries)
    matrix = sp.csr_matrix((np.ones(n * entries, np.float32), (rows, columns)), shape=(n, width))
    matrix.data[:] = 1
    return matrix


class Step:
    """One exact step on random data, in bfloat16 on the GPU and in float64 with autograd as the reference."""

    def __init__(self, n: int, n_labels: int, dim: int, update: type[RowUpdate]) -> None:
        generator = torch.Generator().manual_seed(0)
        self.dim, self.prior, self.lr = dim, -math.log(n_labels + 1), 0.05
        self.x = torch.randn(n, dim, generator=generator)
        self.rows = 0.3 * torch.randn(n_labels, dim + 1, generator=generator) / math.sqrt(dim)  # vector and bias
        self.relevance = random_rows(n, n_labels, 3, seed=1)
        self.update = update(n_labels, row_width(dim), self.lr)

    def fused(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Loss, gradient of x and rows after the step."""
        rows = LabelRows(0, len(self.rows))
        made = RowClassifier(rows, self.dim, self.prior, self.update, torch.bfloat16).to(DEVICE)
        state = made.state_dict()
        state["table"][: len(rows), : self.dim + 1] = self.rows.to(DEVICE)
        made.load_state_dict(state)
        x = self.x.to(DEVICE, copy=True).requires_grad_()
        loss = made.exact_loss(x, self._positives(), measure=True)
        loss.backward()
        assert x.grad is not None
        assert (made.weight[:, self.dim + 1] == 1).all()
        return loss.detach().cpu(), x.grad.cpu(), made.weight[:, : self.dim + 1].cpu()

    def reference(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x, rows = (tensor.double().to(DEVICE).requires_grad_() for tensor in (self.x, self.rows))
        logits = x @ rows[:, : self.dim].T + rows[:, self.dim] + self.prior
        target = torch.from_numpy(self.relevance.toarray()).double().to(DEVICE)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, target, reduction="sum") / len(x)
        loss.backward()
        assert x.grad is not None
        assert rows.grad is not None
        return loss.detach().cpu(), x.grad.cpu(), (rows - self.lr * len(x) * rows.grad).detach().cpu()

    def _positives(self) -> Gathered:
        return SparseRows.of(self.relevance, torch.device(DEVICE)).take(torch.arange(len(self.x), device=DEVICE))


def relative_error(what: str, actual: torch.Tensor, expected: torch.Tensor) -> float:
    error = ((actual.double() - expected).norm() / expected.norm()).item()
    print(f"{what}: relative error {error:.2e}")
    return error


def test_the_exact_step_in_bfloat16_follows_full_precision() -> None:
    step = Step(n=256, n_labels=20_011, dim=302, update=RowSgd)
    (loss, gradient, rows), expected = step.fused(), step.reference()
    assert relative_error("loss", loss, expected[0]) < 1e-2
    assert relative_error("gradient of x", gradient, expected[1]) < 1e-2
    assert relative_error("change of the rows", rows - step.rows, expected[2] - step.rows) < 1e-2


def test_adam_on_the_gpu_moves_every_row_by_at_most_the_rate() -> None:
    """The first step of Adam is the sign of the gradient times the rate."""
    step = Step(n=64, n_labels=5_003, dim=62, update=RowAdam)
    moved = step.fused()[2] - step.rows
    right = step.reference()[2] - step.rows
    clear = right.abs() > 0.1 * right.abs().mean()  # where rounding cannot turn the sign
    assert moved.abs().max() <= step.lr * 1.001
    assert (moved.sign() == right.sign())[clear].float().mean() > 0.99


def fit(name: str, data: Dataset, seed: int = 0) -> Algorithm:
    """A short training: what a GPU might do otherwise than a CPU does not take many epochs."""
    return algorithms.find(name)(**epochs_everywhere(name, 20)).fit(data, device=DEVICE, seed=seed)


def test_the_planted_answer_is_found_by_every_algorithm() -> None:
    names = algorithms.algorithm_names()
    assert len(names) >= 1
    for name in names:
        for kind in ("texts", "sparse", "dense") if name == "one_vs_all" else ("texts",):
            data, started = planted(kind), time.perf_counter()
            found = relevant_first(data, fit(name, data).predict(data.split("test").documents).ids)
            print(f"{name} on {kind}: P@1 {found:.3f}, {time.perf_counter() - started:.1f} s", flush=True)
            assert found > 0.9, (name, kind)


def test_a_model_trained_on_a_gpu_predicts_on_a_cpu() -> None:
    """In a folder, loaded by the predictor that knows no device."""
    data = planted()
    algorithm = fit("one_vs_all", data)
    documents = data.split("test").documents
    with tempfile.TemporaryDirectory() as folder:
        algorithm.save(Path(folder) / "model")
        predictor = load(Path(folder) / "model")
        assert predictor.about["training"]["device"] == DEVICE
        before, after = algorithm.predict(documents), predictor.predict(documents)
    assert (before.ids == after.ids).all()
    np.testing.assert_allclose(before.scores, after.scores, rtol=1e-5)
    assert relevant_first(data, after.ids) > 0.9


class Interruption(Exception):
    """Ends a training after its second epoch."""


def test_a_resumed_training_goes_on_from_its_checkpoint() -> None:
    """Sums on a GPU are not bit-equal from run to run; what must hold is that it goes on, and finds the answer."""
    data, events = planted(), []

    def interrupt(event: object) -> None:
        if event["event"] == "epoch" and event["epoch"] == 2:  # type: ignore[index]
            raise Interruption

    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "checkpoint"
        try:
            OneVsAll().fit(data, device=DEVICE, checkpoint=checkpoint, callback=interrupt)
        except Interruption:
            pass
        else:
            raise AssertionError("the training was not interrupted")
        resumed = OneVsAll().fit(data, device=DEVICE, checkpoint=checkpoint, resume=True, callback=events.append)
    assert [event["epoch"] for event in events if event["event"] == "resumed"] == [2]
    assert relevant_first(data, resumed.predict(data.split("test").documents).ids) > 0.9


def planned_and_measured(n_labels: int, n_features: int, **settings: object) -> tuple[int, int]:
    """Bytes that the plan says, and that torch's allocator had given out at most."""
    n = 17 * 1024  # steps: in every sixteenth the loss is measured, then beside all moments
    train = Split(random_rows(n, n_features, 20, seed=0), random_rows(n, n_labels, 4, seed=1))
    data = Dataset("random", train, LabelSet([str(label) for label in range(n_labels)]))
    name = str(settings.pop("algorithm", "one_vs_all"))
    algorithm = algorithms.find(name)(**epochs_everywhere(name, 1), batch_size=1024, embedding_dim=302, **settings)
    plan = algorithm.plan(data, device=DEVICE)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    algorithm.fit(data, device=DEVICE)
    return plan.peak, torch.cuda.max_memory_allocated() - before


def test_the_planned_peak_is_within_a_quarter_of_the_measured_one() -> None:
    ratios = {}
    for name, arguments in {
        "131K labels": {"n_labels": 131_000, "n_features": 40_000},
        "670K labels": {"n_labels": 670_000, "n_features": 100_000},
        "131K labels, elias": {"n_labels": 131_000, "n_features": 40_000, "algorithm": "elias"},
        "131K labels, adam": {"n_labels": 131_000, "n_features": 40_000, "label_optimiser": "adam", "label_lr": 0.01},
    }.items():
        planned, measured = planned_and_measured(**arguments)
        ratios[name] = planned / measured
        print(f"{name}: planned {planned / MIB:.0f} MiB, measured {measured / MIB:.0f} MiB, ratio {ratios[name]:.3f}")
    assert all(0.75 < ratio < 1.25 for ratio in ratios.values()), ratios


def test_paths_on_the_gpu_are_those_on_the_cpu() -> None:
    """From the same chances; on the CPU the native core searches."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.from_numpy(random_edges((64, 50), 1000, 0))
    index = EdgeIndex(16, labels, torch.rand(labels.shape), n_labels=1000, cluster_scale=10.0, edge_scale=20.0)
    positives = SparseRows.of(random_rows(100, 1000, 3, seed=1), torch.device("cpu")).take(torch.arange(100))
    with torch.no_grad():
        chances, strengths = index.chances(torch.randn(100, 16, generator=generator)), index.strengths()
        expected = index.paths(chances, strengths, 10, 200, positives)
        there = Gathered(*(part.to(DEVICE) for part in positives))
        found = index.to(DEVICE).paths(chances.to(DEVICE), strengths.to(DEVICE), 10, 200, there)
    assert all(torch.equal(ours.cpu(), theirs) for ours, theirs in zip(found, expected, strict=True))


def random_servable(seed: int, *, exact: bool, beam: int = 0, n_labels: int = 5_003, dim: int = 96) -> Servable:
    """Of random values, or of small whole numbers, whose sums are exact and often equal."""
    rng = np.random.default_rng(seed)

    def values(*shape: int) -> np.ndarray:
        drawn = rng.integers(-1, 2, shape) if exact else rng.standard_normal(shape) / dim**0.5
        return drawn.astype(np.float32)

    gates = rng.integers(0, 2, (2, dim)).astype(np.float32)
    encoder = Bag(values(400, dim), [GatedBlock(values(dim, dim), values(dim), *gates)])
    candidates: Candidates = AllLabels()
    if beam:
        starts = np.linspace(0, n_labels, 65).astype(np.int64)
        candidates = ClusterBeam("document", values(64, dim), values(64), rng.permutation(n_labels), starts, beam)
    scorer = Classifier("document", values(n_labels, dim), values(n_labels))
    fusion = Product() if beam else Sigmoid()
    return Servable(SparseVectoriser(400), {"document": encoder}, candidates, [scorer], fusion)


def re_ranked_servable(seed: int) -> Servable:
    """Labels found by learnt edges and ranked anew by sparse classifiers, which follow on the CPU."""
    plain, rng = random_servable(seed, exact=False), np.random.default_rng(seed)
    labels, n_labels, dim = (
        random_edges((64, 300), plain.n_labels, seed),
        plain.n_labels,
        plain.encoders["document"].dim,
    )
    clusters = (rng.standard_normal((64, dim + 1)) / 8).astype(np.float32)
    chances = rng.random(labels.shape, np.float32)
    index = LearnedEdges("document", clusters[:, 1:], clusters[:, 0], 3.0, 10, labels.astype(np.int32), chances, 500)
    weights = sp.random(n_labels, 400 + dim, 0.02, format="csr", random_state=seed, dtype=np.float32)
    ranker = SparseRanker.of("bag", "document", weights, np.zeros(n_labels, np.float32))
    encoders = {**plain.encoders, "bag": SparseFeatures(400, True)}
    return replace(plain, encoders=encoders, candidates=index, steps=[ReRanking(50, ranker, None)])


def test_prediction_on_the_gpu_is_that_in_numpy() -> None:
    """Ids to the last one where sums are exact; else all but near ties, and scores up to rounding."""
    features, rng = random_rows(3_000, 400, 4, seed=2), np.random.default_rng(3)
    features[:5] *= 0
    features.eliminate_zeros()
    exclude = np.column_stack([rng.integers(0, 3_000, 50_000), rng.integers(0, 5_003, 50_000)])
    rounded = [random_servable(4, exact=False), random_servable(5, exact=False, beam=5), re_ranked_servable(7)]
    for servable, least in ((random_servable(6, exact=True), 1.0), *((each, 0.999) for each in rounded)):
        for at_once in (1 << 20, 1 << 27):  # several blocks of labels, and one
            placed = device_predictor(servable, DEVICE, scores_at_once=at_once)
            found, expected = placed.rank(features, 20, exclude), servable.rank(features, 20, exclude)
            same, apart = (found.ids == expected.ids).mean(), np.abs(found.scores - expected.scores).max()
            print(f"same ids {same:.5f}, largest difference of scores {apart:.1e}")
            assert same >= least
            assert apart < 1e-5
    ensemble = Ensemble(rounded)
    found, expected = (each.predict(features, 5, exclude) for each in (device_predictor(ensemble, DEVICE), ensemble))
    assert (found.ids == expected.ids).mean() > 0.999
    assert np.abs(found.scores - expected.scores).max() < 1e-5
    for servable in rounded:  # no tokens at all, and nothing excluded
        found = device_predictor(servable, DEVICE).rank(features[:2], 3)
        assert (found.ids == servable.rank(features[:2], 3).ids).all()


def test_a_blend_judges_its_members_on_the_gpu() -> None:
    data = planted(train=20)
    model = algorithms.find("blend")(members=("one_vs_all epochs=3", "label_tree"), folds=2).fit(data, device=DEVICE)
    sources, texts = model.model.servable.sources, data.split("test").documents
    placed = answered_on(sources, "auto")
    assert isinstance(placed.answering[0], DevicePredictor)
    assert not isinstance(placed.answering[1], DevicePredictor)  # a tree answers on the CPU
    ours, theirs = placed.evidence(texts), sources.evidence(texts)
    shared = np.intersect1d(ours.rows * 1000 + ours.labels, theirs.rows * 1000 + theirs.labels)
    assert len(shared) > 0.98 * len(theirs.rows)
    assert relevant_first(data, model.predict(texts).ids) > 0.9


def main() -> int:
    """Run every test of this file; 0 when all pass."""
    if not torch.cuda.is_available():
        print("skipped: no CUDA device")
        return 0
    tests = {name: value for name, value in globals().items() if name.startswith("test_")}
    failed = []
    for name, test in tests.items():
        try:
            test()
            print(f"passed {name}")
        except Exception:
            traceback.print_exc()
            failed.append(name)
    print(f"{len(tests) - len(failed)} of {len(tests)} passed; failed: {failed or 'none'}")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
