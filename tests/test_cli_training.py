"""From the words of a command line to what is trained, and where."""

import os
from pathlib import Path

import pytest

from xclearn.cli.training import Request, read_request, refuse_occupied
from xclearn.errors import ConfigError


@pytest.mark.parametrize(
    ("out", "checkpoint"),
    [("model", "model.checkpoint"), ("a/b.v1/", "a/b.v1.checkpoint"), ("/m", "/m.checkpoint")],
)
def test_the_checkpoint_lies_beside_the_model(out: str, checkpoint: str) -> None:
    assert Request("data", "", Path(out)).checkpoint == Path(checkpoint)


def test_the_checkpoint_of_the_working_directory_lies_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Request("data", "", Path(".")).checkpoint == tmp_path.with_name(f"{tmp_path.name}.checkpoint")


def test_the_command_line_is_stronger_than_the_config_file(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text('algorithm = "one_vs_all"\ndata = "theirs"\n[settings]\nepochs = 3\ndropout = 0.1\n')
    source, algorithm = read_request(Request("mine", "", Path("m"), ("epochs=4",), config))
    assert (source, algorithm.epochs, algorithm.dropout) == ("mine", 4, 0.1)  # type: ignore[attr-defined]
    source, algorithm = read_request(Request("", "", Path("m"), (), config))
    assert (source, algorithm.epochs, algorithm.name) == ("theirs", 3, "one_vs_all")  # type: ignore[attr-defined]


def test_the_default_algorithm_is_the_blend() -> None:
    _, algorithm = read_request(Request("mine", "", Path("m")))
    assert algorithm.name == "blend"


def test_a_free_folder_is_one_that_is_absent_or_empty(tmp_path: Path) -> None:
    refuse_occupied(tmp_path / "new", overwrite=False)
    refuse_occupied(tmp_path, overwrite=False)


def test_only_a_model_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "model.json").touch()
    refuse_occupied(tmp_path, overwrite=True)
    with pytest.raises(ConfigError, match="is already a model"):
        refuse_occupied(tmp_path, overwrite=False)
    os.rename(tmp_path / "model.json", tmp_path / "thesis.docx")
    with pytest.raises(ConfigError, match="something other than a model is in the way"):
        refuse_occupied(tmp_path, overwrite=True)


def test_a_time_budget_is_a_setting_of_blend_and_of_nothing_else():
    _, algorithm = read_request(Request("mine", "", Path("m"), time_budget=2.5))
    assert (algorithm.name, algorithm.time_budget) == ("blend", 2.5)
    with pytest.raises(ConfigError, match="no time budget"):
        read_request(Request("mine", "label_tree", Path("m"), time_budget=2.5))
    with pytest.raises(ConfigError, match="given twice"):
        read_request(Request("mine", "", Path("m"), ("time_budget=3",), time_budget=2.5))
    with pytest.raises(ConfigError, match="time_budget"):
        read_request(Request("mine", "", Path("m"), time_budget=-1.0))
