"""What is shown and explained: `dir`, `repr`, notebooks and `help`."""

import inspect
import pydoc

import xclearn
from xclearn import config
from xclearn.algorithms import algorithm_names, class_name, find
from xclearn.data import Dataset
from xclearn.inference import Predictor

DATA = Dataset.from_lists(["a <b>", "c"] * 20, [["x"], ["y", "<i>"]] * 20, name="<set>")


def test_the_public_names_are_listed_and_nothing_else() -> None:
    listed = dir(xclearn)
    assert set(listed) == {find(name).__name__ for name in algorithm_names()} | set(xclearn.__all__)
    assert all(getattr(xclearn, name) is not None for name in listed if not name.startswith("_"))


def test_data_sets_and_models_are_shown_in_a_line_and_in_a_table() -> None:
    assert repr(DATA) == "Dataset('<set>', 3 labels; texts: 40 train)"
    assert repr(DATA.train) == "Split(40 texts, 60 pairs)"
    assert repr(DATA.labels) == "LabelSet(3 labels: '<i>', 'x', 'y')"
    algorithm = xclearn.SparseOneVsAll(epochs=7)
    assert repr(algorithm) == "SparseOneVsAll(epochs=7)"
    algorithm = xclearn.SparseOneVsAll().fit(DATA, device="cpu")
    assert repr(algorithm) == "SparseOneVsAll(), fitted: 3 labels, trained on '<set>'"
    predictor = Predictor(algorithm.model)
    assert repr(predictor) == "Predictor(sparse_one_vs_all: 3 labels, trained on '<set>')"
    for shown in (DATA, algorithm, predictor):
        table = shown._repr_html_()
        assert table.startswith("<table>")
        assert "<set>" not in table
        assert "&lt;set&gt;" in table


def test_help_explains_every_setting_with_the_words_of_the_command_line() -> None:
    for name in algorithm_names():
        algorithm = getattr(xclearn, class_name(name))
        explained = inspect.getdoc(algorithm)
        assert explained is not None
        for setting in config.describe(algorithm):
            assert f"{setting.name}: {setting.type} = {setting.default}\n        {setting.help}" in explained
        assert getattr(xclearn, class_name(name)).__doc__ == algorithm.__doc__  # asked for twice, explained once


def test_help_prints_docstring_and_settings() -> None:
    """`help` is pydoc: it takes nothing but a text that stands in the class itself."""
    shown = pydoc.plain(pydoc.render_doc(xclearn.SparseOneVsAll))
    assert "Sparse linear classifiers on all documents" in shown
    cost = next(row for row in config.describe(find("sparse_one_vs_all")) if row.name == "cost")
    assert f"cost: {cost.type} = {cost.default}" in shown
    assert cost.help in shown
