"""Algorithms are found by file name, and nothing is imported to list them."""

import subprocess
import sys
from pathlib import Path

import pytest

import xclearn
from xclearn import algorithms
from xclearn.errors import ConfigError
from xclearn.training.algorithm import Algorithm


def test_every_file_and_package_is_an_algorithm_of_its_name():
    folder = Path(algorithms.__file__).parent
    files = {path.stem for path in folder.glob("[!_]*.py")} | {
        path.parent.name for path in folder.glob("*/__init__.py")
    }
    assert len(files) >= 11
    assert files <= set(algorithms.algorithm_names())
    for name in files:
        cls = algorithms.find(name)
        assert issubclass(cls, Algorithm)
        assert (cls.name, cls.__name__) == (name, algorithms.class_name(name))
        assert getattr(cls, "__final__", False)
        assert getattr(xclearn, cls.__name__) is cls


def test_class_names():
    assert algorithms.class_name("one_vs_all") == "OneVsAll"
    assert algorithms.by_class_name("OneVsAll") is algorithms.find("one_vs_all")
    assert algorithms.by_class_name("Nothing") is None
    with pytest.raises(AttributeError, match="module 'xclearn' has no attribute 'Nothing'"):
        xclearn.Nothing  # noqa: B018


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"unknown algorithm; got 'one_vs_al'\. Did you mean 'one_vs_all'\?"):
        algorithms.find("one_vs_al")


def test_a_summary_is_one_line():
    for name in algorithms.algorithm_names():
        assert 20 < len(algorithms.summary(name)) <= 120


def test_listing_imports_no_torch():
    program = (
        "import sys, xclearn.algorithms as a; [a.summary(n) for n in a.algorithm_names()]; "
        "sys.exit('torch' in sys.modules)"
    )
    source = Path(xclearn.__file__).parents[1]
    ran = subprocess.run([sys.executable, "-c", program], env={"PYTHONPATH": str(source)}, check=False)
    assert ran.returncode == 0
