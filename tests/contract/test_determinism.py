"""Same seed, same bits: with more threads, in a fork, in other threads, and resumed; for every algorithm that is found.

The number of threads itself may change the last bits (docs/concepts/training.md), so each is compared with itself.
`make determinism` does the same for 1, 2 and 8 threads and 1,500 labels, in processes of their own.
"""

import functools
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from planted import planted
from quick import epochs_everywhere

from xclearn import algorithms
from xclearn.errors import ModelError
from xclearn.training.algorithm import Algorithm

NAMES = algorithms.algorithm_names()
# On this small set; gradients of a convolution, and of LightDXML's wider layers, are summed by thread.
INVARIANT = sorted(set(NAMES) - {"xml_cnn", "lightdxml"})
IN_EPOCHS = [name for name in NAMES if epochs_everywhere(name, 1)]  # others are solved at once
TEXTS = planted(train=5)
K = 5


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def make(name: str, **settings: Any) -> Algorithm:
    return algorithms.find(name)(**epochs_everywhere(name, 2) | settings)


def learnt(name: str, folder: Path, threads: int, **options: Any) -> bytes:
    """All that an algorithm learns with so many threads."""
    torch.set_num_threads(threads)
    make(name).fit(TEXTS, device="cpu", seed=1, **options).save(folder)
    return (folder / "tensors.safetensors").read_bytes()


@functools.cache
def undisturbed(name: str, threads: int) -> bytes:
    """Trained once for all tests that compare with it."""
    with tempfile.TemporaryDirectory() as folder:
        return learnt(name, Path(folder, "model"), threads)


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(IN_EPOCHS)))
def test_two_threads_give_the_same_bits_each_time(name, tmp_path):
    assert learnt(name, tmp_path / "again", threads=2) == undisturbed(name, 2)


@pytest.mark.parametrize("name", INVARIANT)
def test_on_a_small_set_one_thread_and_two_give_the_same_bits(name):
    assert undisturbed(name, 1) == undisturbed(name, 2)


class Interruption(Exception):
    """What ends a training after an epoch."""


def interrupt(event: Any) -> None:
    if event["event"] == "epoch":
        raise Interruption


@pytest.mark.parametrize("name", IN_EPOCHS)
def test_a_run_of_two_threads_is_resumed_by_two_only(name, tmp_path):
    checkpoint = tmp_path / "checkpoint"
    try:
        learnt(name, tmp_path / "interrupted", threads=2, checkpoint=checkpoint, callback=interrupt)
    except Interruption:
        assert not (tmp_path / "interrupted").exists()
    with pytest.raises(ModelError, match="OMP_NUM_THREADS=2"):
        learnt(name, tmp_path / "one", threads=1, checkpoint=checkpoint, resume=True)
    assert learnt(name, tmp_path / "two", threads=2, checkpoint=checkpoint, resume=True) == undisturbed(name, 2)


def answers(algorithm: Algorithm) -> list[bytes]:
    found = algorithm.predict(TEXTS.split("test").documents, K)
    return [found.ids.tobytes(), found.scores.tobytes()]


def test_threads_and_a_fork_predict_what_the_process_predicts(name):
    torch.set_num_threads(1)  # a process with waiting threads cannot be forked
    algorithm = make(name).fit(TEXTS, device="cpu", seed=1)
    expected, found = answers(algorithm), []
    threads = [threading.Thread(target=lambda: found.append(answers(algorithm))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 8
    if hasattr(os, "fork"):
        child = os.fork()
        if child == 0:
            os._exit(0 if answers(algorithm) == expected else 3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_one_thread_and_two_predict_the_same_labels(name):
    torch.set_num_threads(1)
    algorithm = make(name).fit(TEXTS, device="cpu", seed=1)
    documents = TEXTS.split("test").documents
    one = algorithm.predict(documents, K)
    torch.set_num_threads(2)
    two = algorithm.predict(documents, K)
    assert (one.ids == two.ids).all()
    np.testing.assert_allclose(one.scores, two.scores, rtol=1e-5)
