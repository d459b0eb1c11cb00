"""How code is counted, and the limits that it keeps: functions, arguments, one home for each type name."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.count import Function, code_lines, functions, homes, sources, too_long

SOURCE = '''"""A module."""

import os  # a comment


# only a comment
def total(
    first: int, second: int
) -> int:
    """A docstring
    of two lines."""
    text = """not
    a docstring"""

    return first + second
'''


def test_blank_lines_comments_and_docstrings_are_no_code():
    assert code_lines(SOURCE) == {3, 7, 8, 9, 12, 13, 15}


def test_a_functions_body_and_its_arguments_are_counted():
    assert list(functions(SOURCE, "a.py")) == [Function("a.py:7 total", 3, 2)]


def test_a_name_has_the_homes_where_it_is_defined_as_a_type():
    found = homes(
        {
            "a.py": "from b import Kind\nclass Row: ...\nCount = Annotated[int, 1]\nnumber = 3",
            "b.py": 'Kind = Literal["a"]\nRow: TypeAlias = int',
        }
    )
    assert found == {"Row": ["a.py", "b.py"], "Count": ["a.py"], "Kind": ["b.py"]}


def test_what_is_over_a_limit_is_named():
    long = "def f():\n" + "    x = 1\n" * 41
    wide = f"def g({', '.join('abcdefghi')}): ..."
    kernel = f"@triton.jit\n{wide}"
    assert too_long({"kernel.py": kernel}) == []
    assert [each.where for each in too_long({"a.py": long, "b.py": wide, "cli/c.py": wide})] == ["a.py:1 f", "b.py:1 g"]


def test_the_package_was_read():
    assert len(sources()) >= 150


def test_no_function_is_too_long_and_none_takes_more_than_eight_arguments():
    assert list(map(str, too_long(sources()))) == []


@pytest.mark.parametrize("found", [homes(sources())])
def test_a_type_name_has_one_home(found):
    assert {name: places for name, places in found.items() if len(places) > 1} == {}
