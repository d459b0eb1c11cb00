"""What is published, as configured: wheels, workflows and the image say the same as pyproject.toml and the sources."""

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT, WHEELS = PYPROJECT["project"], PYPROJECT["tool"]["cibuildwheel"]
WORKFLOWS = {path.stem: path for path in (ROOT / ".github" / "workflows").glob("*.yml")}
PYTHONS = [name.rpartition(" ")[2] for name in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", name)]
KIND_OF_RUNNER = {"ubuntu": "Linux", "macos": "MacOS", "windows": "Windows"}


def jobs(workflow: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(WORKFLOWS[workflow].read_text(encoding="utf-8"))["jobs"]
    return found


def steps(workflow: str) -> list[dict[str, Any]]:
    return [step for job in jobs(workflow).values() for step in job["steps"]]


def test_there_are_workflows_for_tests_wheels_and_docs() -> None:
    assert sorted(WORKFLOWS) == ["docs", "test", "wheels"]


def test_pythons_that_are_named_are_those_that_get_wheels_and_are_tested() -> None:
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"
    for python in PYTHONS:
        identifier = f"cp{python.replace('.', '')}-manylinux_x86_64"
        assert any(fnmatch(identifier, pattern) for pattern in WHEELS["build"]), identifier
    assert len(WHEELS["build"]) == len(PYTHONS)
    assert jobs("test")["test"]["strategy"]["matrix"]["python"] == PYTHONS


def test_systems_that_are_named_are_those_that_wheels_are_built_on() -> None:
    named = {name.rpartition(" ")[2] for name in PROJECT["classifiers"] if name.startswith("Operating System")}
    runners = jobs("wheels")["wheels"]["strategy"]["matrix"]["runner"]
    assert {KIND_OF_RUNNER[runner.partition("-")[0]] for runner in runners} == named
    assert {"manylinux_2_28", "musllinux_1_2"} == set(WHEELS["linux"].values())


def test_every_wheel_is_tried_with_a_script_that_the_source_distribution_holds() -> None:
    script = WHEELS["test-command"].partition("{project}/")[2]
    assert (ROOT / script).is_file()
    assert f"/{script}" in PYPROJECT["tool"]["scikit-build"]["sdist"]["include"]
    assert script in (ROOT / ".ci" / "wheels").read_text(encoding="utf-8")


def test_nothing_is_published_that_was_not_built_and_tried() -> None:
    publish = jobs("wheels")["publish"]
    assert set(publish["needs"]) == jobs("wheels").keys() - {"publish"}
    assert "refs/tags/v" in publish["if"]
    assert jobs("docs")["publish"]["needs"] == "build"


@pytest.mark.parametrize("workflow", sorted(WORKFLOWS))
def test_workflows_run_what_is_there_and_may_write_only_where_they_publish(workflow: str) -> None:
    text = WORKFLOWS[workflow].read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    used = re.findall(r"\bmake ([\w-]+)", text)
    assert set(used) <= targets
    assert all((ROOT / script).is_file() for script in re.findall(r"run: (\.ci/\w+)", text))
    assert yaml.safe_load(text)["permissions"] == {"contents": "read"}
    writing = {name for name, job in jobs(workflow).items() if "write" in job.get("permissions", {}).values()}
    assert writing <= {"publish"}
    for action in (step["uses"] for step in steps(workflow) if "uses" in step):
        assert re.fullmatch(r"[\w-]+/[\w-]+@(v\d+|release/v\d+)", action), f"no version: {action}"


def test_the_image_installs_extras_that_exist_and_copies_what_a_wheel_is_built_of() -> None:
    image = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    (extras,) = re.findall(r'\$wheel\[([\w,]+)\]"', image)
    assert set(extras.split(",")) <= PROJECT["optional-dependencies"].keys()
    (python,) = set(re.findall(r"FROM python:([\d.]+)-slim", image))
    assert python in PYTHONS
    assert re.search(r"^USER (?!root)", image, re.MULTILINE), "it runs as root"
    sent = set(re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), re.MULTILINE))
    needed = {"CMakeLists.txt", "pyproject.toml", "src", PROJECT["readme"], *PROJECT["license-files"]}
    assert needed <= sent
    assert all((ROOT / name).exists() for name in sent)


def test_addresses_are_of_one_repository_and_types_are_published() -> None:
    addresses = PROJECT["urls"]
    assert {"Documentation", "Repository", "Issues", "Changelog"} <= addresses.keys()
    owner, name = addresses["Repository"].split("/")[-2:]
    assert all(f"{owner}/{name}" in address or f"{owner}.github.io/{name}" in address for address in addresses.values())
    assert (ROOT / "src" / "xclearn" / "py.typed").is_file()
    assert "Typing :: Typed" in PROJECT["classifiers"]


def test_what_only_one_compiler_knows_stands_in_one_header() -> None:
    """Visual C++ has no attributes and builtins of GCC: what is compiled there must reach them by a name of ours."""
    native = ROOT / "src" / "xclearn" / "kernels" / "native"
    for path in (*native.glob("*.cpp"), *native.glob("*.h")):
        if path.name == "compiler.h":
            continue
        source = re.sub(r"#if defined\(__GNUC__\).*?#endif", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert not re.search(r"__attribute__|__builtin_|__forceinline|__declspec|\b__int128\b", source), path.name
