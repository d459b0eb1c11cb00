"""Valid small data sets of every format that is read, and the ways in which a file of each kind is made hostile.

Everything follows from a `random.Random`; knows nothing about readers or outcomes.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import struct
import zipfile
import zlib
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from pyarrow import parquet

Files = dict[str, bytes]  # of a folder, by name

_NUMBERS = [-1, 0, 1, 2, 3, 4, 7, 1000, 65536, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63]
_WORDS = ["-0", "1e400", "-1e-400", "nan", "inf", "1e38", "3.5e38", "1_0", "٣", "0x1", "", " ", "\t", ":", ",", ";"]
_WORDS += ["\0", "\r", "\n", '"', "'", "\\", "\ufeff", "\u2028", "é", "😀", "9" * 5000, "a" * 3000, "__label__"]
_WORDS += map(str, _NUMBERS)
_JSON_VALUES = ["null", "true", "1.5", "1e999", "NaN", "-1", "[]", "{}", '""', '"x"', "[[]]", '["x"]', "[0]", "[true]"]
_JSON_VALUES += [
    '"\\ud800"',
    '["\\udc00"]',
    '"\\u0000"',
    "[" * 2000,
    "9" * 5000,
    '{"text": "a"}',
    f"{2**70}",
    "[0, 1, 1]",
]
_OFFSETS = [-(2**63), -(2**40), -1, 0, 1, 2, 3, 5, 2**31 - 1, 2**31, 2**32, 2**40, 2**62, 2**63 - 1]
_LAYOUTS = ("csr", "csc", "coo")


# Valid sets.


def _texts(random: Random, rows: int) -> list[str]:
    words = ["paper", "jam", "network", "é", "printer", "", "a,b", "no", "tray"]
    return [" ".join(random.choices(words, k=random.randrange(6))) for _ in range(rows)]


def _names(random: Random) -> list[list[str]]:
    return [["x"], *(random.sample(["x", "y", "zé", "w w"], random.randrange(4)) for _ in range(random.randrange(12)))]


def _jsonl(random: Random) -> Files:
    labels = _names(random)
    rows = [{"text": text, "labels": names} for text, names in zip(_texts(random, len(labels)), labels, strict=True)]
    files = {"train.jsonl": rows, "test.jsonl": rows[:2]}
    if random.random() < 0.5:
        files["labels.jsonl"] = [{"label": name, "text": f"text {name}"} for name in ("x", "y", "zé", "w w")]
        files["train.jsonl"] = [row | {"labels": [0], "uid": f"u{i}"} for i, row in enumerate(rows)]
    return {
        name: _lines(json.dumps(row, ensure_ascii=random.random() < 0.5) for row in rows)
        for name, rows in files.items()
    }


def _raw_xc(random: Random) -> Files:
    texts = _texts(random, 6)
    rows = [{"uid": str(i), "title": text, "content": "more", "target_ind": [i % 3]} for i, text in enumerate(texts)]
    labels = [{"uid": f"L{i}", "title": f"label {i}"} for i in range(3)]
    return {name: _lines(map(json.dumps, rows)) for name, rows in (("trn.json", rows), ("lbl.json", labels))}


def _table(random: Random) -> Files:
    suffix, mark = random.choice([("csv", ","), ("tsv", "\t")])
    rows = [f'"{text}"{mark}{";".join(names)}' for text, names in zip(_texts(random, 20), _names(random), strict=False)]
    about = {"about": json.dumps({"name": "set", "label_separator": ";", "propensity": [0.5, 1.5]}).encode()}
    return {f"train.{suffix}": _lines([f"text{mark}labels", *rows]), "dataset.json": about["about"]}


def _fasttext(random: Random) -> Files:
    rows = [" ".join(["__label__x", *(f"__label__{name}" for name in names), "text"]) for names in _names(random)]
    return {"train.txt": _lines(rows), "labels.txt": _lines(["x", "y", "zé", "w", "w w"])}


def _matrices(random: Random) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    generator = np.random.default_rng(random.getrandbits(32))
    rows = random.randrange(1, 9)
    features = sp.random(rows, 5, density=0.5, format="csr", dtype=np.float32, random_state=generator)
    relevance = sp.csr_matrix((generator.random((rows, 4)) < 0.5).astype(np.float32))
    relevance[0, 0] = 1
    return features, relevance.tocsr()


def _pairs(matrix: sp.csr_matrix) -> list[str]:
    return [" ".join(f"{j}:{value:.4g}" for j, value in enumerate(row) if value) for row in matrix.toarray()]


def _old_xc(random: Random) -> Files:
    features, relevance = _matrices(random)
    labels = [",".join(map(str, np.flatnonzero(row))) for row in relevance.toarray()]
    rows = [f"{names} {pairs}" for names, pairs in zip(labels, _pairs(features), strict=True)]
    files = {"train.txt": _lines([f"{features.shape[0]} 5 4", *rows]), "filter_train.txt": b"0 0\n"}
    return files | ({"Y.txt": "a\nb\n\né\n".encode("latin-1")} if random.random() < 0.5 else {})


def _new_xc(random: Random) -> Files:
    features, relevance = _matrices(random)
    header = f"{features.shape[0]} "
    files = {"trn_X_Xf.txt": [f"{header}5", *_pairs(features)], "trn_X_Y.txt": [f"{header}4", *_pairs(relevance)]}
    files |= {"filter_labels_train.txt": ["0 0"], "lbl_X_Xf.txt": ["4 5", "0:1", "", "4:.5", "1:2 3:4"]}
    return {name: _lines(lines) for name, lines in files.items()}


def _npz(random: Random) -> Files:
    features, relevance = _matrices(random)
    files = {"train_Y.npz": _packed_npz(_arrays(relevance.asformat(random.choice(_LAYOUTS))), random)}
    if random.random() < 0.3:
        return files | {"train_X.npy": _npy(features.toarray())}
    return files | {
        "train_X.npz": _packed_npz(_arrays(features.asformat(random.choice(["csr", "csc", "coo"]))), random)
    }


def _parquet(random: Random) -> Files:
    labels = _names(random)
    table = pa.table({"text": _texts(random, len(labels)), "labels": labels})
    return {"train.parquet": _packed_parquet(table, random)}


def _documents(random: Random) -> Files:
    return {"documents.txt": _jsonl(random)["train.jsonl"] if random.random() < 0.5 else _lines(_texts(random, 9))}


def _vectors(random: Random) -> Files:
    if random.random() < 0.3:
        return {"vectors.npy": _npy(np.ones((3, 4), dtype=random.choice([np.float32, np.float64])))}
    rows = [f"{word} 0.5 -1 2e-3" for word in ("paper", "jam", "é", "other")]
    return {"vectors.txt": _lines([*random.choice([["4 3"], []]), *rows])}


def _edges(random: Random) -> Files:
    suffix, mark = random.choice([("csv", ","), ("tsv", "\t")])
    rows = [mark.join([*random.choices("xyz", k=2), "0.5"]) for _ in range(6)]
    return {f"edges.{suffix}": _lines(rows)}


def _skos(random: Random) -> Files:
    """A corpus of Annif, and a vocabulary of one of the forms that it takes."""
    concepts = [f"http://e/{name}" for name in "xyz"]
    subjects = [" ".join(f"<{uri}>" for uri in random.sample(concepts, random.randrange(1, 4))) for _ in range(6)]
    corpus = _lines(f"{text or 'a'}\t{uris}" for text, uris in zip(_texts(random, 6), subjects, strict=True))
    form = random.choice(sorted(_VOCABULARIES))
    return {"train.tsv": corpus, f"vocabulary.{form}": _VOCABULARIES[form](concepts).encode()}


def _turtle(concepts: list[str]) -> str:
    begin = f"@prefix skos: <{_SKOS}> .\n@prefix owl: <http://www.w3.org/2002/07/owl#> .\n"
    lines = [
        f'<{uri}> a skos:Concept ; skos:prefLabel "label {uri}"@en, """été"""@fr ; skos:altLabel "b\\n"@en .'
        for uri in concepts
    ]
    return begin + "\n".join(
        [*lines, f"<{concepts[0]}> owl:deprecated 1.5 ; skos:broader <{concepts[1]}> ; skos:note [] ."]
    )


def _triples(concepts: list[str]) -> str:
    kind = f"<{_RDF}type> <{_SKOS}Concept>"
    number = '"1.50"^^<http://www.w3.org/2001/XMLSchema#decimal>'
    return "".join(
        f'<{uri}> {kind} .\n<{uri}> <{_SKOS}prefLabel> "label \\u00e9"@en .\n<{uri}> <{_SKOS}notation> {number} .\n'
        for uri in concepts
    )


def _rdf_xml(concepts: list[str]) -> str:
    label = '<skos:prefLabel xml:lang="en">label &amp; &x;</skos:prefLabel>'
    inner = "".join(f'<skos:Concept rdf:about="{uri}">{label}</skos:Concept>\n' for uri in concepts)
    entities = '<!DOCTYPE rdf [<!ENTITY x "&#233;">]>'
    return f'<?xml version="1.0"?>{entities}<rdf:RDF xmlns:rdf="{_RDF}" xmlns:skos="{_SKOS}">\n{inner}</rdf:RDF>'


_SKOS, _RDF = "http://www.w3.org/2004/02/skos/core#", "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_VOCABULARIES: dict[str, Callable[[list[str]], str]] = {
    "ttl": _turtle,
    "nt": _triples,
    "rdf": _rdf_xml,
    "tsv": lambda concepts: "".join(f"<{uri}>\tlabel\tn\n" for uri in concepts),
    "csv": lambda concepts: "uri,label_en,notation\n" + "".join(f'{uri},"a, b",1\n' for uri in concepts),
}


def _full_texts(random: Random) -> Files:
    files = {}
    for number, text in enumerate(_texts(random, 4)):
        files[f"{number}.txt"] = _lines([text, "more"])
        with_uri = random.random() < 0.5
        files[f"{number}.{'tsv' if with_uri else 'key'}"] = _lines(["<http://e/x>\tx"] if with_uri else ["x", "y z"])
    return files


def _lines(lines: Any) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


SETS: dict[str, Callable[[Random], Files]] = {
    "jsonl": _jsonl,
    "raw_xc": _raw_xc,
    "table": _table,
    "fasttext": _fasttext,
    "old_xc": _old_xc,
    "new_xc": _new_xc,
    "npz": _npz,
    "parquet": _parquet,
    "documents": _documents,
    "vectors": _vectors,
    "edges": _edges,
    "full_texts": _full_texts,
    "skos": _skos,
}


# Containers.


def _arrays(matrix: Any) -> dict[str, np.ndarray]:
    """What `scipy.sparse.save_npz` stores."""
    places = ("row", "col") if matrix.format == "coo" else ("indices", "indptr")
    stored = {name: getattr(matrix, name) for name in places}
    return stored | {"data": matrix.data, "shape": np.array(matrix.shape), "format": np.array(matrix.format.encode())}


def _npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def _packed_npz(arrays: dict[str, np.ndarray], random: Random) -> bytes:
    return _zip({name: _npy(array) for name, array in arrays.items()}, random)


def _zip(members: dict[str, bytes], random: Random) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", random.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return stream.getvalue()


def _packed_parquet(table: pa.Table, random: Random, use_dictionary: bool | None = None) -> bytes:
    stream = io.BytesIO()
    parquet.write_table(
        table,
        stream,
        compression=random.choice(["none", "snappy", "zstd", "gzip"]),
        use_dictionary=random.random() < 0.7 if use_dictionary is None else use_dictionary,
        row_group_size=max(random.choice([2, 5, 10**6]), table.num_rows // 50),
        data_page_version=random.choice(["1.0", "2.0"]),
        store_schema=random.random() < 0.7,
    )
    return stream.getvalue()


def _zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": _zstd,
}


# Mutations.


def mutate(name: str, data: bytes, random: Random) -> bytes:
    """A hostile version of a file, by what its suffix says it is."""
    if name.endswith(".npz") and random.random() < 0.8:
        return _hostile_npz(data, random)
    if name.endswith(".npy") and random.random() < 0.5:
        return _hostile_npy(data, random)
    if name.endswith(".parquet") and random.random() < 0.6:
        return _hostile_parquet(random)
    if name.endswith((".npz", ".npy", ".parquet")):
        return mutate_bytes(data, random)
    text = random.choice((_hostile_lines, _hostile_words, _hostile_words, _hostile_json, mutate_bytes))
    return text(data, random)


def mutate_bytes(data: bytes, random: Random) -> bytes:
    """Some bytes are changed, cut out, put in, doubled, or the end cut off."""
    changed = bytearray(data)
    for _ in range(random.choice([1, 1, 2, 4, 16])):
        start = random.randrange(len(changed) + 1)
        end = min(len(changed), start + random.choice([1, 1, 4, 8, 40]))
        match random.randrange(6):
            case 0:
                changed[start:end] = random.randbytes(end - start)
            case 1:
                del changed[start:end]
            case 2:
                changed[start:start] = random.randbytes(random.randrange(9))
            case 3:
                changed[start:start] = changed[start:end] * random.randrange(9)
            case 4:
                changed[start:end] = random.choice([b"\0", b"\xff", b"\x80", b"\x7f"]) * (end - start)
            case 5:
                size = random.choice("bhiq")
                value = random.choice(_OFFSETS) & (256 ** struct.calcsize(size) - 1)
                changed[start : start + struct.calcsize(size)] = value.to_bytes(struct.calcsize(size), "little")
    return bytes(changed[: random.randrange(len(changed) + 1)] if random.random() < 0.1 else changed)


def _hostile_lines(data: bytes, random: Random) -> bytes:
    lines = data.split(b"\n")
    row = random.randrange(len(lines))
    match random.randrange(7):
        case 0:
            lines[row:row] = [b""] * random.choice([1, 3, 10_000])
        case 1:
            lines[row:row] = [lines[row]] * random.choice([1, 3, 2000])
        case 2:
            del lines[row]
        case 3:
            lines[row] = lines[row] * random.choice([2, 500])
        case 4:
            random.shuffle(lines)
        case 5:
            lines[row] = b" " + lines[row] + b"\r"
        case 6:
            lines[row] = lines[row].replace(b'"', b"", 1) if b'"' in lines[row] else b'"' + lines[row]
    return b"\n".join(lines)


def _hostile_words(data: bytes, random: Random) -> bytes:
    """One or two of the tokens between marks are replaced; the marks stay."""
    text = data.decode("latin-1")
    for _ in range(random.randrange(1, 3)):
        marks = [i for i, letter in enumerate(text) if letter in ' :,;\n\t"']
        start, end = sorted(random.choices([-1, *marks, len(text)], k=2))
        if random.random() < 0.8:
            end = next((mark for mark in marks if mark > start), len(text))
        text = text[: start + 1] + random.choice(_WORDS).encode().decode("latin-1") + text[end:]
    return text.encode("latin-1")


def _hostile_json(data: bytes, random: Random) -> bytes:
    """The value of one key of one line is another; or the key is."""
    lines = data.split(b"\n")
    row = random.randrange(len(lines))
    try:
        values = {key: json.dumps(value) for key, value in json.loads(lines[row]).items()}
    except (ValueError, AttributeError):
        return _hostile_words(data, random)
    key = random.choice([*values, "uid", "text", "label", "labels", "title", "name"])
    values[key] = random.choice(_JSON_VALUES)
    lines[row] = f"{{{', '.join(f'{json.dumps(key)}: {value}' for key, value in values.items())}}}".encode()
    return b"\n".join(lines)


def _hostile_npz(data: bytes, random: Random) -> bytes:
    try:
        with np.load(io.BytesIO(data)) as stored:
            arrays = dict(stored)
    except Exception:  # it is hostile already
        return mutate_bytes(data, random)
    for _ in range(random.choice([1, 1, 2, 3])):
        name = random.choice(sorted(arrays))
        arrays[name] = _hostile_array(arrays[name], random)
        if random.random() < 0.1:
            del arrays[random.choice(sorted(arrays))]
            arrays |= {random.choice(["row", "col", "indices", "indptr", "_is_array", "coords"]): np.arange(3)}
    members = {name: _npy(array) for name, array in arrays.items()}
    if random.random() < 0.3:
        name = random.choice(sorted(members))
        members[name] = _hostile_npy(members[name], random)
    return _zip(members, random)


def _hostile_array(array: np.ndarray, random: Random) -> np.ndarray:
    match random.randrange(9):
        case 0:
            kinds = ["i1", "u1", "<i4", ">i4", "i8", "u8", "f2", "f4", "f8", "c8", "?", "U3", "S3", "O", "M8[s]"]
            with np.errstate(all="ignore"):
                return np.zeros(3, "M8[s]") if array.dtype.kind == "S" else array.astype(random.choice(kinds))
        case 1:
            return array[: random.randrange(array.size + 1)] if array.ndim else np.empty(0)
        case 2:
            return np.concatenate([array.reshape(-1)] * random.choice([2, 3, 1000]))
        case 3:
            return array.reshape(random.choice([(1, -1), (-1, 1), (-1,), (1, 1, -1)]))
        case 4:
            return np.array(random.choice([b"csr", b"csc", b"coo", b"bsr", b"dia", b"lil", "csr", b"\xff", 0]))
        case 5:
            return np.array(random.choices(_OFFSETS, k=2), dtype=np.int64)
        case 6:
            return np.zeros(random.choice([0, 1, 5, 2_000_000]), dtype=random.choice(["i4", "i8", "f4"]))
    if array.dtype.kind not in "iuf":
        return array
    changed = array.astype(np.float64 if array.dtype.kind == "f" else np.int64).reshape(-1).copy()
    for _ in range(random.choice([1, 2, 5])):
        if len(changed):
            worst = [np.nan, np.inf, -np.inf, 1e39, 0, -0.0] if changed.dtype.kind == "f" else _OFFSETS
            changed[random.randrange(len(changed))] = random.choice(worst)
    return changed


def _hostile_npy(data: bytes, random: Random) -> bytes:
    """The header lies: shape, dtype or order are others than the bytes behind it."""
    shape = random.choice(
        ["()", "(3,)", "(0, 4)", f"({10**12}, 0)", f"({2**62}, 2)", "(-1, 4)", "(2, 2)", f"({10**9},)"]
    )
    kind = random.choice(["<f4", "<f8", "|O", "<i8", "|b1", "<U100000000", "<c16", "|V8", "f4,i4", ">f2"])
    header = f"{{'descr': '{kind}', 'fortran_order': {random.random() < 0.3}, 'shape': {shape}, }}"
    if random.random() < 0.2:
        header = random.choice(["{}", "[", "(" * 900, header[:-3], header.replace("}", "'x': 1}"), "9" * 5000])
    version = random.choice([b"\x01\x00", b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x00"])
    size = struct.pack("<H" if version[0] == 1 else "<I", len(header) + 1)
    return b"\x93NUMPY" + version + size + header.encode() + b"\n" + data[128:]


def _hostile_parquet(random: Random) -> bytes:
    """Columns of other types, with nulls, with bytes that are no text; run lengths that unpack to much."""
    rows = random.choice([0, 1, 3, 50, 200_000])
    columns: dict[str, Any] = {}
    for name in random.sample(["text", "labels", "uid", "label", "title", "content", "target_ind", "other"], 3):
        columns[name] = _hostile_column(rows, random)
    return _packed_parquet(pa.table(columns), random, use_dictionary=True)  # else a long text makes a file of gigabytes


def _hostile_column(rows: int, random: Random) -> pa.Array:
    shape = random.randrange(5)
    longest = 100_000 if shape == 4 or rows <= 50 else 100  # Arrow writes a nested text out in full, for every row
    value = random.choice(["x", "a" * longest, b"\xff", 1, 2**63 - 1, -1, 1.5, True, None])
    if isinstance(value, str):  # stays one value here
        column = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), [value])
    else:
        column = pa.nulls(rows) if value is None else pa.repeat(pa.scalar(value), rows)
    match shape:
        case 0:
            return pa.ListArray.from_arrays(np.arange(rows + 1, dtype=np.int32), column)
        case 1:  # the first list holds all
            return pa.ListArray.from_arrays(np.array([0, *[rows] * rows], dtype=np.int32), column)
        case 2:
            return pa.array([None if row % 3 else ["x", None] for row in range(rows)], pa.list_(pa.string()))
        case 3:
            return pa.StructArray.from_arrays([column], names=["inner"])
    return column


def damage_packing(data: bytes, random: Random) -> bytes:
    """A packed file is damaged, doubled, cut, followed by something, or asks for a gigabyte of dictionary."""
    match random.randrange(6):
        case 0:
            return data + data
        case 1:
            return data + random.randbytes(random.randrange(1, 50))
        case 2:
            return data[: random.randrange(len(data) + 1)]
        case 3 if data[:6] == b"\xfd7zXZ\0":
            changed = bytearray(data)
            changed[16] = random.randrange(20, 41)
            changed[20:24] = zlib.crc32(changed[12:20]).to_bytes(4, "little")
            return bytes(changed)
    return mutate_bytes(data, random)
