"""`make count`: how much code there is, what is too long, and which type names have more than one home.

Code lines are those of src/xclearn without blank lines, comments and docstrings.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

SOURCE = Path(__file__).parents[1] / "src" / "xclearn"
LONGEST_BODY, MOST_ARGUMENTS = 40, 8
_SHOWN = 10
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}

_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


class Function(NamedTuple):
    """One function or method."""

    where: str  # file:line name
    lines: int  # code lines of its body
    arguments: int  # without self and cls

    def __str__(self) -> str:
        return f"{self.lines:5} lines, {self.arguments:2} arguments  {self.where}"


def code_lines(source: str) -> set[int]:
    """Numbers of the lines that hold code."""
    documented = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and ast.get_docstring(node, clean=False) is not None
        for line in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
    }
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    code = {n for token in tokens if token.type not in _NO_CODE for n in range(token.start[0], token.end[0] + 1)}
    return code - documented


def functions(source: str, name: str) -> Iterator[Function]:
    """All functions of a file with their lengths, but for Triton kernels: they take one pointer for each array."""
    lines = code_lines(source)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _Function) and "triton.jit" not in map(ast.unparse, node.decorator_list):
            body = range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1)
            every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            arguments = [each for each in every if each.arg not in ("self", "cls")]
            yield Function(f"{name}:{node.lineno} {node.name}", len(lines.intersection(body)), len(arguments))


def homes(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """Type names, each with the files that define it: classes, and names that stand for a type."""
    found = defaultdict(list)
    for name, source in sources.items():
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef):
                found[node.name].append(name)
            elif isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias":
                found[ast.unparse(node.target)].append(name)
            elif isinstance(node, ast.Assign) and ast.unparse(node.value).startswith(("Literal[", "Annotated[")):
                found[ast.unparse(node.targets[0])].append(name)
    return dict(found)


def sources() -> dict[str, str]:
    """Every file of the package: path below it → text."""
    return {str(path.relative_to(SOURCE)): path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py"))}


def too_long(files: Mapping[str, str]) -> list[Function]:
    """Functions whose body is over 40 lines, and outside cli/ those with over 8 arguments; longest first."""
    every = sorted((each for name, source in files.items() for each in functions(source, name)), key=lambda f: -f.lines)
    return [
        each
        for each in every
        if each.lines > LONGEST_BODY or (each.arguments > MOST_ARGUMENTS and not each.where.startswith("cli/"))
    ]


def main() -> None:
    files = sources()
    lines = {name: len(code_lines(source)) for name, source in files.items()}
    every = sorted((each for name, source in files.items() for each in functions(source, name)), key=lambda f: -f.lines)
    print(f"{sum(lines.values()):,} code lines in {len(files)} files\n\nLargest files")
    for name in sorted(lines, key=lambda name: -lines[name])[:_SHOWN]:
        print(f"{lines[name]:5}  {name}")
    print("\nLongest functions", *every[:_SHOWN], sep="\n")
    print(f"\nOver {LONGEST_BODY} lines, or over {MOST_ARGUMENTS} arguments", *too_long(files), sep="\n")
    print("\nType names with more than one home")
    for name, places in sorted(homes(files).items()):
        if len(places) > 1:
            print(f"{name:20} {', '.join(places)}")


if __name__ == "__main__":
    main()
