"""`python -m benchmarks.map` writes docs/map.md: every file of the package with the first sentence of its docstring."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "xclearn"
PAGE = ROOT / "docs" / "map.md"

_HEAD = """# The files

Where things are, in the words of each file. [Design](design.md) says why, and which package may import which. This page
is written by `python -m benchmarks.map`.
"""


def page() -> str:
    """The whole page."""
    folders = [PACKAGE, *sorted(path for path in PACKAGE.rglob("*") if path.is_dir())]
    sections = [_section(folder) for folder in folders]
    return "\n".join([_HEAD, *(section for section in sections if section)])


def _section(folder: Path) -> str:
    """A folder's Python files; empty where there are none."""
    files = [path for path in sorted(folder.glob("*.py")) if path.stat().st_size]
    if not files:
        return ""
    name = folder.relative_to(PACKAGE.parent).as_posix()
    rows = [f"| `{path.name}` | {_first_sentence(path)} |" for path in files]
    return "\n".join([f"## {name}", "", "| file | what it does |", "|---|---|", *rows, ""])


def _first_sentence(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    return paragraph.split(". ")[0].rstrip(".").replace("|", "\\|") + "."


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
