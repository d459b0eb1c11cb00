"""Tensor files against the safetensors library, and against files that lie."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load_file, save_file

from xclearn.errors import DataError, ModelError
from xclearn.inference.tensors import StringTable, read_tensors, tensor_shapes, write_tensors

DTYPES = [np.float16, np.float32, np.float64, np.int64, np.int32, np.int8, np.uint8, np.bool_]
ARRAYS = hnp.arrays(st.sampled_from(DTYPES), hnp.array_shapes(min_dims=0, min_side=0, max_dims=3, max_side=4))


def same(left: np.ndarray, right: np.ndarray) -> bool:
    return (left.dtype, left.shape, left.tobytes()) == (right.dtype, right.shape, right.tobytes())


@given(tensors=st.dictionaries(st.text(max_size=5).filter(lambda s: s != "__metadata__"), ARRAYS, max_size=4))
def test_what_is_written_is_read(tmp_path_factory, tensors):
    path = tmp_path_factory.mktemp("tensors") / "t.safetensors"
    try:
        write_tensors(path, tensors, {"facts": "{}"})
    except UnicodeEncodeError:
        return  # a name that is no Unicode; names are ours, never the user's
    found, metadata = read_tensors(path)
    assert metadata == {"facts": "{}"}
    assert found.keys() == tensors.keys()
    assert all(same(found[name], value) for name, value in tensors.items())


def test_the_library_reads_ours_and_we_read_the_librarys(tmp_path):
    tensors = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array(5), "c": np.arange(4)[::-1]}
    write_tensors(tmp_path / "ours", tensors)
    theirs = load_file(tmp_path / "ours")
    assert all(same(theirs[name], np.asarray(value, order="C")) for name, value in tensors.items())
    save_file({"a": tensors["a"]}, tmp_path / "theirs")
    assert same(read_tensors(tmp_path / "theirs")[0]["a"], tensors["a"])


def test_reading_maps_the_file_and_cannot_change_it(tmp_path):
    write_tensors(tmp_path / "t", {"a": np.ones(3)})
    found = read_tensors(tmp_path / "t")[0]["a"]
    assert not found.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 2


def test_a_failed_write_leaves_nothing(tmp_path):
    with pytest.raises(DataError, match="writing failed"):
        write_tensors(tmp_path / "missing" / "t", {"a": np.ones(3)})
    assert list(tmp_path.iterdir()) == []


def test_shapes_are_read_of_types_that_numpy_lacks(tmp_path):
    half = {"a": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}, "__metadata__": {"format": "pt"}}
    (tmp_path / "t").write_bytes(packed(half, bytes(12)))
    assert tensor_shapes(tmp_path / "t") == {"a": (2, 3)}
    with pytest.raises(ModelError, match="does not fit"):
        read_tensors(tmp_path / "t")


@pytest.mark.parametrize("shape", [None, 3, ["2"], [-1], [True], [2.0]])
def test_a_shape_that_is_none_is_refused(tmp_path, shape):
    (tmp_path / "t").write_bytes(packed({"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, 8]}}, bytes(8)))
    with pytest.raises(ModelError, match="no shape"):
        tensor_shapes(tmp_path / "t")


def packed(header: object, body: bytes = b"") -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(raw).to_bytes(8, "little") + raw + body


def entry(**changes: object) -> dict:
    return {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | changes}


HOSTILE = {
    "empty": b"",
    "shorter than a length": b"\x01\x02",
    "length beyond the file": (10**6).to_bytes(8, "little") + b"{}",
    "length beyond any header": (2**63).to_bytes(8, "little") + b"{}",
    "not JSON": packed(b"{nonsense"),
    "not UTF-8": packed(b'{"\xff\xfe": 1}'),
    "a list": packed([1, 2]),
    "a number": packed(7),
    "nested beyond the stack": packed(b"[" * 100_000),
    "an entry is a list": packed({"a": [1]}),
    "an entry is empty": packed({"a": {}}),
    "metadata is a list": packed({"__metadata__": [1]}),
    "unknown dtype": packed(entry(dtype="BF16"), bytes(8)),
    "dtype is a list": packed(entry(dtype=[]), bytes(8)),
    "an object dtype": packed(entry(dtype="O"), bytes(8)),
    "shape does not fit": packed(entry(shape=[3]), bytes(8)),
    "negative shape": packed(entry(shape=[-2, -1]), bytes(8)),
    "shape of fractions": packed(entry(shape=[2.0]), bytes(8)),
    "shape beyond any": packed(entry(shape=[0, 2**70], data_offsets=[0, 0])),
    "too many dimensions": packed(entry(shape=[1] * 99 + [2]), bytes(8)),
    "offsets beyond the file": packed(entry(data_offsets=[8, 16]), bytes(8)),
    "offsets before the body": packed(entry(data_offsets=[-8, 0]), bytes(8)),
    "offsets backwards": packed(entry(data_offsets=[8, 0]), bytes(8)),
    "offsets not a number": packed(b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [NaN, 8]}}', bytes(8)),
    "three offsets": packed(entry(data_offsets=[0, 4, 8]), bytes(8)),
    "cut short": packed(entry(), bytes(7)),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_a_file_that_lies_is_refused(tmp_path, content):
    (tmp_path / "t").write_bytes(content)
    with pytest.raises(ModelError) as caught:
        read_tensors(tmp_path / "t")
    assert str(tmp_path / "t") in caught.value.where


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path in (tmp_path / "nothing", tmp_path):
        with pytest.raises(ModelError, match="cannot be opened"):
            read_tensors(path)


@given(
    flips=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4),
    cut=st.integers(0, 40) | st.just(0),
)
def test_mutated_bytes_load_or_are_refused(tmp_path_factory, flips, cut):
    """Never another exception; what loads can be read to its last byte."""
    path = tmp_path_factory.mktemp("mutated") / "t"
    write_tensors(path, {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(2, bool)}, {"facts": "{}"})
    content = bytearray(path.read_bytes())
    for position, value in flips:
        content[position % min(len(content), 200)] = value  # the header, mostly
    path.write_bytes(bytes(content[: len(content) - cut]))
    try:
        found, metadata = read_tensors(path)
    except ModelError:
        return
    assert isinstance(metadata, dict)
    for value in found.values():
        assert len(value.tobytes()) == value.nbytes


# String tables

STRINGS = st.lists(
    st.text(st.characters(codec=None, categories=None), max_size=8) | st.sampled_from(["", "\ud800", "é\0"])
)


@given(strings=STRINGS)
def test_a_string_table_is_the_list_it_was_made_of(tmp_path_factory, strings):
    table = StringTable.of(strings)
    path = tmp_path_factory.mktemp("strings") / "t"
    write_tensors(path, {"utf8": table.block, "offsets": table.offsets})
    tensors, _ = read_tensors(path)
    read = StringTable(tensors["utf8"], tensors["offsets"])
    read.check("here")
    assert len(read) == len(strings)
    assert list(read) == strings
    assert [read[i] for i in range(len(strings))] == strings
    assert [read[i - len(strings)] for i in range(len(strings))] == strings
    assert read[1:] == strings[1:]
    assert read[::-2] == strings[::-2]


def test_beyond_the_end_is_an_index_error():
    with pytest.raises(IndexError):
        StringTable.of(["a"])[1]


def table(block: bytes, offsets: list, dtype: type = np.int64) -> StringTable:
    return StringTable(np.frombuffer(block, np.uint8), np.array(offsets, dtype=dtype))


@pytest.mark.parametrize(
    "made",
    [
        table(b"abc", []),
        table(b"abc", [1, 3]),
        table(b"abc", [0, 2]),
        table(b"abc", [0, 4]),
        table(b"abc", [0, 3, 2, 3]),
        table(b"abc", [0, -1, 3]),
        table(b"abc", [[0, 3]]),
        table(b"abc", [0, 1.5, 3], np.float32),
        StringTable(np.zeros((1, 3), np.uint8), np.array([0, 1])),
        StringTable(np.zeros(3, np.float32), np.array([0, 3])),
    ],
    ids=lambda made: str(made.offsets.tolist()),
)
def test_offsets_that_do_not_fit_are_refused(made):
    with pytest.raises(ModelError, match="here: a string table's offsets do not fit"):
        made.check("here")


def test_bytes_that_are_no_text_are_refused_when_read():
    made = table(b"ab\xff", [0, 2, 3])
    made.check("here")
    assert made[0] == "ab"
    for read in (lambda: made[1], lambda: list(made)):
        with pytest.raises(ModelError, match="not UTF-8"):
            read()
