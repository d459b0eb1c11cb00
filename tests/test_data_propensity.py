"""The table of propensity constants, by the values that recipes of the literature use."""

import pytest

from xclearn.data import propensity_of


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("LF-AmazonTitles-131K", (0.6, 2.6)),
        ("amazon_670k", (0.6, 2.6)),
        ("Wikipedia-500K", (0.5, 0.4)),
        ("AmazonCat-13K", (0.55, 1.5)),
        ("LF-WikiSeeAlso-320K", (0.55, 1.5)),
        ("my own", (0.55, 1.5)),
    ],
)
def test_constants_by_name(name: str, expected: tuple[float, float]) -> None:
    assert propensity_of(name) == expected
