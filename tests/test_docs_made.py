"""What scripts make for the documentation is what stands there, and the notebook runs."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks import flows, which

from xclearn.algorithms import advice, algorithm_names

DOCS = Path(__file__).parents[1] / "docs"
NOTEBOOK = DOCS / "first_model.ipynb"


def test_the_table_of_cost_against_accuracy_is_that_of_the_results() -> None:
    assert which.page() == which.PAGE.read_text(encoding="utf-8"), "run: python -m benchmarks.which"


@pytest.mark.parametrize("name", sorted(flows.pictures()))
def test_the_pictures_are_those_of_the_script(name: str) -> None:
    written = (DOCS / "images" / name).read_text(encoding="utf-8")
    assert flows.pictures()[name] == written, "run: python -m benchmarks.flows"


def test_every_algorithm_says_what_it_is_good_for_and_its_page_begins_with_it() -> None:
    pages = {page: page.read_text(encoding="utf-8") for page in (DOCS / "algorithms").glob("*.md")}
    for name in algorithm_names():
        good, cost = advice(name)
        assert good, name
        assert cost, name
        (page,) = [text for text in pages.values() if f"{good.removesuffix('.')}. **Cost:** {cost}" in text]
        beginning = page.split("\n\n")[1:4]
        assert any("When to use" in part for part in beginning)
        assert any("images/flow_" in part for part in beginning)


def test_the_notebook_runs_from_the_first_cell_to_the_last() -> None:
    cells = [cell for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert all(not cell["outputs"] for cell in cells), "a notebook is kept without outputs"
    names: dict[str, Any] = {}
    shown = [_run("".join(cell["source"]), names) for cell in cells]
    assert "fitted: " in repr(names["model"])
    figures = next(one for one in shown if isinstance(one, dict))
    assert figures["R@10"] > 5
    assert repr(shown[-1]).startswith("Predictor(label_tree")


def _run(source: str, names: dict[str, Any]) -> Any:
    """What a notebook would show of a cell: the value of its last expression."""
    body = ast.parse(source).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "cell", "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)
