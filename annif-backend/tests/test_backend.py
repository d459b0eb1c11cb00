"""The backend inside a real Annif: its command and its REST interface, on a corpus whose right answers are known.

Run by `make test-annif`, in an environment of its own.
"""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

ANNIF = Path(sys.executable).with_name("annif")
WORDS = ["cat", "dog", "horse", "library", "music", "bread", "river", "winter", "engine", "garden"]
PROJECTS = """\
[DEFAULT]
language=en
vocab=things
backend=xclearn
allow_learn=true
[tree]
name=Tree
[learning]
vectoriser=subwords
[flat]
algorithm=sparse_one_vs_all
vectoriser.longest=2
[wrong]
tree_count=3
[unknown]
algorithm=bonsai
"""


def uri(word: str) -> str:
    return f"http://example.org/{word}"


def corpus_lines(words: list[str]) -> str:
    return "".join(f"notes about {word}s, number {i}\t<{uri(word)}>\n" for i in range(8) for word in words)


def annif(folder: Path, *arguments: str, text: str = "", code: int = 0) -> str:
    done = subprocess.run(
        [ANNIF, *arguments], cwd=folder, input=text, text=True, capture_output=True, check=False, env=environment()
    )
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def vocabulary(words: list[str]) -> str:
    return "".join(f"<{uri(word)}>\t{word}\n" for word in words)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a vocabulary of which the last two subjects have no documents, and a trained project."""
    made = tmp_path_factory.mktemp("annif")
    (made / "projects.cfg").write_text(PROJECTS)
    (made / "things.tsv").write_text(vocabulary(WORDS))
    (made / "corpus.tsv").write_text(corpus_lines(WORDS[:8]))
    annif(made, "load-vocab", "--language", "en", "things", "things.tsv")
    for project in ("tree", "learning"):
        annif(made, "train", project, "corpus.tsv")
    return made


def suggested(output: str) -> list[tuple[str, str, float]]:
    """(URI, label, score) of the lines of `annif suggest`."""
    rows = [line.split("\t") for line in output.splitlines()]
    return [(row[0].strip("<>"), row[1], float(row[2])) for row in rows]


def test_annif_knows_the_backend(folder: Path) -> None:
    assert "label_tree" in annif(folder, "xclearn")
    shown = annif(folder, "show-project", "tree")
    assert "True" in next(line for line in shown.splitlines() if line.startswith("Trained"))


def test_suggestions_are_subjects_of_the_vocabulary(folder: Path) -> None:
    found = suggested(annif(folder, "suggest", "--limit", "3", "tree", text="a dog and its noted bone"))
    assert found[0][:2] == (uri("dog"), "dog")
    assert len(found) <= 3
    assert all(0 <= score <= 1 for *_, score in found)


def test_words_are_stemmed_in_the_language_of_the_project(folder: Path) -> None:
    found = suggested(annif(folder, "suggest", "--limit", "1", "tree", text="riverside? no: the rivers"))
    assert found[0][0] == uri("river")
    state = json.loads((folder / "data/projects/tree/xclearn-model/model.json").read_text())
    assert state["about"]["settings"]["vectoriser"]["language"] == "en"


def test_settings_of_the_section_are_those_of_the_algorithm(folder: Path) -> None:
    annif(folder, "train", "flat", "corpus.tsv", "--backend-param", "xclearn.cost=0.5")
    about = json.loads((folder / "data/projects/flat/xclearn-model/model.json").read_text())["about"]
    assert about["algorithm"] == "sparse_one_vs_all"
    assert (about["settings"]["vectoriser"]["longest"], about["settings"]["cost"]) == (2, 0.5)
    assert annif(folder, "eval", "flat", "corpus.tsv").count("F1@5") == 1


def test_what_is_wrong_is_told_in_one_sentence(folder: Path) -> None:
    told = annif(folder, "train", "wrong", "corpus.tsv", code=1)
    assert "Misconfigured backend 'xclearn'" in told
    assert "tree_count" in told
    assert "unknown algorithm; got 'bonsai'" in annif(folder, "train", "unknown", "corpus.tsv", code=1)
    assert "Project is not trained" in annif(folder, "suggest", "unknown", text="a dog", code=1)
    assert "cached data is not supported" in annif(folder, "train", "tree", "--cached", code=1)
    (folder / "empty.tsv").write_text("")
    assert "no documents" in annif(folder, "train", "tree", "empty.tsv", code=1)


def test_a_subject_without_documents_is_learnt(folder: Path) -> None:
    before = suggested(annif(folder, "suggest", "--limit", "1", "learning", text="sowing and weeding"))
    assert not before or before[0][0] != uri("garden")
    (folder / "more.tsv").write_text(f"sowing and weeding beds\t<{uri('garden')}>\nweeding beds\t<{uri('garden')}>\n")
    annif(folder, "learn", "learning", "more.tsv")
    assert suggested(annif(folder, "suggest", "--limit", "1", "learning", text="weeding beds"))[0][0] == uri("garden")
    assert suggested(annif(folder, "suggest", "--limit", "1", "learning", text="a dog"))[0][0] == uri("dog")


def test_a_subject_that_came_later_is_learnt(folder: Path) -> None:
    (folder / "things.tsv").write_text(vocabulary([*WORDS, "island"]))
    annif(folder, "load-vocab", "--language", "en", "things", "things.tsv")
    (folder / "more.tsv").write_text(f"an atoll\t<{uri('island')}>\na dog\t<{uri('dog')}>\n")
    annif(folder, "learn", "learning", "more.tsv")
    assert suggested(annif(folder, "suggest", "--limit", "1", "learning", text="islands"))[0][0] == uri("island")


def test_known_subjects_are_not_learnt(folder: Path) -> None:
    (folder / "more.tsv").write_text(f"a dog\t<{uri('dog')}>\n")
    assert "run 'annif train' on all documents" in annif(folder, "learn", "learning", "more.tsv", code=1)


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [ANNIF, "run", "--port", str(port)]
    process = subprocess.Popen(command, cwd=folder, env=environment(), stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}/v1"
    for _ in range(600):
        try:
            urllib.request.urlopen(f"{address}/projects", timeout=5).close()
            break
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    yield address
    process.terminate()
    process.wait()


def post(address: str, body: bytes, kind: str) -> dict:
    request = urllib.request.Request(address, body, {"Content-Type": kind})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read() or b"{}")


def test_rest_suggests_for_one_text_and_for_many(server: str) -> None:
    one = post(f"{server}/projects/tree/suggest", b"text=cats+and+a+cat&limit=2", "application/x-www-form-urlencoded")
    assert one["results"][0]["uri"] == uri("cat")
    documents = {"documents": [{"text": "a dog"}, {"text": "bread"}, {"text": ""}]}
    many = post(f"{server}/projects/tree/suggest-batch?limit=2", json.dumps(documents).encode(), "application/json")
    assert [answer["results"][0]["uri"] for answer in many[:2]] == [uri("dog"), uri("bread")]


def test_rest_learns_what_it_then_suggests(server: str) -> None:
    document = [{"text": "pistons and valves", "subjects": [{"uri": uri("engine")}]}]
    post(f"{server}/projects/learning/learn", json.dumps(document).encode(), "application/json")
    found = post(
        f"{server}/projects/learning/suggest", b"text=pistons+and+valves&limit=1", "application/x-www-form-urlencoded"
    )
    assert found["results"][0]["uri"] == uri("engine")
    with pytest.raises(urllib.error.HTTPError) as caught:
        post(f"{server}/projects/learning/learn", json.dumps(document).encode(), "application/json")
    assert "learns new subjects only" in caught.value.read().decode()
