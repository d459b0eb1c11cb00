"""The runner of full-length rows: its forms are what they are called, and no row is lost, repeated or half a run."""

import csv
import json
import sys
from pathlib import Path

import pytest
from planted import planted

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.accuracy import papers

from xclearn.config import to_plain
from xclearn.training.prepare import Size

SHORT = {
    "decaf": "surrogate_epochs=1 ranker_epochs=1",
    "one_vs_all": "epochs=2",
    "eclare-paper": "surrogate_epochs=1 shortlister_epochs=1 ranker_epochs=1",
    "astec-paper": "surrogate_epochs=1 extreme_epochs=1 reranker_epochs=1",
    "anns-paper": "extreme_epochs=2 rebuild_every=1",
    "lightdxml-paper": "model_epochs=2 refresh_every=1 label_epochs=1",
    "elias-paper": "first_epochs=1 second_epochs=1 recluster_after=1",
}


def write(folder: Path) -> Path:
    """The planted set as a user would bring it."""
    data = planted(n_labels=40, train=4)
    folder.mkdir(parents=True)
    for name in ("train", "test"):
        split = data.split(name)
        rows = [{"text": text, "labels": split.relevance[i].indices.tolist()} for i, text in enumerate(split.documents)]
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    rows = [{"uid": name, "text": text} for name, text in zip(data.labels.names, data.labels.texts, strict=True)]
    (folder / "labels.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return folder


def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *more: str) -> int:
    """Its exit status on the planted set."""
    if not (tmp_path / "data").exists():
        write(tmp_path / "data" / "small")
    monkeypatch.setenv("XCLEARN_COMMIT", "abc1234")
    said = ["papers.py", "--data-folder", f"{tmp_path / 'data'}", "--sets", "small", "--folder", f"{tmp_path / 'rows'}"]
    script = str(Path(papers.__file__))
    monkeypatch.setattr(sys, "argv", [script, *said[1:], "--device", "cpu", *more])
    with pytest.raises(SystemExit) as ended:
        papers.main()
    return int(ended.value.code or 0)


def rows_of(tmp_path: Path) -> list[dict[str, str]]:
    path = tmp_path / "rows" / "papers.csv"
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def short(*forms: str) -> list[str]:
    """These forms, as short trainings."""
    settings = ["embedding_dim=16"]
    for form in forms:
        algorithm = form.removesuffix("-paper").replace("anns", "astec")
        settings += [f"{algorithm}:{setting}" for setting in SHORT[form].split()]
    return ["--only", *forms, *(part for setting in settings for part in ("--set", setting))]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("n_labels", [1_000, 100_000])
@pytest.mark.parametrize("form", papers.FORMS, ids=[form.name for form in papers.FORMS])
def test_every_form_can_be_trained_on_small_and_large_sets(form, n_labels, device):
    size = Size(50_000, n_labels, 40_000, 1_000_000, 300_000, 500_000)
    form.build(n_labels, [])._resolve(size, device)


def test_no_two_forms_are_the_same():
    size = Size(50_000, 50_000, 40_000, 1_000_000, 300_000, 500_000)
    resolved = {}
    for form in papers.FORMS:
        algorithm = form.build(50_000, [])._resolve(size, "cuda")
        resolved[form.name] = json.dumps([algorithm.name, to_plain(algorithm)], sort_keys=True)
    assert len(set(resolved.values())) == len(resolved)


def test_papers_forms_are_what_they_are_called():
    """Each against what its paper says, on a GPU, where our own defaults score all labels."""
    size = Size(50_000, 50_000, 40_000, 1_000_000, 300_000, 500_000)
    built = {form.name: form.build(50_000, [])._resolve(size, "cuda") for form in papers.FORMS}
    assert built["anns-paper"].negatives == "both"
    assert built["anns-paper"].surrogate == "none"
    assert built["astec-paper"].surrogate == "correlated_clusters"
    assert (built["astec-paper"].label_optimiser, built["astec-paper"].reranker_epochs) == ("adam", 10)
    assert (built["decaf-paper"].ranker, built["decaf-paper"].beam) == ("shortlist", 200)
    assert (built["eclare-paper"].ranker, built["eclare-paper"].combine) == ("shortlist", "attention")
    epochs = [getattr(built["eclare-paper"], f"{name}_epochs") for name in ("surrogate", "shortlister", "ranker")]
    assert epochs == [20, 10, 10]
    assert (built["lightdxml-paper"].negatives, built["lightdxml-paper"].refresh_every) == ("nearest", 7)
    assert (built["elias-paper"].negatives, built["elias-paper"].second_epochs) == ("shortlist", 50)


def test_sizes_fit_a_set_that_is_smaller_than_the_published_one():
    assert papers.fitting({"n_clusters": 65536}, "astec", 104_000)["n_clusters"] == 32768
    assert papers.fitting({"n_clusters": 32768}, "decaf", 4_271)["n_clusters"] == 1024
    few = {"n_clusters": 2048, "beam": 20, "edges_per_cluster": 1000, "shortlist_size": 2000}
    small = {"n_clusters": 8, "beam": 8, "edges_per_cluster": 500, "shortlist_size": 500}
    assert papers.fitting(few, "elias", 500) == small


@pytest.mark.parametrize("form", SHORT)
def test_a_row_is_written_with_its_settings_and_not_again(form, tmp_path, monkeypatch, capsys):
    assert command(monkeypatch, tmp_path, *short(form)) == 0
    (row,) = rows_of(tmp_path)
    assert (row["data"], row["form"], row["seed"]) == ("small", form, "0")
    assert 0 <= float(row["P@1"]) <= 100
    lines = (tmp_path / "rows" / "settings.jsonl").read_text(encoding="utf-8").splitlines()
    kept = {line["id"]: line["settings"] for line in map(json.loads, lines)}
    assert kept[row["resolved"]]["embedding_dim"] == 16
    assert command(monkeypatch, tmp_path, *short(form)) == 0
    assert "has its row" in capsys.readouterr().out
    assert len(rows_of(tmp_path)) == 1


def test_when_the_minutes_are_over_what_is_left_is_said_and_the_next_command_goes_on(tmp_path, monkeypatch, capsys):
    kept = ["--checkpoints", f"{tmp_path / 'kept'}", *short("decaf", "one_vs_all")]
    assert command(monkeypatch, tmp_path, *kept, "--minutes", "0") == 0
    assert "left: decaf on small, seed 0; one_vs_all on small, seed 0" in capsys.readouterr().out
    assert rows_of(tmp_path) == []
    assert command(monkeypatch, tmp_path, *kept) == 0
    assert [row["form"] for row in rows_of(tmp_path)] == ["decaf", "one_vs_all"]


def test_a_run_that_was_cut_off_goes_on_and_ends_as_if_it_had_not_been(tmp_path, monkeypatch):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    asked = ["--only", "one_vs_all", "--set", "epochs=4", "--set", "embedding_dim=16"]
    command(monkeypatch, whole, *asked)
    clock = iter([0.0, 0.0, *[1e6] * 100])  # the deadline, the start of the run, and every epoch after it
    monkeypatch.setattr(papers.time, "monotonic", lambda: next(clock))
    command(monkeypatch, cut, *asked, "--minutes", "1", "--checkpoints", f"{cut / 'kept'}")
    assert rows_of(cut) == []
    assert list((cut / "kept").rglob("*.safetensors"))
    monkeypatch.undo()
    command(monkeypatch, cut, *asked, "--checkpoints", f"{cut / 'kept'}")
    (first,), (second,) = rows_of(whole), rows_of(cut)
    assert {name: first[name] for name in papers.SHOWN} == {name: second[name] for name in papers.SHOWN}


def test_a_form_that_fails_does_not_cost_the_others(tmp_path, monkeypatch, capsys):
    broken = ["--set", "decaf:ranker=sampled", "--set", "decaf:beam=3"]
    assert command(monkeypatch, tmp_path, *broken, *short("decaf", "one_vs_all")) == 1
    assert "failed: decaf on small, seed 0" in capsys.readouterr().out
    assert [row["form"] for row in rows_of(tmp_path)] == ["one_vs_all"]


def test_rows_say_how_far_they_are_from_decaf(tmp_path, monkeypatch):
    command(monkeypatch, tmp_path, *short("decaf", "one_vs_all"))
    first, second = rows_of(tmp_path)
    difference = float(second["P@1_over_decaf"].split()[0])
    assert difference == pytest.approx(float(second["P@1"]) - float(first["P@1"]), abs=0.01)
