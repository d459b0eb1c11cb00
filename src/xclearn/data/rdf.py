"""RDF files as rdflib reads them, of anybody: no other file is opened, and memory follows what the file holds.

Knows nothing about vocabularies. rdflib is imported only here and where its names are needed.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, final
from xml.sax.expatreader import ExpatParser
from xml.sax.handler import feature_namespaces

from xclearn.errors import DataError
from xclearn.extras import require
from xclearn.files import numbered_lines, open_binary
from xclearn.limits import largest_contents, too_much

XML = "xml"  # as rdflib calls it
_LONGEST_LINE = 1 << 20  # characters; rdflib needs seconds for this many, and four times that for twice as many


def read_graph(path: Path, form: str) -> Any:
    """The graph of a file, compressed or not, in a form that rdflib names; nothing is fetched from the network."""
    require("rdflib", "a SKOS vocabulary", otherwise="give it as CSV or TSV")
    if form != XML:
        _check_lines(path)
    graph = _bounded_graph(path)
    with open_binary(path) as file, _literals_as_written():
        try:
            return _parse_xml(graph, file, path) if form == XML else graph.parse(file, format=form)
        except DataError:
            raise
        except Exception as error:  # each of rdflib's parsers has errors of its own
            what = " ".join(str(error).split())
            raise DataError(f"not readable as SKOS ({what[:200]})", where=str(path)) from error


def _check_lines(path: Path) -> None:
    for number, line in numbered_lines(path):
        if len(line) > _LONGEST_LINE:
            where = f"{path}:{number}"
            raise DataError("the line is too long for RDF", where=where, allowed=f"at most {_LONGEST_LINE} characters")


def _bounded_graph(path: Path) -> Any:
    """A graph that stops where prefixes have made much more of a file than there is in it."""
    from rdflib import Graph

    most = largest_contents(path)

    @final
    class BoundedGraph(Graph):
        n_characters = 0

        def add(self, triple: Any) -> Any:
            self.n_characters += sum(map(len, triple))
            if self.n_characters > most:
                what = "the names and texts of the file are longer than is plausible for its size"
                raise too_much("expansion", what, where=str(path), most=most)
            return super().add(triple)

    return BoundedGraph()


@contextlib.contextmanager
def _literals_as_written() -> Iterator[None]:
    """Numbers stay as they stand in the file: written out, `1e999999999` would be a billion digits.

    A text that is not of its type stays too; rdflib would show a traceback on stderr.
    """
    import rdflib

    log = logging.getLogger("rdflib.term")
    before, level = rdflib.NORMALIZE_LITERALS, log.level
    rdflib.NORMALIZE_LITERALS = False
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        rdflib.NORMALIZE_LITERALS = before
        log.setLevel(level)


def _parse_xml(graph: Any, file: BinaryIO, path: Path) -> Any:
    from rdflib.parser import create_input_source
    from rdflib.plugins.parsers.rdfxml import ErrorHandler, RDFXMLHandler

    @final
    class WholeTexts(RDFXMLHandler):
        """rdflib appends every piece of a text to all before it, in time that is quadratic in their number."""

        def __init__(self) -> None:
            super().__init__(graph)
            self._pieces: list[str] = []

        def characters(self, content: str) -> None:
            self._pieces.append(content)

        def startElementNS(self, *element: Any) -> None:  # noqa: N802 (a name of SAX)
            self._give_text()
            super().startElementNS(*element)

        def endElementNS(self, *element: Any) -> None:  # noqa: N802
            self._give_text()
            super().endElementNS(*element)

        def _give_text(self) -> None:
            if self._pieces:
                super().characters("".join(self._pieces))
                self._pieces.clear()

    source = create_input_source(source=file, format=XML)
    handler = WholeTexts()
    handler.setDocumentLocator(source)  # type: ignore[arg-type]  # as rdflib itself does
    parser = _alone(path)
    parser.setFeature(feature_namespaces, 1)
    parser.setContentHandler(handler)
    parser.setErrorHandler(ErrorHandler())
    parser.parse(source)
    return graph


def _alone(path: Path) -> ExpatParser:
    """A parser that rejects external entities instead of skipping or reading them. Expat limits other entities."""

    @final
    class Alone(ExpatParser):
        def external_entity_ref(self, context: str | None, *names: str | None) -> int:
            if context is None:  # a document type, which RDF does not need
                return 1
            raise DataError("the file takes text from another file", where=str(path), got=names[1])

    return Alone()
