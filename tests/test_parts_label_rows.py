"""Which rows a process holds."""

from xclearn.parts.label_rows import LabelRows


def test_length():
    assert len(LabelRows(5, 12)) == 7
    assert len(LabelRows(3, 3)) == 0
