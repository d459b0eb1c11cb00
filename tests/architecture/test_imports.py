"""The one-way flow, read from every import statement of the package; and how long `xc --help` takes."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "xclearn"
FILES = sorted(SOURCE.rglob("*.py"))

# A module imports only from its own package and from what stands before it; the first seven are one tier.
FLOW = [
    {"_version", "errors", "extras", "limits", "files", "writing", "config"},
    *({name} for name in ("kernels", "text", "data", "labels", "metrics", "inference", "parts", "search")),
    *({name} for name in ("training", "algorithms", "integrations", "serving", "cli", "__main__")),
]
TIER = {name: tier for tier, names in enumerate(FLOW) for name in names}
USERS_OF_EXTRAS = {"integrations", "serving"}
CORE = {"numpy", "scipy", "sklearn", "threadpoolctl", "safetensors", "tokenizers", "pyarrow", "typer", "rich"}
# starlette and pydantic come with fastapi, h11 with uvicorn
SERVE = {"fastapi", "uvicorn", "starlette", "pydantic", "h11"}
EXTRAS = SERVE | {
    "torch",
    "faiss",
    "huggingface_hub",
    "transformers",
    "ray",
    "matplotlib",
    "optuna",
    "tensorboard",
    "mlflow",
    "rdflib",
    "snowballstemmer",
}


class Import(NamedTuple):
    file: Path  # relative to the package
    line: int
    target: str  # dotted, absolute
    at_load: bool  # runs when the module is imported

    @property
    def package(self) -> str:
        """The first name under xclearn of the importing file; '' for xclearn/__init__.py itself."""
        name = self.file.parts[0].removesuffix(".py")
        return "" if name == "__init__" else name

    @property
    def top(self) -> str:
        return self.target.split(".")[0]

    @property
    def inner(self) -> str:
        """The first name under xclearn of the target; '' for xclearn itself."""
        return [*self.target.split("."), ""][1]

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.target}"


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def walk(node: ast.AST, at_load: bool = True) -> Iterator[tuple[ast.AST, bool]]:
    """Every node below, with whether it runs when the module is loaded."""
    for child in ast.iter_child_nodes(node):
        child_at_load = at_load and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        child_at_load = child_at_load and not is_type_checking(child)
        yield child, child_at_load
        yield from walk(child, child_at_load)


def targets(node: ast.AST, file: Path) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    package = ["xclearn", *file.parent.parts]
    base = package[: len(package) - node.level + 1] if node.level else []
    module = ".".join([*base, *filter(None, [node.module])])
    return [f"{module}.{alias.name}" for alias in node.names]


def imports_of(file: Path, source: str) -> list[Import]:
    tree = ast.parse(source)
    return [Import(file, node.lineno, name, at_load) for node, at_load in walk(tree) for name in targets(node, file)]


def against_the_flow(found: Import) -> bool:
    if found.top != "xclearn" or found.package in ("", found.inner):
        return False
    # A name that is no package is a public name of xclearn, which may stand for an algorithm.
    return TIER.get(found.inner, TIER["integrations"]) > TIER[found.package]


IMPORTS = [found for path in FILES for found in imports_of(path.relative_to(SOURCE), path.read_text(encoding="utf-8"))]


def test_the_files_were_looked_at():
    assert len(FILES) >= 60
    assert len(IMPORTS) >= 150
    assert {found.package for found in IMPORTS} - {""} <= set(TIER)


@pytest.mark.parametrize(
    ("file", "source", "expected"),
    [
        ("metrics/ranking.py", "from xclearn.data.topk import TopK", False),
        ("data/readers.py", "def read():\n    from xclearn.metrics import precision", True),
        ("text/words.py", "from ..training import loop", True),
        ("text/words.py", "from xclearn import parts", True),
        ("text/words.py", "from .tokens import split", False),
        ("labels/clusters.py", "from xclearn import load_dataset", True),
        ("cli/main.py", "from xclearn import load_dataset", False),
        ("cli/main.py", "from xclearn.serving import app", False),
        ("serving/app.py", "from xclearn.cli import main", True),
        ("files.py", "from xclearn.config import parse", False),
        ("__init__.py", "from xclearn.algorithms import astec", False),
    ],
)
def test_the_rule_itself(file, source, expected):
    assert [against_the_flow(found) for found in imports_of(Path(file), source)] == [expected]


def test_imports_flow_one_way():
    assert [str(found) for found in IMPORTS if against_the_flow(found)] == []


def test_no_algorithm_imports_another():
    folder = SOURCE / "algorithms"
    algorithms = {path.stem for path in folder.glob("[!_]*.py")} | {path.parent.name for path in folder.glob("*/*.py")}
    assert len(algorithms) >= 11
    crossed = [
        str(found)
        for found in IMPORTS
        if found.package == "algorithms"
        and found.target.startswith("xclearn.algorithms.")
        and found.target.split(".")[2] in algorithms - {found.file.parts[1].removesuffix(".py")}
    ]
    assert crossed == []


def test_inference_loads_without_torch():
    loading = [
        str(found) for found in IMPORTS if found.package == "inference" and found.top == "torch" and found.at_load
    ]
    assert loading == []


def test_what_stands_before_parts_loads_without_torch():
    """The same for what it imports in turn: a fresh interpreter loads all of it, and torch is not there."""
    light = [name for name, tier in TIER.items() if tier < TIER["parts"]]
    names = [
        ".".join(["xclearn", *path.relative_to(SOURCE).with_suffix("").parts]).removesuffix(".__init__")
        for path in FILES
        if path.relative_to(SOURCE).parts[0].removesuffix(".py") in light
    ]
    program = (
        f"import importlib, sys\nfor name in {names}: importlib.import_module(name)\nsys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_the_core_loads_only_core_dependencies():
    known = CORE | sys.stdlib_module_names | {"xclearn"}
    deep = {"parts", "search", "training", "algorithms"}  # test_without_torch.py says what of these runs without it
    foreign = [
        str(found)
        for found in IMPORTS
        if found.at_load
        and found.package not in USERS_OF_EXTRAS
        and found.top not in (known | {"torch"} if found.package in deep else known)
        and not found.file.name.startswith("triton_")  # loaded only where there is a CUDA device
    ]
    assert foreign == []


def test_every_imported_package_is_declared():
    # triton: in PyTorch's CUDA builds; IPython: imported only where it is running
    known = CORE | EXTRAS | sys.stdlib_module_names | {"xclearn", "triton", "IPython"}
    assert [str(found) for found in IMPORTS if found.top not in known] == []


def test_the_library_does_not_print():
    prints = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in FILES
        if path.relative_to(SOURCE).parts[0] != "cli"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert prints == []


def cpu_seconds(command: list[str]) -> float:
    """Of one child that succeeds."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime


@pytest.mark.skipif(not hasattr(os, "wait4"), reason="the CPU time of a child needs os.wait4")
def test_help_takes_less_than_half_a_second():
    command = [sys.executable, "-c", "from xclearn.cli.main import main; main()", "--help"]
    assert min(cpu_seconds(command) for _ in range(3)) < 0.5
