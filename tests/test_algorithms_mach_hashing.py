"""Labels in buckets: in range, by the seed, and as seldom together as a 2-universal family promises."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from xclearn.algorithms.mach import hash_labels


@given(st.integers(1, 500), st.integers(1, 60), st.integers(0, 1 << 60))
def test_every_label_has_one_bucket_given_by_the_seed(n_labels, n_buckets, seed):
    buckets = hash_labels(n_labels, n_buckets, seed)
    assert buckets.shape == (n_labels,)
    assert buckets.dtype == np.int32
    assert ((buckets >= 0) & (buckets < n_buckets)).all()
    assert (buckets == hash_labels(n_labels, n_buckets, seed)).all()


def test_two_labels_meet_once_in_as_many_hashings_as_there_are_buckets():
    """Over 4,000 hashings into 20 buckets: within four standard deviations of 1 / 20, for near and far labels."""
    hashed = np.stack([hash_labels(1000, 20, seed) for seed in range(4000)])
    for one, other in ((0, 1), (0, 20), (3, 999), (500, 520)):
        share = (hashed[:, one] == hashed[:, other]).mean()
        print(f"labels {one} and {other} meet in {share:.4f} of hashings")
        assert abs(share - 0.05) < 4 * np.sqrt(0.05 * 0.95 / 4000)


def test_many_labels_fill_all_buckets_evenly():
    counts = np.bincount(hash_labels(3_000_000, 1000, 7), minlength=1000)
    assert 0.9 * 3000 < counts.min() <= counts.max() < 1.1 * 3000
