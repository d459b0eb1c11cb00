"""Two readers of a body: whatever the quick one accepts, the standard library reads alike."""

import contextlib
import json

from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from xclearn.serving.schemas import PredictRequest

PIECES = ["{", "}", "[", "]", ",", ":", " ", "\t", "\0", "\ufeff", '"', '"text"', '"texts"', '"k"', '"threshold"']
PIECES += ['"a"', '"\\ud83d\\ude00"', '"\\ud800"', "null", "true", "NaN", "-Infinity", "1", "-0", "01", "1.0", "1e2"]
KEYS = st.sampled_from(["text", "texts", "k", "threshold", "include", "exclude", "other"])
VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.lists(st.text(max_size=3))
RIGHT = st.dictionaries(KEYS, VALUES, max_size=3).map(json.dumps)


@given(RIGHT | st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
@example('{"text": "a", "text": 5, "text": "b"}')
@example('{"text": "a", "k": ' + 4299 * "9" + "}")
@example(' {"text": "\\ud83d\\ude00", "threshold": 1}\n')
def test_whatever_the_quick_reader_accepts_is_read_alike(body: str) -> None:
    with contextlib.suppress(ValidationError):
        quick = PredictRequest.model_validate_json(body.encode())
        assert PredictRequest.model_validate(json.loads(body.encode())) == quick
