"""Every configuration file loads, names an algorithm and settings that exist, and says how to run it."""

from pathlib import Path

import pytest

from xclearn.cli.training import Request, read_request
from xclearn.training.prepare import Size

FOLDER = Path(__file__).parents[1] / "configs"
FILES = sorted(FOLDER.rglob("*.toml"))
ASTEC = 13 + 4  # those of the authors' repository, and ours


def test_the_files_were_found():
    assert len([path for path in FILES if path.parent.name == "astec"]) == ASTEC
    assert len([path for path in FILES if path.parent.name == "decaf"]) == 21 + 2  # the authors', and ours
    assert len([path for path in FILES if path.parent.name == "elias"]) == 5 + 6  # the authors', and ours
    assert len([path for path in FILES if path.parent.name == "lightdxml"]) == 14 + 5  # the authors', and ours


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(FOLDER)) for path in FILES])
def test_every_setting_of_a_file_is_read(path, device):
    """As a set of 100,000 labels is trained."""
    _, algorithm = read_request(Request("", "", Path("out"), config=path))
    algorithm._resolve(Size(100_000, 100_000, 40_000, 1_000_000, 300_000, 500_000), device)


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(FOLDER)) for path in FILES])
def test_a_file_loads_and_says_how_to_run_it(path):
    source, algorithm = read_request(Request("", "", Path("out"), config=path))
    header = path.read_text(encoding="utf-8").splitlines()[:6]
    assert source
    assert algorithm.name == path.parent.name
    assert any(line.startswith("# run: xc train") and path.name in line for line in header)
    assert any(line.startswith("# expected: ") for line in header)
