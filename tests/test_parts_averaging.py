"""A mean of weights by hand, and the exchange of both."""

import pytest
import torch
from torch import nn

from xclearn.parts.averaging import WeightAverage


@pytest.fixture
def weight() -> nn.Parameter:
    return nn.Parameter(torch.zeros(2))


def run(average: WeightAverage, weight: nn.Parameter, steps: int) -> None:
    """The weight is the number of the step."""
    for step in range(steps):
        weight.data.fill_(step)
        average.see(step)


def test_the_mean_is_of_the_steps_asked_for(weight):
    average = WeightAverage([weight], start=4, every=3)
    run(average, weight, 12)  # sees 4, 7, 10
    with average.exchanged():
        assert weight.tolist() == [7, 7]
    assert weight.tolist() == [11, 11]
    average.exchange()
    assert weight.tolist() == [7, 7]


def test_before_the_first_mean_nothing_is_exchanged(weight):
    average = WeightAverage([weight], start=100, every=1)
    run(average, weight, 5)
    average.exchange()
    assert weight.tolist() == [4, 4]


def test_a_mean_goes_on_from_its_state(weight):
    whole = WeightAverage([weight], start=0, every=1)
    run(whole, weight, 6)
    first = WeightAverage([weight], start=0, every=1)
    run(first, weight, 3)
    second = WeightAverage([weight], start=0, every=1)
    second.load_state_dict(first.state_dict())
    for step in (3, 4, 5):
        weight.data.fill_(step)
        second.see(step)
    assert torch.equal(second.get_buffer("mean_0"), whole.get_buffer("mean_0"))
    assert second.get_buffer("mean_0").tolist() == [2.5, 2.5]


def test_the_weights_are_not_its_own(weight):
    assert list(WeightAverage([weight], start=0, every=1).parameters()) == []
