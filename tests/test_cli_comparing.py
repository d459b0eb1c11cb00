"""`xc compare` and `xc report` by the command line: two models with other orders of labels, and a page that is safe."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from served import NAMES, WORDS, model_folder
from typer.testing import CliRunner

from xclearn import SparseOneVsAll, load_dataset
from xclearn.cli.main import app
from xclearn.errors import XclearnError
from xclearn.inference import Predictor, evaluate
from xclearn.inference.comparison import compare
from xclearn.metrics import paired_test

HOSTILE = '<script>alert(1)</script> & "quoted" dog\'s'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data with the labels of the model in another order, one that it does not know, and one of markup."""
    place = tmp_path_factory.mktemp("data")
    names = [*reversed(NAMES), "<b>Bold</b>"]
    for part, n in (("train", 4), ("test", 2)):
        records = [{"text": f"{word} number {i}", "labels": [word.title()]} for i in range(n) for word in WORDS]
        records += [{"text": f"{HOSTILE} {i}", "labels": ["<b>Bold</b>", "Dog"]} for i in range(n)]
        (place / f"{part}.jsonl").write_text("\n".join(map(json.dumps, records)))
    (place / "labels.jsonl").write_text(
        "\n".join(json.dumps({"uid": name, "text": f"what {name} is"}) for name in names)
    )
    return place


@pytest.fixture(scope="module")
def other(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of this very data."""
    made = tmp_path_factory.mktemp("models") / "other"
    SparseOneVsAll().fit(load_dataset(folder), device="cpu").save(made)
    return made


def run(*words: object) -> str:
    found = CliRunner().invoke(app, [str(word) for word in words])
    if isinstance(found.exception, XclearnError):
        raise found.exception
    assert found.exit_code == 0, found.output
    return found.stdout


def test_models_with_other_labels_are_measured_on_the_same_truth(folder: Path, other: Path) -> None:
    models, data = [Predictor.load(model_folder()), Predictor.load(other)], load_dataset(folder)
    found = compare(models, data)
    for model, report in zip(models, found.reports, strict=True):
        alone = evaluate(model, data)
        assert {name: report.values[name] for name in alone.values} == pytest.approx(alone.values)
        names = [found.data.labels.names[label] for label in report.ids[0, :3]]
        assert names == [one.label for one in model.suggest([data.split("test").documents[0]], 3)[0]]
    first, second = (report.relevance.toarray() for report in found.reports)
    np.testing.assert_array_equal(first, second)


def test_the_comparison_is_that_of_the_paired_test(folder: Path, other: Path) -> None:
    said = json.loads(run("compare", model_folder(), other, folder, "--json", "--examples", 2))
    first, second = compare([Predictor.load(model_folder()), Predictor.load(other)], load_dataset(folder)).reports
    (against,) = said["against_first"]
    assert against["tests"]["P@1"] == paired_test(second, first, "P@1", repeats=2_000)._asdict()
    assert sum(against["first_label_right"].values()) == 22
    assert {len(bins) for bins in said["bins"]} == {5}
    assert against["documents"]["second_better"] >= len(against["examples"]["second_better"]) > 0
    example = against["examples"]["second_better"][0]
    assert set(example["right"]) == {"Dog", "<b>Bold</b>"}
    shown = run("compare", model_folder(), other, folder)
    assert re.search(r"^P@1 +\d+\.\d+ +\d+\.\d+ +[+-]\d", shown, re.MULTILINE)
    assert "right: what Dog is" in shown or "right: Dog" in shown


def test_one_model_is_nothing_to_compare(folder: Path) -> None:
    with pytest.raises(XclearnError, match=r"MODEL: there is nothing to compare; got 1\. Give two or more"):
        run("compare", model_folder(), folder)


class Markup(HTMLParser):
    """The tags of a page, and the text of its cells."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attributes if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_a_report_holds_everything_and_runs_nothing_of_the_data(folder: Path, other: Path, tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    events = [{"event": "epoch", "stage": "s<1>", "epoch": e, "loss": 1 / e, "score": 10.0 * e} for e in (1, 2, 3)]
    log.write_text("\n".join(map(json.dumps, [{"event": "plan"}, *events])))
    out = tmp_path / "report.html"
    run("report", other, folder, "-o", out, "--log", log)
    page = Markup()
    page.feed(out.read_text())
    assert page.tags.count("script") == 1
    assert "b" not in page.tags
    assert page.addresses == []
    text = "".join(page.text)
    assert HOSTILE in text
    assert "<b>Bold</b>" in text
    headings = (
        "Accuracy",
        "By label frequency",
        "Are scores reliable",
        "Which threshold",
        "Labels",
        "Surest mistakes",
        "Training",
    )
    assert [heading for heading in headings if heading not in text] == []
    p1 = evaluate(Predictor.load(other), load_dataset(folder)).values["P@1"]
    assert f"{p1:.2f}" in text


def test_a_report_is_not_written_over_and_a_wrong_log_is_told(folder: Path, other: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    out.write_text("mine")
    with pytest.raises(XclearnError, match="-o: the file already exists"):
        run("report", other, folder, "-o", out)
    assert out.read_text() == "mine"
    (tmp_path / "wrong.jsonl").write_text('{"event": "plan"}\n[1]\n')
    with pytest.raises(XclearnError, match=r"wrong\.jsonl, line 2: not a training log"):
        run("report", other, folder, "-o", tmp_path / "new.html", "--log", tmp_path / "wrong.jsonl")
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(XclearnError, match="the log has no epochs"):
        run("report", other, folder, "-o", tmp_path / "new.html", "--log", tmp_path / "empty.jsonl")
    assert not (tmp_path / "new.html").exists()
