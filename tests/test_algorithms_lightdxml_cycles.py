"""Which cycle's weights are kept, and after how many epochs without a rise training ends."""

import pytest
import torch

from xclearn.algorithms.lightdxml.cycles import BestCycle


@pytest.mark.parametrize(
    ("patience", "epochs", "scores", "ended_at", "best"),
    [
        (2, 1, [10, 12, 11, 12, 13], 3, 1),  # as good is no rise
        (2, 1, [10, 12, 11, 13, 12.9], None, 3),
        (2, 8, [10, 9], 1, 0),  # one cycle of eight epochs is more than two epochs
        (1, 1, [0, 0], 1, 0),
        (9, 4, [10, 9, 9, 9], 3, 0),
    ],
)
def test_the_best_cycle_is_kept_and_patience_counts_epochs(patience, epochs, scores, ended_at, best):
    module = torch.nn.Linear(1, 1)
    cycles, ended = BestCycle(module, patience), None
    for number, score in enumerate(scores):
        module.weight.data.fill_(number)
        if cycles.finished(score, epochs):
            ended = number
            break
    cycles.restore()
    assert ended == ended_at
    assert module.weight.item() == best


def test_a_module_that_was_never_scored_keeps_its_weights():
    module = torch.nn.Linear(1, 1)
    before = module.weight.item()
    BestCycle(module, 1).restore()
    assert module.weight.item() == before
