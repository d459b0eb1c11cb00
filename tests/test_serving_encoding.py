"""JSON written quickly is still what the standard library reads."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from xclearn.serving.encoding import json_bytes

TEXT = st.text(st.characters(codec=None), max_size=20)  # halves of characters too
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=10,
)


@given(VALUES)
def test_what_is_written_is_read_back(content: Any) -> None:
    assert json.loads(json_bytes(content)) == content


def test_half_a_character_is_escaped_and_a_whole_one_is_utf_8() -> None:
    assert json_bytes(["é"]) == '["é"]'.encode()
    assert json_bytes(["\ud800"]) == b'["\\ud800"]'
