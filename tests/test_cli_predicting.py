"""How answers are written: for people, for programs, and for spreadsheets."""

import json

from xclearn.cli.predicting import WRITERS, cut, label_text
from xclearn.inference.predictor import Suggestion

FOUND = [Suggestion("a\tb", 0.75, "the first"), Suggestion("plain", 0.25, None)]


def test_a_table_shows_what_a_label_says() -> None:
    assert WRITERS["table"]("one\n  two", FOUND) == "one two\n   0.750  a\tb  the first\n   0.250  plain\n"


def test_json_lines_keep_the_text_as_it_was() -> None:
    line = WRITERS["jsonl"]("one\n  two ☃", FOUND)
    assert line.count("\n") == 1
    assert "☃" in line
    assert json.loads(line) == {
        "text": "one\n  two ☃",
        "predictions": [{"label": "a\tb", "score": 0.75}, {"label": "plain", "score": 0.25}],
    }


def test_tabs_and_line_breaks_do_not_break_a_tsv() -> None:
    assert WRITERS["tsv"]("one\n\ttwo", FOUND) == "one two\ta b\t0.750000\none two\tplain\t0.250000\n"


def test_an_answer_without_labels_is_an_answer() -> None:
    assert [writer("x", []) for writer in WRITERS.values()] == ["x\n", '{"text": "x", "predictions": []}\n', ""]


def test_what_is_cut_is_marked() -> None:
    assert cut("abcdef", 6) == "abcdef"
    assert cut("abcdefg", 6) == "abcde…"
    assert label_text(Suggestion("name", 0.5, "name")) == "name"
    assert label_text(Suggestion("name", 0.5, "what it says"), 12) == "name  what …"
