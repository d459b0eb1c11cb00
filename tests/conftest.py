"""Settings and data of all tests."""

import os

import pytest
from hypothesis import settings
from planted import planted

from xclearn.data import Dataset

# No deadline: machines differ. Derandomised: a red build is red again when run again.
settings.register_profile("xclearn", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("xclearn")

# Before torch is loaded: products are tiny here, and threads that wait for each other on a busy machine take ten times
# as long as the work.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def planted_texts() -> Dataset:
    """The set of `planted.py` as texts."""
    return planted()
