"""Reads vocabularies: URIs and their labels in one language, from Annif's TSV, CSV and SKOS, or a label file.

Deprecated concepts are left out. rdflib is imported only for SKOS.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from xclearn.data.annif import bare_uri, begins_with_uri, is_corpus, is_uri
from xclearn.data.columns import USUAL
from xclearn.data.folder import DataFile
from xclearn.data.rdf import XML, read_graph
from xclearn.data.records import LabelRow, read_label_rows
from xclearn.data.tables import rows_of
from xclearn.errors import ConfigError, DataError
from xclearn.files import numbered_lines

SKOS = {"ttl": "turtle", "nt": "nt", "rdf": XML, "xml": XML}  # suffix → rdflib's name of the format

_PREFIX = "label_"  # prefix of a CSV column with labels, before the language
_RELATIONS = ("broader", "narrower", "related")


def read_vocabulary(file: DataFile, language: str | None = None) -> Iterator[LabelRow]:
    """The labels of a vocabulary or label file in file order; for SKOS, sorted by URI."""
    if file.suffix in SKOS:
        return _skos_rows(file.path, language)
    if file.suffix == "tsv" and begins_with_uri(file.path):
        return _tsv_rows(file.path)
    if file.suffix == "csv" and "uri" in (header := _header(file)):
        return _csv_rows(file, _label_column(file.path, header, language))
    if file.suffix == "tsv" and is_corpus(file.path):
        todo = "--vocab needs URIs and labels: TSV, CSV or SKOS."
        raise DataError("this is a corpus, not a vocabulary", where=str(file.path), todo=todo)
    if language is not None:
        allowed = "a vocabulary as CSV with uri and label_xx, as TSV with URI and label, or as SKOS"
        raise ConfigError(
            "a label file has no languages", where=f"--language for {file.path}", got=language, allowed=allowed
        )
    return read_label_rows(file)


def skos_edges(path: Path) -> Iterator[tuple[str, str]]:
    """The pairs of broader, narrower or related concepts, in both directions, sorted and unique."""
    from rdflib.namespace import SKOS as NAMES

    graph = _graph(path)
    pairs = {(str(one), str(other)) for name in _RELATIONS for one, other in graph.subject_objects(NAMES[name])}
    return iter(sorted(pairs | {(other, one) for one, other in pairs}))


def _tsv_rows(path: Path) -> Iterator[LabelRow]:
    """`<uri><tab>label<tab>notation`; a line without a label is a deprecated concept."""
    for number, line in numbered_lines(path):
        if not line.strip():
            continue
        uri, label, *_ = [*map(str.strip, line.split("\t")), ""]
        if not is_uri(uri):
            allowed = "a URI, a tab and a label"
            raise DataError("not a line of a vocabulary", where=f"{path}:{number}", got=line, allowed=allowed)
        if label:
            yield LabelRow(number, bare_uri(uri), label)


def _header(file: DataFile) -> list[str]:
    return list(next((row for _, row in rows_of(file, USUAL, list)), {}))


def _label_column(path: Path, header: list[str], language: str | None) -> str:
    languages = [name.removeprefix(_PREFIX) for name in header if name.startswith(_PREFIX)]
    if language is None and "label" in header:
        return "label"
    return _PREFIX + _chosen(path, languages, language)


def _csv_rows(file: DataFile, column: str) -> Iterator[LabelRow]:
    for line, row in rows_of(file, USUAL, list):
        labels = [row[name] for name in row if name == "label" or name.startswith(_PREFIX)]
        if any(labels):  # a row without labels is a deprecated concept
            yield LabelRow(line, bare_uri(row["uri"].strip()), row[column].strip())


def _chosen(path: Path, languages: list[str], language: str | None) -> str:
    """The requested language, or the only one."""
    known = ", ".join(languages) or "none"
    if language is None and len(languages) != 1:
        what = "the vocabulary has labels in several languages"
        todo = "Choose one with --language."
        if not languages:
            what = "the vocabulary has no labels"
            todo = "A CSV needs columns such as label_en."
        raise ConfigError(what, where=str(path), got=known, todo=todo)
    if language is not None and language not in languages:
        raise DataError("no labels in this language", where=f"--language for {path}", got=language, allowed=known)
    return language or languages[0]


def _skos_rows(path: Path, language: str | None) -> Iterator[LabelRow]:
    """The preferred and alternative labels of each concept; labels without a language count for every language."""
    from rdflib.namespace import OWL, RDF
    from rdflib.namespace import SKOS as NAMES
    from rdflib.term import Literal

    graph = _graph(path)
    found = graph.subjects(RDF.type, NAMES.Concept)
    concepts = {str(concept): concept for concept in found if (concept, OWL.deprecated, Literal(True)) not in graph}
    if not concepts:
        raise DataError("the file has no concepts (skos:Concept)", where=str(path))
    preferred = {uri: _by_language(graph, concept, NAMES.prefLabel) for uri, concept in concepts.items()}
    languages = sorted({tag for labels in preferred.values() for tag in labels if tag})
    tag = _chosen(path, languages, language) if languages else ""
    for number, uri in enumerate(sorted(concepts)):
        label = (preferred[uri].get(tag) or preferred[uri].get("") or [""])[0]
        others = _by_language(graph, concepts[uri], NAMES.altLabel).get(tag, [])
        yield LabelRow(number, uri, label, tuple(other for other in others if other != label))


def _by_language(graph: Any, concept: Any, property: Any) -> dict[str, list[str]]:
    """The sorted labels of a concept by language, "" for none."""
    found: dict[str, list[str]] = {}
    for label in graph.objects(concept, property):
        found.setdefault(getattr(label, "language", None) or "", []).append(str(label))
    return {tag: sorted(labels) for tag, labels in found.items()}


def _graph(path: Path) -> Any:
    from xclearn.data.folder import data_file

    return read_graph(path, SKOS[data_file(path).suffix])
