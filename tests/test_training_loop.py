"""The loop on stages whose outcome can be computed by hand."""

import itertools

import pytest
import torch

from xclearn.parts.row_update import RowSgd
from xclearn.training.checkpoint import Checkpoint
from xclearn.training.loop import train
from xclearn.training.run import Run
from xclearn.training.stage import Batch, Stage, one_cycle

N, BATCH = 10, 4  # three steps an epoch, the last of two rows


class Module(torch.nn.Module):
    """One number whose gradient is always 1, and a row update to see the schedule's factor in."""

    def __init__(self) -> None:
        super().__init__()
        self.value = torch.nn.Parameter(torch.zeros(()))
        self.update = RowSgd(1, 1, 1.0)


class Recorder:
    """A stage's loss that notes what it was given."""

    def __init__(self, module: Module) -> None:
        self.module, self.rows, self.factors, self.training, self.draws = module, [], [], [], []

    def __call__(self, batch: Batch) -> torch.Tensor:
        self.rows.append(batch.rows.tolist())
        self.factors.append(self.module.update.factor)
        self.training.append(self.module.training)
        self.draws.append((torch.rand(()).item(), torch.rand((), generator=batch.generator).item()))
        return self.module.value - self.module.value.detach() + batch.step


def run_of(events: list, folder=None, seed: int = 0) -> Run:
    return Run(torch.device("cpu"), seed, Checkpoint(folder), events.append)


def stage_of(module: Module, loss, epochs: int = 3, **rest) -> Stage:
    return Stage(
        name="train",
        module=module,
        loss=loss,
        n_items=N,
        batch_size=BATCH,
        epochs=epochs,
        optimisers=[torch.optim.SGD(module.parameters(), lr=2.0)],
        schedule=rest.pop("schedule", lambda _: 1.0),
        **rest,
    )


def test_every_row_is_seen_once_an_epoch_in_a_new_order():
    module = Module()
    loss = Recorder(module)
    train(stage_of(module, loss), run_of([]))
    assert [len(rows) for rows in loss.rows] == [4, 4, 2] * 3
    epochs = [list(itertools.chain(*loss.rows[i : i + 3])) for i in (0, 3, 6)]
    assert all(sorted(epoch) == list(range(N)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert loss.training == [True] * 9


def test_events_come_in_order():
    events, module = [], Module()
    train(stage_of(module, Recorder(module), epochs=2), run_of(events))
    assert [event["event"] for event in events] == ["stage", *["step"] * 3, "epoch", *["step"] * 3, "epoch"]
    assert events[0] == {"event": "stage", "stage": "train", "epochs": 2, "first_epoch": 0, "items": N}
    assert [(e["step"], e["steps"]) for e in events if e["event"] == "step"] == [(i, 6) for i in range(1, 7)]
    first, second = (event for event in events if event["event"] == "epoch")
    assert (first["epoch"], second["epoch"]) == (1, 2)
    assert (first["loss"], second["loss"]) == (1.0, 4.0)  # the mean of the steps' losses 0, 1, 2 and 3, 4, 5
    assert first["score"] is None


def test_steps_that_were_not_measured_do_not_count():
    events, module = [], Module()

    def loss(batch: Batch) -> torch.Tensor:
        return module.value * 0 + (5.0 if batch.step == 1 else float("nan"))

    train(stage_of(module, loss, epochs=1), run_of(events))
    assert events[-1]["loss"] == 5.0


def test_the_schedule_reaches_optimisers_and_row_updates():
    """The gradient is 1, so the value is minus the sum of all learning rates: peak × factor at each step's middle."""
    module, schedule = Module(), one_cycle(0.25)
    loss = Recorder(module)
    train(stage_of(module, loss, schedule=schedule), run_of([]))
    expected = [schedule((step + 0.5) / 9) for step in range(9)]
    assert loss.factors == pytest.approx(expected)
    assert module.value.item() == pytest.approx(-2.0 * sum(expected))


@pytest.mark.parametrize(
    ("scores", "patience", "best", "ran"),
    [
        ([10, 30, 20, 25, 40], 2, 2, 4),  # two epochs without a rise: the fifth never runs
        ([10, 20, 30], 2, 3, 3),  # always rising: all epochs
        ([50, 50, 50, 60], 2, 1, 3),  # equal is no rise
        ([30, 20, 40, 10, 5], 3, 3, 5),
        ([0, 0, 0], 1, 1, 2),  # nothing is ever right: the first epoch counts as best
    ],
)
def test_stopping_keeps_the_best_epoch(scores, patience, best, ran):
    events, module, coming = [], Module(), iter(scores)
    stage = stage_of(module, Recorder(module), len(scores), score=lambda: float(next(coming)), patience=patience)
    train(stage, run_of(events))
    assert module.value.item() == pytest.approx(-2.0 * 3 * best)  # three steps of rate 2 an epoch
    assert [event["score"] for event in events if event["event"] == "epoch"] == scores[:ran]


def test_the_score_is_taken_in_evaluation_mode():
    module, modes = Module(), []
    stage = stage_of(module, Recorder(module), 2, score=lambda: modes.append(module.training) or 1.0, patience=5)
    train(stage, run_of([]))
    assert modes == [False, False]
    assert not module.training


def test_a_score_without_patience_is_reported_and_the_best_kept():
    events, module, coming = [], Module(), iter([3.0, 2.0, 1.0])
    train(stage_of(module, Recorder(module), score=lambda: next(coming)), run_of(events))
    assert [event["score"] for event in events if event["event"] == "epoch"] == [3.0, 2.0, 1.0]
    assert module.value.item() == pytest.approx(-6.0)


def test_draws_depend_on_the_seed_and_the_epoch_and_leave_the_global_generator():
    draws = []
    for seed in (0, 0, 1):
        torch.manual_seed(99)
        module = Module()
        loss = Recorder(module)
        train(stage_of(module, loss), run_of([], seed=seed))
        draws.append((loss.draws, loss.rows))
        after = torch.rand(()).item()
        torch.manual_seed(99)
        assert torch.rand(()).item() == after
    assert draws[0] == draws[1]
    assert draws[0] != draws[2]
    assert len(set(draws[0][0])) == 9


class Interruption(Exception):
    """Ends a run."""


def stop_after(epoch: int, events: list):
    def callback(event) -> None:
        events.append(event)
        if event["event"] == "epoch" and event["epoch"] == epoch:
            raise Interruption

    return callback


@pytest.mark.parametrize("optimiser", [torch.optim.SGD, torch.optim.Adam])
@pytest.mark.parametrize("interrupted", [1, 2, 4])
def test_an_interrupted_stage_goes_on_with_optimiser_and_stopping(tmp_path, optimiser, interrupted):
    scores = [10.0, 30.0, 20.0, 25.0, 40.0]

    def fit(run: Run) -> tuple[float, int]:
        module = Module()
        coming = iter(scores[already:])
        stage = stage_of(
            module, lambda batch: module.value * (batch.step + 1), 5, score=lambda: next(coming), patience=2
        )
        train(Stage(**{**vars(stage), "optimisers": [optimiser(module.parameters(), lr=0.1)]}), run)
        return module.value.item()

    already = 0
    whole = fit(run_of([]))
    with pytest.raises(Interruption):
        fit(Run(torch.device("cpu"), 0, Checkpoint(tmp_path), stop_after(interrupted, [])))
    already, events = interrupted, []
    assert fit(run_of(events, tmp_path)) == whole
    assert events[0] == {"event": "resumed", "stage": "train", "epoch": interrupted}
    assert [event["epoch"] for event in events if event["event"] == "epoch"] == list(range(interrupted + 1, 5))


def test_a_finished_stage_is_restored_without_training(tmp_path):
    module = Module()
    train(stage_of(module, Recorder(module)), run_of([], tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["done-train.safetensors"]
    again, events = Module(), []
    loss = Recorder(again)
    train(stage_of(again, loss), run_of(events, tmp_path))
    assert events == [{"event": "stage_restored", "stage": "train"}]
    assert again.value.item() == module.value.item() != 0
    assert loss.rows == []
    assert not module.training
    assert not again.training


def test_gradients_add_up_over_the_steps_that_an_optimiser_waits():
    """Three steps an epoch, a gradient of one each: it moves after two steps, and at the end of the epoch."""
    module, seen = Module(), []

    def loss(_: Batch) -> torch.Tensor:
        seen.append(module.value.item())
        return module.value * 1.0

    train(stage_of(module, loss, epochs=2, accumulation=[2]), run_of([]))
    assert seen == [0, 0, -4, -6, -8, -8]  # learning rate 2; it moves after steps 2, 3, 4 and 6
    assert module.value.item() == -12
