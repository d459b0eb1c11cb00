"""Hostile RDF: small files that would become large, or lead elsewhere."""

import bz2
import gzip
import lzma
from pathlib import Path
from types import ModuleType

import pytest

from xclearn.data.folder import data_file
from xclearn.data.vocabulary import read_vocabulary
from xclearn.errors import DataError

pytest.importorskip("rdflib")

TURTLE = "@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n"
XML = """<?xml version="1.0"?>
<!DOCTYPE rdf [ {entities} ]>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:skos="http://www.w3.org/2004/02/skos/core#">
<skos:Concept rdf:about="http://e/1"><skos:prefLabel>{text}</skos:prefLabel></skos:Concept></rdf:RDF>"""


def labels(path: Path, content: str) -> list[str]:
    path.write_text(content)
    return [row.text for row in read_vocabulary(data_file(path))]


@pytest.mark.parametrize("packing", [gzip, bz2, lzma])
def test_packed_xml_is_read_and_no_more_of_it_than_is_plausible(tmp_path: Path, packing: ModuleType) -> None:
    path = tmp_path / f"v.rdf.{ {gzip: 'gz', bz2: 'bz2', lzma: 'xz'}[packing] }"
    path.write_bytes(packing.compress(XML.format(entities="", text="dogs").encode()))
    assert [row.text for row in read_vocabulary(data_file(path))] == ["dogs"]
    path.write_bytes(packing.compress(XML.format(entities="", text=" " * 8_000_000).encode()))
    with pytest.raises(DataError, match="unpacks to more than is plausible"):
        list(read_vocabulary(data_file(path)))


def test_entities_that_multiply_are_refused(tmp_path: Path) -> None:
    """Before, the 150 bytes of each line of entities took minutes."""
    entities = '<!ENTITY e0 "laughter">' + "".join(f'<!ENTITY e{i} "{10 * f"&e{i - 1};"}">' for i in range(1, 9))
    with pytest.raises(DataError, match="amplification"):
        labels(tmp_path / "v.rdf", XML.format(entities=entities, text="&e8;"))


def test_entities_of_a_short_text_are_read(tmp_path: Path) -> None:
    found = labels(
        tmp_path / "v.rdf", XML.format(entities='<!ENTITY x "or">', text="cats &x; " * 3 + "&amp; <!-- dogs -->owls")
    )
    assert found == ["cats or cats or cats or & owls"]


def test_a_text_in_many_pieces_is_read_in_one_pass(tmp_path: Path) -> None:
    """Before, each piece was appended to all before it: hours for these."""
    assert labels(tmp_path / "v.rdf", XML.format(entities='<!ENTITY x "b">', text="a&x;" * 2_000_000)) == [
        "ab" * 2_000_000
    ]


def test_text_of_another_file_is_refused_and_not_left_out(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    entities = f'<!ENTITY x SYSTEM "{(tmp_path / "secret.txt").as_uri()}">'
    with pytest.raises(DataError, match="takes text from another file"):
        labels(tmp_path / "v.rdf", XML.format(entities=entities, text="a&x;b"))


def test_numbers_are_not_written_out(tmp_path: Path) -> None:
    """Before, a gigabyte of memory."""
    number = '"1e999999999"^^<http://www.w3.org/2001/XMLSchema#decimal>'
    assert labels(tmp_path / "v.ttl", f"{TURTLE}<http://e/1> a skos:Concept ; skos:prefLabel {number} .") == [
        "1e999999999"
    ]


@pytest.mark.parametrize("form", ["ttl", "rdf"])
def test_prefixes_that_multiply_are_refused(tmp_path: Path, form: str) -> None:
    """Before, a gigabyte of names from 200 KB, and so on."""
    prefix = "http://e/" + "a" * 100_000
    if form == "ttl":
        content = f"{TURTLE}@prefix p: <{prefix}> .\n" + "".join(f"p:c{i} a skos:Concept .\n" for i in range(5000))
    else:
        properties = "".join(f"<p:a{i}>x</p:a{i}>" for i in range(5000))
        content = XML.format(entities="", text="").replace("<skos:prefLabel>", f"{properties}<skos:prefLabel>")
        content = content.replace("<rdf:RDF ", f'<rdf:RDF xmlns:p="{prefix}" ')
    with pytest.raises(DataError, match=r"longer than is plausible for its size.*XCLEARN_MAX_EXPANSION"):
        labels(tmp_path / f"v.{form}", content)


def test_a_line_that_would_take_hours_is_refused(tmp_path: Path) -> None:
    triple = f'<http://e/1> <http://e/p> "{"x" * (1 << 20)}" .\n'
    with pytest.raises(DataError, match=r"v\.nt:2: the line is too long for RDF; allowed: at most 1048576 characters"):
        labels(tmp_path / "v.nt", "# a\n" + triple)


def test_a_number_that_is_none_stays_a_text_and_shows_no_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    number = '"many"^^<http://www.w3.org/2001/XMLSchema#integer>'
    assert labels(tmp_path / "v.ttl", f"{TURTLE}<http://e/1> a skos:Concept ; skos:prefLabel {number} .") == ["many"]
    assert not caplog.records
