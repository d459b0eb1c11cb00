"""Seeds by name, kept structures, devices."""

import itertools
import re

import numpy as np
import pytest
import torch

from xclearn.errors import ConfigError
from xclearn.training.checkpoint import Checkpoint
from xclearn.training.run import Run, pick_device

CPU = torch.device("cpu")


def run(seed: int = 0, folder=None) -> Run:
    return Run(CPU, seed, Checkpoint(folder), lambda _: None)


def test_a_seed_depends_on_the_runs_seed_and_the_names_only():
    one = run()
    expected = one.seed_of("train", 3, "order")
    one.generator("something else")  # draws in between change nothing
    assert one.seed_of("train", 3, "order") == expected == run().seed_of("train", 3, "order")
    others = [
        run(seed).seed_of(*names)
        for seed in (0, 1)
        for names in (("train", 3, "order"), ("train", 4, "order"), ("train", 3, "draws"), ("other", 3, "order"), ())
    ]
    assert len(set(others)) == len(others)
    assert all(0 <= seed < 2**63 for seed in others)


def test_seeds_are_spread():
    """Neighbouring epochs must not get neighbouring seeds: half of the bits differ, on average."""
    seeds = [run().seed_of("train", epoch) for epoch in range(200)]
    flipped = [bin(a ^ b).count("1") for a, b in itertools.pairwise(seeds)]
    assert 26 < np.mean(flipped) < 30  # of 56


def test_generators_by_name():
    draws = [torch.rand(4, generator=run().generator(name)).tolist() for name in ("a", "a", "b")]
    assert draws[0] == draws[1] != draws[2]


def test_log_reaches_the_callback():
    events = []
    Run(CPU, 0, Checkpoint(None), events.append).log("epoch", loss=1.5)
    assert events == [{"event": "epoch", "loss": 1.5}]


def test_notes_are_told_and_kept_for_the_model_card():
    events = []
    one = Run(CPU, 0, Checkpoint(None), events.append)
    one.note(beam=3)
    one.note(beam=4, recall=0.9)
    assert one.noted == {"beam": 4, "recall": 0.9}
    assert events == [{"event": "note", "beam": 3}, {"event": "note", "beam": 4, "recall": 0.9}]


class Counted:
    """A computation that counts how often it ran."""

    def __init__(self, value: np.ndarray) -> None:
        self.value, self.times = value, 0

    def __call__(self) -> np.ndarray:
        self.times += 1
        return self.value


@pytest.mark.parametrize("value", [np.arange(6).reshape(2, 3), np.float32(2.5).reshape(()), np.empty((0, 2))])
def test_kept_values_are_used_again_for_the_same_inputs_only(tmp_path, value):
    compute = Counted(value)
    first = run(folder=tmp_path).keep("clusters", compute, inputs="seed 0")
    again = run(folder=tmp_path).keep("clusters", compute, inputs="seed 0")
    assert compute.times == 1
    assert first.tobytes() == again.tobytes() == value.tobytes()
    assert (again.dtype, again.shape) == (value.dtype, value.shape)
    again[...] = 7  # it is a copy that may be changed
    run(folder=tmp_path).keep("clusters", compute, inputs="seed 1")
    run(folder=tmp_path).keep("graph", compute, inputs="seed 0")
    assert compute.times == 3


def test_without_a_folder_nothing_is_kept():
    compute = Counted(np.ones(2))
    one = run()
    for _ in range(2):
        one.keep("clusters", compute, inputs="seed 0")
    assert compute.times == 2


def test_auto_is_a_device_that_is_there():
    assert pick_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert pick_device("cpu") == CPU


@pytest.mark.parametrize("name", ["gpu", "cuda:99", "", "cpu:x", "vulkan", None])
def test_a_device_that_is_not_there_is_refused(name):
    with pytest.raises(ConfigError, match=re.escape("device: the device is not available")) as caught:
        pick_device(name)
    assert "cpu" in caught.value.allowed


def test_a_device_without_numbers_is_refused():
    with pytest.raises(ConfigError, match="unsupported device; got 'meta'; allowed: auto, cpu, cuda"):
        pick_device("meta")
