"""Annif's corpora and vocabularies, by hand-written files as Annif's own documentation shows them."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from tests.test_cli_reading import xc

from xclearn import Reading, load_dataset
from xclearn.data.dataset import Dataset
from xclearn.errors import ConfigError, DataError
from xclearn.labels.graph import EdgeList, LabelGraph

CATS, DOGS, PETS, OLD = (f"http://example.org/{name}" for name in ("p1", "p2", "p3", "p9"))
CORPUS = f'the "cat" on a mat\t<{CATS}>\ncats and dogs\t<{DOGS}> <{CATS}>\n\nnothing\t\na dog\t<{DOGS}>\t<{OLD}>\n'
VOCAB = f"<{DOGS}>\tdogs\tD1\n<{CATS}>\tcats\n<{PETS}>\tpets\n<{OLD}>\n"
CSV_VOCAB = f"""\
uri,label_fi,label_en,notation
{DOGS},koirat,dogs,D1
<{CATS}>,kissat,cats,
{PETS},lemmikit,,
{OLD},,,
"""
TURTLE = f"""\
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
<{PETS}> a skos:Concept ; skos:prefLabel "pets"@en, "lemmikit"@fi .
<{DOGS}> a skos:Concept ; skos:prefLabel "dogs"@en, "koirat"@fi ; skos:altLabel "hounds"@en ; skos:broader <{PETS}> .
<{CATS}> a skos:Concept ; skos:prefLabel "cats"@en, "kissat"@fi ; skos:broader <{PETS}> ; skos:related <{OLD}> .
<{OLD}> a skos:Concept ; skos:prefLabel "moggies"@en ; owl:deprecated true .
"""


def labels_of(data: Dataset) -> list[set[str]]:
    names = data.labels.names
    return [{names[label] for label in row.indices} for row in data.train.relevance]


def texts_of(data: Dataset) -> dict[str, str]:
    assert data.labels.texts is not None
    return dict(zip(data.labels.names, data.labels.texts, strict=True))


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.tsv"
    path.write_text(CORPUS)
    return path


@pytest.fixture
def skos(tmp_path: Path) -> Path:
    pytest.importorskip("rdflib")
    path = tmp_path / "vocab.ttl"
    path.write_text(TURTLE)
    return path


@pytest.mark.parametrize("packed", [False, True])
def test_a_tsv_without_a_header_has_a_text_and_uris_a_line(corpus: Path, packed: bool) -> None:
    if packed:
        corpus = corpus.with_name("corpus.tsv.gz")
        corpus.write_bytes(gzip.compress(CORPUS.encode()))
    data = load_dataset(corpus)
    assert list(data.train.documents) == ['the "cat" on a mat', "cats and dogs", "nothing", "a dog"]
    assert labels_of(data) == [{CATS}, {CATS, DOGS}, set(), {DOGS, OLD}]


def test_bare_uris_and_a_first_line_without_subjects(tmp_path: Path) -> None:
    (tmp_path / "c.tsv").write_text(f"nothing\t\na cat\t{CATS} urn:x:1\n")
    data = load_dataset(tmp_path / "c.tsv")
    assert list(data.train.documents) == ["nothing", "a cat"]
    assert labels_of(data) == [set(), {CATS, "urn:x:1"}]


def test_a_tsv_with_a_header_is_read_as_before(tmp_path: Path) -> None:
    (tmp_path / "c.tsv").write_text(f"text\tlabels\na cat\t{CATS};{DOGS}\n")
    assert labels_of(load_dataset(tmp_path / "c.tsv")) == [{CATS, DOGS}]


def test_csv_with_subject_uris(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text(f'document_id,text,subject_uris\nd1,"a cat, a dog",<{CATS}>  {DOGS}\nd2,none,\n')
    data = load_dataset(tmp_path / "c.csv")
    assert data.train.names == ["d1", "d2"]
    assert labels_of(data) == [{CATS, DOGS}, set()]
    frame = {"text": ["a cat"], "subject_uris": [f"<{CATS}> <{DOGS}>"]}
    assert labels_of(Dataset.from_frame(frame)) == [{CATS, DOGS}]


def test_json_lines_with_subjects(tmp_path: Path) -> None:
    subjects = f'[{{"uri": "{CATS}", "label": "cats"}}, {{"label": "dogs"}}]'
    (tmp_path / "c.jsonl").write_text(f'{{"text": "a cat", "subjects": {subjects}}}\n')
    (tmp_path / "v.tsv").write_text(VOCAB)
    assert labels_of(load_dataset(tmp_path / "c.jsonl")) == [{CATS, "dogs"}]
    assert labels_of(load_dataset(tmp_path / "c.jsonl", vocab=tmp_path / "v.tsv")) == [{CATS, DOGS}]


def test_full_texts_with_their_subjects_beside_them(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_text("\ufeffa cat\non a mat\n")
    (folder / "a.tsv").write_text(f"<{CATS}>\tcats\n<{PETS}>\tpets\n")
    (folder / "b.txt").write_text("two dogs")
    (folder / "b.key").write_text("dogs\n\npets\ndogs\n")
    (folder / "c.txt").write_text("nothing")
    (folder / "c.key").write_text("")
    data = load_dataset(folder)
    assert list(data.train.documents) == ["a cat\non a mat", "two dogs", "nothing"]
    assert data.train.names == ["a", "b", "c"]
    assert labels_of(data) == [{CATS, PETS}, {"dogs", "pets"}, set()]
    (tmp_path / "v.tsv").write_text(VOCAB)
    assert labels_of(load_dataset(folder, vocab=tmp_path / "v.tsv")) == [{CATS, PETS}, {DOGS, PETS}, set()]
    (folder / "d.txt").write_text("forgotten")
    with pytest.raises(
        DataError, match=r"d\.txt: there is no file of subjects beside this text; allowed: d\.tsv or d\.key"
    ):
        load_dataset(folder)


def test_full_texts_in_a_folder_for_each_split(tmp_path: Path) -> None:
    for split, name in (("train", "cats"), ("validate", "dogs"), ("test", "cats")):
        (tmp_path / split).mkdir()
        (tmp_path / split / "x.txt").write_text(f"about {name}")
        (tmp_path / split / "x.key").write_text(f"{name}\n")
    data = load_dataset(tmp_path)
    assert {role: list(split.documents) for role, split in data.splits.items()} == {
        "train": ["about cats"],
        "dev": ["about dogs"],
        "test": ["about cats"],
    }


@pytest.mark.parametrize(
    ("name", "content", "language", "texts"),
    [
        ("v.tsv", VOCAB, None, {DOGS: "dogs", CATS: "cats", PETS: "pets"}),
        ("v.tsv", VOCAB, "en", {DOGS: "dogs", CATS: "cats", PETS: "pets"}),
        ("v.csv", CSV_VOCAB, "fi", {DOGS: "koirat", CATS: "kissat", PETS: "lemmikit"}),
        ("v.csv", CSV_VOCAB, "en", {DOGS: "dogs", CATS: "cats", PETS: ""}),
        ("v.ttl", TURTLE, "en", {CATS: "cats", DOGS: "dogs; hounds", PETS: "pets"}),
        ("v.ttl", TURTLE, "fi", {CATS: "kissat", DOGS: "koirat", PETS: "lemmikit"}),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_vocabulary_says_which_labels_there_are(
    corpus: Path, name: str, content: str, language: str | None, texts: dict[str, str], packed: bool
) -> None:
    if name.endswith("ttl"):
        pytest.importorskip("rdflib")
    path = corpus.with_name(name + ".gz" * packed)
    path.write_bytes(gzip.compress(content.encode()) if packed else content.encode())
    data = load_dataset(corpus, vocab=path, language=language)
    assert (list(data.labels.names), texts_of(data)) == (list(texts), texts)
    assert labels_of(data) == [{CATS}, {CATS, DOGS}, set(), {DOGS}]
    assert data.left_out == {OLD: 1}


def test_rdf_xml_is_the_same_vocabulary(corpus: Path, skos: Path) -> None:
    from rdflib import Graph

    as_xml = skos.with_suffix(".rdf")
    Graph().parse(skos).serialize(as_xml, format="xml")
    one, other = (load_dataset(corpus, vocab=path, language="en") for path in (skos, as_xml))
    assert one.labels == other.labels


def test_labels_without_a_language_serve_every_language(corpus: Path, skos: Path) -> None:
    skos.write_text(TURTLE.replace('"pets"@en', '"Haustiere"'))
    assert texts_of(load_dataset(corpus, vocab=skos, language="en"))[PETS] == "Haustiere"
    assert texts_of(load_dataset(corpus, vocab=skos, language="fi"))[PETS] == "lemmikit"


def test_labels_that_share_a_text_are_not_told_apart_by_it(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text('{"text": "a cat", "subjects": [{"label": "cats"}]}\n')
    (tmp_path / "v.tsv").write_text(f"<{CATS}>\tcats\n<{DOGS}>\tcats\n")
    with pytest.raises(DataError, match=r"2 labels of the vocabulary have this text; got 'cats'"):
        load_dataset(tmp_path / "c.jsonl", vocab=tmp_path / "v.tsv")


def test_the_relations_of_skos_are_a_label_graph(corpus: Path, skos: Path) -> None:
    data = load_dataset(corpus, vocab=skos, language="en")  # CATS, DOGS, PETS
    graph = LabelGraph(source=EdgeList(path=str(skos))).build(data.train.relevance, data.labels.names, 0)
    np.testing.assert_array_equal(graph.toarray(), [[1, 0, 1], [0, 1, 1], [1, 1, 1]])  # OLD is no label


def test_relations_become_a_file_of_edges(corpus: Path, skos: Path) -> None:
    edges = corpus.with_name("edges.tsv")
    path = ("--set", "source=edge_list", "--set", f"source.path={skos}")
    done = xc("data", "graph", corpus, "--vocab", skos, "--language", "en", *path, "-o", edges)
    assert done.returncode == 0, done.stderr
    lines = {tuple(line.split("\t")) for line in edges.read_text().splitlines()}
    loops = {(name, name, "1") for name in (CATS, DOGS, PETS)}
    assert lines - loops == {(a, b, "1") for one in (CATS, DOGS) for a, b in ((one, PETS), (PETS, one))}


def test_the_command_line_reads_them(corpus: Path) -> None:
    vocab = corpus.with_name("v.csv")
    vocab.write_text(CSV_VOCAB)
    out = corpus.with_name("converted")
    done = xc("data", "convert", corpus, out, "--vocab", vocab, "--language", "fi")
    assert done.returncode == 0, done.stderr
    assert "read: corpus.tsv: no header, a text and URIs per line" in done.stderr
    assert f"1 labels of documents that are not in the vocabulary, left out, for example: {OLD} (1)" in done.stderr
    again = load_dataset(out)
    assert texts_of(again) == {DOGS: "koirat", CATS: "kissat", PETS: "lemmikit"}
    assert labels_of(again) == [{CATS}, {CATS, DOGS}, set(), {DOGS}]
    found = xc("data", "validate", corpus, "--vocab", vocab, "--language", "fi").stdout
    assert "not in the vocabulary" in found


def test_wrong_files_are_told_in_one_sentence(corpus: Path, tmp_path: Path) -> None:
    vocab, csv, labels = tmp_path / "v.tsv", tmp_path / "v.csv", tmp_path / "labels.jsonl"
    vocab.write_text(VOCAB)
    csv.write_text(CSV_VOCAB)
    labels.write_text('{"label": "a"}\n')
    broken = tmp_path / "broken.tsv"
    broken.write_text(f"a cat\t<{CATS}>\na dog\tdogs\n")
    other = tmp_path / "other.tsv"
    other.write_text("<http://example.org/q>\tnobody\n")
    for source, flags, sentence in [
        (vocab, [], "this is a vocabulary, not documents with labels. Give a vocabulary with --vocab"),
        (tmp_path / "v.ttl", [], "no such file"),
        (broken, [], "broken.tsv:2: not a line of an Annif corpus; got"),
        (corpus, ["--vocab", tmp_path / "none.tsv"], "--vocab: no such file"),
        (corpus, ["--vocab", corpus], "this is a corpus, not a vocabulary. --vocab needs URIs and labels"),
        (corpus, ["--vocab", csv], "labels in several languages; got 'fi, en'. Choose one with --language."),
        (corpus, ["--vocab", csv, "--language", "sv"], "no labels in this language; got 'sv'; allowed: fi, en"),
        (corpus, ["--vocab", labels, "--language", "sv"], "--language for"),
        (corpus, ["--language", "fi"], "Give the vocabulary with --vocab."),
        (corpus, ["--vocab", other], "none of the documents' labels is in the vocabulary (--vocab)"),
    ]:
        done = xc("data", "stats", source, *flags)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert sentence in done.stderr
        assert "Traceback" not in done.stderr


def test_what_skos_cannot_be_read_from(corpus: Path, skos: Path) -> None:
    skos.write_text("@prefix skos: <http://x/> .\n")
    with pytest.raises(DataError, match="no concepts"):
        load_dataset(corpus, vocab=skos)
    skos.write_text("this is no turtle")
    with pytest.raises(DataError, match="not readable as SKOS"):
        load_dataset(corpus, vocab=skos)
    with pytest.raises(DataError, match="Give a SKOS vocabulary with --vocab"):
        load_dataset(skos)


def test_a_folder_keeps_its_own_label_file(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text(CORPUS)
    (tmp_path / "labels.tsv").write_text(VOCAB)
    with pytest.raises(DataError, match=r"this label is not in the label file; got 'http://example\.org/p9'"):
        load_dataset(tmp_path)
    with pytest.raises(ConfigError, match="the folder already has a label file"):
        load_dataset(tmp_path, vocab=tmp_path / "labels.tsv")
    with pytest.raises(ConfigError, match="a data frame cannot have a vocabulary"):
        Dataset.from_frame({"text": ["a"], "labels": ["b"]}, Reading(vocab="v.tsv"))
