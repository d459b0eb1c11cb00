"""Without torch linear models train, every bag model answers, and what needs torch says which extra installs it."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from planted import planted

from xclearn import OneVsAll, extras
from xclearn.data.write import write_dataset

HERE = str(Path(__file__).parent)
BLOCKED = f"""
import sys
sys.path.insert(0, {HERE!r})

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

sys.meta_path.insert(0, NoTorch())
"""

USED = """
import numpy as np
from xclearn import algorithms, config, load
from planted import planted

cls = algorithms.find(name)
data = planted("texts", **sizes)
model = config.build(cls, settings, name).fit(data, seed=1)
before = model.predict(data.test.documents)
model.save(folder)
predictor = load(folder)
assert (predictor.predict(data.test.documents).ids == before.ids).all()
assert predictor.evaluate(data).values["P@1"] > 50
assert cls.load(folder).evaluate(data).values == predictor.evaluate(data).values
assert predictor.suggest(list(data.test.documents[:1]), 2)[0]
import xclearn.serving.app
assert "torch" not in sys.modules
print(model.model.about["training"])
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", BLOCKED + program], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("name", "settings", "sizes"),
    [
        ("label_tree", {}, {}),
        ("label_tree", {"stopping": {"metric": "P@5"}}, {}),
        ("sparse_one_vs_all", {}, {}),
        ("blend", {}, {"train": 400}),
    ],
)
def test_linear_models_need_no_torch(name, settings, sizes, tmp_path):
    values = f"name, settings, sizes, folder = {name!r}, {settings!r}, {sizes!r}, {str(tmp_path / 'model')!r}\n"
    done = run(values + USED)
    assert done.returncode == 0, done.stderr
    assert ("xclearn[deep]" in done.stdout) == (name == "blend")


def told(*arguments: object) -> subprocess.CompletedProcess[str]:
    """A command `xc` where torch is missing."""
    asked = ["xc", *map(str, arguments)]
    return run(f"from xclearn.cli.main import main\nsys.argv = {asked!r}\nmain()")


def test_a_neural_model_trained_elsewhere_answers_and_is_measured_and_exported(tmp_path):
    data = planted("texts")
    OneVsAll(epochs=2).fit(data, device="cpu").save(tmp_path / "model")
    write_dataset(data, tmp_path / "data")
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(data.test.documents[:3]) + "\n", encoding="utf-8")
    ways = [
        ("predict", tmp_path / "model", texts),
        ("evaluate", tmp_path / "model", tmp_path / "data"),
        ("export", tmp_path / "model", tmp_path / "small", "--int8", "--force"),
        ("predict", tmp_path / "small", texts),
        ("inspect", tmp_path / "model"),
        ("verify", tmp_path / "small"),
    ]
    assert [(way[0], done.stderr) for way in ways if (done := told(*way)).returncode] == []


@pytest.mark.parametrize(
    ("what", "arguments"),
    [
        ("the algorithm decaf", ("train", "train.jsonl", "-a", "decaf", "-o", "model")),
        ("the algorithm elias", ("algorithms", "elias")),
        ("the device cuda", ("train", "train.jsonl", "-a", "label_tree", "--device", "cuda", "-o", "model")),
    ],
)
def test_what_needs_torch_says_so_in_one_sentence(what, arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = '{"text": "red shoes", "labels": ["shoes"]}\n{"text": "blue hat", "labels": ["hat"]}\n'
    Path("train.jsonl").write_text(texts * 20, encoding="utf-8")
    done = told(*arguments)
    assert done.returncode == 2, done.stderr
    needs = f"Error: {what} needs torch, which is not installed. Run pip install 'xclearn[deep]'."
    assert done.stderr.splitlines()[-1] == needs


def test_an_import_that_nobody_foresaw_says_which_extra_is_missing():
    done = run("""
import xclearn.cli.main as cli

@cli.app.command()
def draw() -> None:
    import torch.nn

sys.argv = ["xc", "draw"]
cli.main()
""")
    assert done.returncode == 2
    assert done.stderr == "Error: this needs torch, which is not installed. Run pip install 'xclearn[deep]'.\n"


def test_every_extra_that_an_error_names_is_one_of_pyproject():
    pyproject = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    declared = pyproject["project"]["optional-dependencies"]
    assert len(extras.EXTRA_OF) >= 9
    for package, extra in extras.EXTRA_OF.items():
        assert any(need.startswith(package) for need in declared[extra]), package
    assert not any(need.startswith("torch") for need in pyproject["project"]["dependencies"])
