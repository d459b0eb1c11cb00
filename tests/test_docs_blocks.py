"""The documentation is executed: every `python` block, and the `$ xc` lines of every `console run` block.

The blocks of a file run in their order, in one namespace and one empty working directory. A block that cannot run here
is preceded by the line `<!-- no-run: reason -->`; there may be few of those, and each says why.
"""

import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

MINIMUM_BLOCKS = 67  # as many as there are: a page that is no longer found must fail, not pass
MOST_SKIPPED = 3

_FENCE = re.compile(r"\s*(?P<marks>`{3,}|~{3,})(?P<info>[^`]*)")
_NO_RUN = re.compile(r"\s*<!-- no-run: (?P<reason>.+) -->\s*")
_XC = "from xclearn.cli.main import main; main()"


class Block(NamedTuple):
    line: int  # of the fence, from 1
    info: str  # what stands behind the fence
    source: str
    no_run: str | None  # the reason, where there is one

    @property
    def is_python(self) -> bool:
        return self.info.split()[:1] == ["python"]

    @property
    def is_console(self) -> bool:
        return self.info.split() == ["console", "run"]


def blocks_of(text: str) -> list[Block]:
    """The fenced blocks of a page; one that is never closed is an error of the page."""
    found: list[Block] = []
    lines = text.splitlines()
    start, opening = 0, None
    for i, line in enumerate(lines):
        fence = _FENCE.fullmatch(line)
        if opening is None and fence:
            start, opening = i, fence
        elif opening and fence and fence["marks"].startswith(opening["marks"]) and not fence["info"].strip():
            reason = _NO_RUN.fullmatch(lines[start - 1]) if start else None
            source = dedent("\n".join(lines[start + 1 : i]))
            found.append(Block(start + 1, opening["info"].strip(), source, reason and reason["reason"]))
            opening = None
    assert opening is None, f"the block of line {start + 1} is not closed"
    return found


def commands_of(source: str) -> list[str]:
    """The lines that begin with `$ xc `, each with the lines it continues on."""
    joined = source.replace("\\\n", " ")
    return [line.removeprefix("$ ") for line in joined.splitlines() if line.startswith("$ xc ")]


def run_page(text: str, name: str, folder: Path) -> None:
    """Run what is to be run; the working directory is already `folder`."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks_of(text):
        if block.no_run is None and block.is_python:
            code = compile("\n" * block.line + block.source, name, "exec")  # tracebacks show the page's own lines
            exec(code, namespace)
        elif block.no_run is None and block.is_console:
            for command in commands_of(block.source):
                run_command(command, f"{name}:{block.line}", folder)


def run_command(command: str, where: str, folder: Path) -> None:
    """In a shell, where `xc` is this package's."""
    script = f'xc() {{ "{sys.executable}" -c "{_XC}" "$@"; }}\n{command}'
    done = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{where}: `{command}` ended with {done.returncode}:\n{done.stdout}{done.stderr}"


BLOCKS = [(page.relative_to(ROOT), block) for page in PAGES for block in blocks_of(page.read_text(encoding="utf-8"))]
RUNNABLE = [(page, block) for page, block in BLOCKS if block.is_python or block.is_console]


@pytest.mark.parametrize("page", list(dict.fromkeys(page for page, _ in RUNNABLE)), ids=str)
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page((ROOT / page).read_text(encoding="utf-8"), str(page), tmp_path)


def test_as_many_blocks_were_found_as_there_are() -> None:
    assert len(RUNNABLE) >= MINIMUM_BLOCKS


def test_few_blocks_are_not_run() -> None:
    skipped = [f"{page}:{block.line}: {block.no_run}" for page, block in RUNNABLE if block.no_run is not None]
    assert len(skipped) <= MOST_SKIPPED, "\n".join(skipped)


def test_no_python_hides_behind_another_name() -> None:
    languages = {block.info.split()[0] for _, block in BLOCKS if block.info}
    assert languages.isdisjoint({"py", "python3", "pycon", "Python"})


# The runner itself, on pages made for it.

PAGE = """
Text with `code`.

```python
answer = 6 * 7
```

<!-- no-run: it would take hours -->
```python
raise SystemExit
```

````text
```python
raise SystemExit
```
````

=== "Tab"

    ```python title="second"
    assert answer == 42
    open("made", "w").close()
    ```

```console
$ xc nonsense
```

```console run
$ ls
$ xc --version
xclearn 0.0.0
$ xc algorithms \\
    one_vs_all
```
"""


def test_blocks_are_found_with_their_line_kind_and_reason() -> None:
    found = [(block.line, block.info, block.no_run) for block in blocks_of(PAGE)]
    assert found == [
        (4, "python", None),
        (9, "python", "it would take hours"),
        (13, "text", None),
        (21, 'python title="second"', None),
        (26, "console", None),
        (30, "console run", None),
    ]
    assert commands_of(blocks_of(PAGE)[-1].source) == ["xc --version", "xc algorithms      one_vs_all"]


def test_blocks_run_in_order_in_one_namespace_and_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(PAGE, "page.md", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_a_python_block_that_fails_fails_on_its_line(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        run_page("\n\n```python\nx = 1\nx / 0\n```\n", "page.md", tmp_path)
    assert (str(caught.traceback[-1].path), caught.traceback[-1].lineno + 1) == ("page.md", 5)


def test_a_command_that_fails_is_told(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"page.md:1: `xc predict nowhere` ended with 2:\n.*no model here"):
        run_page("```console run\n$ xc predict nowhere\n```\n", "page.md", tmp_path)


def test_a_block_that_is_not_closed_is_an_error() -> None:
    with pytest.raises(AssertionError, match="line 2 is not closed"):
        blocks_of("\n```python\nx = 1\n")
