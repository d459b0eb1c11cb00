"""Published data sets over HTTP and from a file: what is taken from an archive, what is checked, what is refused."""

import hashlib
import http.server
import threading
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from xclearn.cli.data import data_app
from xclearn.data import load_dataset
from xclearn.data.published import PUBLISHED, Published, download_dataset
from xclearn.errors import ConfigError, DataError

NAME = "LF-Tiny-3"
FILES = {
    "trn_X_Xf.txt": "2 4\n0:1.0 1:0.5\n2:1.0\n",
    "trn_X_Y.txt": "2 3\n0:1 2:1\n1:1\n",
    "tst_X_Xf.txt": "1 4\n3:1.0\n",
    "tst_X_Y.txt": "1 3\n2:1\n",
    "lbl_X_Xf.txt": "3 4\n0:1.0\n2:1.0\n3:1.0\n",
    "filter_labels_test.txt": "0 1\n",
    "train.txt": "an older form of the same, which would be a rival of trn_X_Xf.txt\n",
    "README.md": "not read\n",
}


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PUBLISHED, NAME, Published(drive_id="none", train=2, test=1, labels=3))


def archive(folder: Path, files: Mapping[str, str]) -> Path:
    path = folder / "set.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, text in files.items():
            opened.writestr(f"{NAME}/{name}", text)
    return path


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """An address, and the folder whose files it answers with."""
    folder = tmp_path / "site"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments, **named):
            super().__init__(*arguments, directory=str(folder), **named)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", folder
        server.shutdown()
        thread.join()


def test_what_is_fetched_is_a_data_set_of_its_name(tmp_path, served):
    address, site = served
    packed = archive(site, FILES)
    found = download_dataset(NAME, tmp_path / "new", source=f"{address}/set.zip")
    assert found.sha256 == hashlib.sha256(packed.read_bytes()).hexdigest()
    assert sorted(path.name for path in found.folder.iterdir()) == sorted(
        ["dataset.json", *(name for name in FILES if name not in ("train.txt", "README.md"))]
    )
    data = load_dataset(found.folder)
    assert (data.name, len(data.train), len(data.test), data.n_labels) == (NAME, 2, 1, 3)
    np.testing.assert_array_equal(data.train.relevance.toarray(), [[1, 0, 1], [0, 1, 0]])
    assert data.test.filter_pairs.tolist() == [[0, 1]]
    assert data.labels.texts is not None


def test_an_archive_that_is_here_is_read_where_it_is_and_kept(tmp_path, monkeypatch):
    packed = archive(tmp_path, FILES)
    monkeypatch.chdir(tmp_path)
    digest = hashlib.sha256(packed.read_bytes()).hexdigest()
    assert download_dataset(NAME, source=str(packed), sha256=digest.upper()).folder == Path(NAME)
    assert packed.exists()
    with pytest.raises(DataError, match=r"another hash; got '[0-9a-f]{64}'; allowed: '?0000"):
        download_dataset(NAME, tmp_path / "b", source=str(packed), sha256="0" * 64)
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"trn_X_Y.txt": "2 4\n0:1\n1:1\n"}, r"trn_X_Y.txt is not that of LF-Tiny-3; .*2 4.*allowed: 2 3"),
        ({"tst_X_Xf.txt": "9 4\n0:1\n"}, r"tst_X_Xf.txt is not that of LF-Tiny-3; .*9 4.*allowed: 1"),
        ({"tst_X_Xf.txt": "<html>\n"}, r"tst_X_Xf.txt is not that of LF-Tiny-3"),
        ({"tst_X_Y.txt": None, "trn_X_Xf.txt": None}, "lacks trn_X_Xf.txt, tst_X_Y.txt"),
        ({"trn_X_Xf.txt": "2 4\n" + "0" * 30_000_000}, "unpacks to too much.*XCLEARN_MAX_EXPANSION"),
    ],
)
def test_another_archive_is_refused_and_nothing_is_left(tmp_path, changed, sentence):
    packed = archive(tmp_path, {name: text for name, text in (FILES | changed).items() if text is not None})
    with pytest.raises(DataError, match=sentence):
        download_dataset(NAME, tmp_path / "new", source=str(packed))
    assert not (tmp_path / "new").exists()


def test_without_a_network_the_error_says_what_to_do(tmp_path, served):
    address, site = served
    (site / "page.html").write_text("<!DOCTYPE html><title>too large to scan for viruses</title>")
    by_hand = rf"Get the archive where there is a network, and run `xc data download {NAME} --from FILE`"
    for source, sentence in (
        ("http://127.0.0.1:9/set.zip", rf"cannot be fetched; got '.*refused.*{by_hand}"),
        (f"{address}/none.zip", rf"cannot be fetched; got '.*{by_hand}"),
        (f"{address}/page.html", rf"not a zip archive; got '<!DOCTYPE.*{by_hand}"),
        ("ftp://127.0.0.1/set.zip", "no such archive; got .*allowed: a file, or an http address"),
        (str(tmp_path / "none.zip"), "no such archive"),
    ):
        with pytest.raises(DataError, match=sentence):
            download_dataset(NAME, tmp_path / "new", source=source)
        assert not (tmp_path / "new").exists()


def test_an_unknown_name_and_a_folder_in_use_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"NAME: no such published data set; .*Did you mean 'LF-AmazonTitles-131K'"):
        download_dataset("LF-AmazonTitles131K", tmp_path / "new")
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "mine").write_text("kept")
    with pytest.raises(DataError, match=r"new"):
        download_dataset(NAME, tmp_path / "new", source=str(archive(tmp_path, FILES)))
    assert (tmp_path / "new" / "mine").read_text() == "kept"


def test_the_command_lists_the_sets_and_says_the_hash(tmp_path):
    listed = CliRunner().invoke(data_app, ["download"])
    assert listed.exit_code == 0
    assert "LF-AmazonTitles-131K" in listed.stdout
    packed = archive(tmp_path, FILES)
    made = CliRunner().invoke(data_app, ["download", NAME, str(tmp_path / "new"), "--from", str(packed)])
    assert made.exit_code == 0
    assert hashlib.sha256(packed.read_bytes()).hexdigest() in made.output
