"""The learning-rate cycle."""

import pytest

from xclearn.training.stage import one_cycle


@pytest.mark.parametrize(
    ("warm_up", "done", "factor"),
    [
        (0.1, 0.0, 0.0),
        (0.1, 0.05, 0.5),
        (0.1, 0.1, 1.0),
        (0.1, 0.55, 0.5),
        (0.1, 1.0, 0.0),
        (0.0, 0.0, 1.0),  # no rise at all
        (0.0, 0.75, 0.25),
        (1.0, 0.75, 0.75),  # nothing but rise
    ],
)
def test_one_cycle(warm_up, done, factor):
    assert one_cycle(warm_up)(done) == pytest.approx(factor)
