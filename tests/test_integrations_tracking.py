"""`--track`: what TensorBoard and MLflow are told of a run, read back from what they wrote."""

from pathlib import Path

import pytest
from planted import planted
from typer.testing import CliRunner

from xclearn.cli.main import app
from xclearn.data.write import write_dataset
from xclearn.errors import ConfigError
from xclearn.integrations.tracking import tracking

EVENTS = [
    {"event": "plan"},
    {"event": "epoch", "stage": "train", "epoch": 1, "loss": 0.5, "score": None, "items_per_second": 10},
    {"event": "epoch", "stage": "train", "epoch": 2, "loss": 0.25, "score": 30.0, "items_per_second": 12},
    {"event": "measured", "P@1": 40.0},
]


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Every curve of a TensorBoard folder."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = accumulator.EventAccumulator(str(folder))
    found.Reload()
    return {name: [(one.step, one.value) for one in found.Scalars(name)] for name in found.Tags()["scalars"]}


def test_tensorboard_holds_every_epoch(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    with tracking(f"tensorboard:{tmp_path}", "run", {"epochs": 2}) as tell:
        for event in EVENTS:
            tell(event)
    assert curves(tmp_path / "run") == {
        "train/loss": [(1, 0.5), (2, 0.25)],
        "train/score": [(2, 30.0)],
        "train/items_per_second": [(1, 10.0), (2, 12.0)],
        "measured/P@1": [(0, 40.0)],
    }


def test_mlflow_holds_every_epoch(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    address = f"sqlite:///{tmp_path}/runs.db"
    with tracking(f"mlflow:{address}", "run", {"epochs": 2}) as tell:
        for event in EVENTS:
            tell(event)
    client = mlflow.MlflowClient(address)
    (run,) = client.search_runs(["0"])
    assert run.data.params == {"epochs": "2"}
    assert run.info.status == "FINISHED"
    assert [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, "train/loss")] == [
        (1, 0.5),
        (2, 0.25),
    ]
    assert run.data.metrics["measured/P_at_1"] == 40.0


def test_train_is_followed(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    write_dataset(planted(n_labels=8), tmp_path / "data")
    words = ["train", str(tmp_path / "data"), "-a", "one_vs_all", "-o", str(tmp_path / "model"), "--device", "cpu"]
    result = CliRunner().invoke(app, [*words, "--set", "epochs=3", "--track", f"tensorboard:{tmp_path / 'runs'}"])
    assert result.exit_code == 0, result.output
    found = curves(tmp_path / "runs" / "model")
    assert [step for step, _ in found["train/loss"]] == [1, 2, 3]
    assert "measured/P@1" in found


def test_another_tracker_is_refused() -> None:
    with pytest.raises(ConfigError, match="--track: unknown tracker; got 'wandb'"), tracking("wandb", "run", {}):
        pass
