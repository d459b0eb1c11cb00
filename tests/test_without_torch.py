"""Linear models are trained, loaded, asked, measured and served where torch cannot be imported."""

import subprocess
import sys
from pathlib import Path

import pytest

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


def test_what_needs_torch_says_so_in_one_sentence(tmp_path):
    texts = tmp_path / "train.jsonl"
    texts.write_text('{"text": "red shoes", "labels": ["shoes"]}\n' * 20, encoding="utf-8")
    out = str(tmp_path / "model")
    asked = ["xc", "train", str(texts), "-a", "decaf", "-o", out]
    done = run(f"from xclearn.cli.main import main\nsys.argv = {asked!r}\nmain()")
    assert done.returncode == 2, done.stderr
    assert "pip install 'xclearn[deep]'" in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr
