"""A published table from one command: fetched, trained from its configurations, and set beside the paper's figures."""

import csv
import sys
import zipfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.accuracy import published

from xclearn.data.published import PUBLISHED, Published

NAME = "LF-Tiny-6"


def archive(path: Path) -> Path:
    """Six labels, each with a feature of its own that its documents have."""
    rows = [f"{label}:1.0 {6 + i}:0.5" for i in range(4) for label in range(6)]
    relevance = [f"{label}:1" for _ in range(4) for label in range(6)]
    files = {
        "trn_X_Xf.txt": ["24 10", *rows],
        "trn_X_Y.txt": ["24 6", *relevance],
        "tst_X_Xf.txt": ["6 10", *rows[:6]],
        "tst_X_Y.txt": ["6 6", *relevance[:6]],
        "lbl_X_Xf.txt": ["6 10", *(f"{label}:1.0" for label in range(6))],
    }
    with zipfile.ZipFile(path, "w") as opened:
        for name, lines in files.items():
            opened.writestr(name, "\n".join(lines) + "\n")
    return path


def configurations(folder: Path) -> Path:
    (folder / "decaf").mkdir(parents=True)
    head = "# DECAF\n# expected: published for DECAF: PSP@1 30.85, P@1/5 38.40/18.65;\n#   not run by us.\n"
    plain = f'{head}algorithm = "decaf"\ndata = "{NAME}"\n\n[settings]\nranker_epochs = 2\n'
    (folder / "decaf" / f"{NAME}-lite.toml").write_text(f"{plain}freeze_tokens = true\n")
    (folder / "decaf" / f"{NAME}.toml").write_text(plain)
    (folder / "decaf" / f"{NAME}-broken.toml").write_text(f"{plain}no_such_setting = 1\n")
    return folder


def test_one_command_fetches_trains_and_compares(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(PUBLISHED, NAME, Published(drive_id="none", train=24, test=6, labels=6))
    monkeypatch.setenv("XCLEARN_COMMIT", "abc1234")
    said = [NAME, "--algorithms", "decaf", "--data-folder", f"{tmp_path}", "--from", f"{archive(tmp_path / 'a.zip')}"]
    said += ["--configs", f"{configurations(tmp_path / 'configs')}", "--folder", f"{tmp_path / 'rows'}"]
    monkeypatch.setattr(sys, "argv", [published.__file__, *said, "--device", "cpu", "--set", "surrogate_epochs=20"])
    for _ in range(2):  # the second time nothing is trained again
        with pytest.raises(SystemExit) as ended:
            published.main()
        assert ended.value.code == 1
    with (tmp_path / "rows" / "published.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["config"] for row in rows] == [f"decaf/{NAME}", f"decaf/{NAME}-lite"]
    assert (rows[0]["P@1_published"], rows[0]["P@5_published"], rows[0]["PSP@1_published"]) == (
        "38.4",
        "18.65",
        "30.85",
    )
    assert float(rows[0]["P@1"]) > 50
    printed = capsys.readouterr().out
    assert f"failed: decaf/{NAME}-broken" in printed
    assert "(38.4)" in printed
    assert "has its row" in printed


@pytest.mark.parametrize(
    "path", sorted(published.CONFIGS.rglob("LF-AmazonTitles-131K*.toml")), ids=lambda path: path.stem
)
def test_what_a_shipped_file_expects_is_read(path):
    text = path.read_text(encoding="utf-8")
    assert bool(published.published(path)) is ("no figures are published" not in text)
