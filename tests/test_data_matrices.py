"""Matrix files of every kind, against dense arrays written out by hand; and what bad ones are told."""

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file

from xclearn.data.folder import data_file
from xclearn.data.matrices import is_xc_file, read_features, read_filter_pairs, read_relevance, read_xc
from xclearn.errors import DataError


def put(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


def test_the_old_text_format(tmp_path: Path) -> None:
    path = put(tmp_path / "train.txt", "4 3 2\n0,1 0:1 2:0.5\n 1:-2e-1\n1,1\n2:1\n\n")
    assert is_xc_file(data_file(path))
    features, relevance = read_xc(path)
    expected = np.array([[1, 0, 0.5], [0, -0.2, 0], [0, 0, 0], [0, 0, 1]], dtype=np.float32)
    np.testing.assert_array_equal(features.toarray(), expected)
    np.testing.assert_array_equal(relevance.toarray(), [[1, 1], [0, 0], [0, 1], [0, 0]])
    assert features.dtype == relevance.dtype == np.float32


def test_the_old_text_format_against_scikit_learn(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    values = sp.random(50, 30, density=0.2, format="csr", random_state=random, dtype=np.float32)
    labels = sp.random(50, 8, density=0.3, format="csr", random_state=random).astype(bool)
    dump_svmlight_file(values, labels, str(tmp_path / "body"), multilabel=True, zero_based=True)
    path = put(tmp_path / "train.txt", "50 30 8\n" + (tmp_path / "body").read_text())
    features, relevance = read_xc(path)
    np.testing.assert_allclose(features.toarray(), values.toarray(), rtol=1e-6)
    np.testing.assert_array_equal(relevance.toarray(), labels.toarray())


def test_the_new_text_format(tmp_path: Path) -> None:
    file = data_file(put(tmp_path / "trn_X_Xf.txt", "3 4\n3:1.5 0:1\n\n1:2\n"))
    np.testing.assert_array_equal(read_features(file).toarray(), [[1, 0, 0, 1.5], [0, 0, 0, 0], [0, 2, 0, 0]])


def test_relevance_is_ones_wherever_it_is_not_zero(tmp_path: Path) -> None:
    file = data_file(put(tmp_path / "trn_X_Y.txt", "2 3\n0:1 2:0.25 2:-0.25\n1:0\n"))
    np.testing.assert_array_equal(read_relevance(file).toarray(), [[1, 0, 1], [0, 0, 0]])


@pytest.mark.parametrize("format", ["csr", "csc", "coo"])
@pytest.mark.parametrize("dtype", [np.float64, np.int64, bool])
def test_npz_of_any_layout(tmp_path: Path, format: str, dtype: type) -> None:
    dense = np.array([[0, 1, 0], [1, 0, 1]])
    sp.save_npz(tmp_path / "train_X.npz", sp.csr_matrix(dense.astype(dtype)).asformat(format))
    matrix = read_features(data_file(tmp_path / "train_X.npz"))
    np.testing.assert_array_equal(matrix.toarray(), dense)
    assert (matrix.format, matrix.dtype) == ("csr", np.float32)


def test_dense_npy(tmp_path: Path) -> None:
    np.save(tmp_path / "train_X.npy", np.array([[1.5, 2.0]]))
    values = read_features(data_file(tmp_path / "train_X.npy"))
    np.testing.assert_array_equal(values, np.array([[1.5, 2.0]], dtype=np.float32))
    assert values.dtype == np.float32


@pytest.mark.parametrize(
    ("content", "line", "what"),
    [
        ("", 1, "the file is empty"),
        ("3 2\n", 1, "wrong header; got '3 2'; allowed: 'documents features labels'"),
        ("a b c\n", 1, "wrong header"),
        ("1 2 99999999999\n0 0:1\n", 1, "wrong header"),
        ("1 2 2\n2 0:1\n", 2, "index out of range; got 2; allowed: 0 to 1"),
        ("1 2 2\n-1 0:1\n", 2, "index out of range; got -1"),
        ("2 2 2\n0 0:1\n0 2:1\n", 3, "index out of range; got 2"),
        ("1 2 2\n0 0:nan\n", 2, "not a finite number"),
        ("2 2 2\n0 0:1\n0 0:1 1:inf\n", 3, "not a finite number"),
        ("1 2 2\n0 0:1e39\n", 2, "not a finite number"),
        ("2 2 2\n0 0:1\n0 0:1 0:1\n", 3, "occurs twice"),
        ("1 2 2\n0 0:1:1 1\n", 2, "not 'index:value' pairs"),
        ("1 2 2\n0 0:x\n", 2, "not 'index:value' pairs"),
        ("1 2 2\nx 0:1\n", 2, "not row numbers"),
        ("1 2 2\n0 0:1\n\n0 0:1\n", 4, "more rows than the 1 of the header"),
    ],
)
def test_bad_old_text_names_its_line(tmp_path: Path, content: str, line: int, what: str) -> None:
    path = put(tmp_path / "train.txt", content)
    with pytest.raises(DataError) as caught:
        read_xc(path)
    assert caught.value.where == f"{path}:{line}"
    assert what in str(caught.value)


def test_fewer_rows_than_promised(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="declares 3 rows; got '1 rows'"):
        read_xc(put(tmp_path / "train.txt", "3 2 2\n0 0:1\n"))


def test_bad_npz(tmp_path: Path) -> None:
    path = tmp_path / "train_X.npz"
    values = sp.csr_matrix(np.array([[1.0, 0.0], [0.0, np.nan]]))
    sp.save_npz(path, values)
    with pytest.raises(DataError, match="not a finite number") as caught:
        read_features(data_file(path))
    assert caught.value.where == f"{path}:2"
    values.indices[0] = 7
    sp.save_npz(path, values)
    with pytest.raises(DataError, match="not a sparse matrix"):
        read_features(data_file(path))
    np.savez(path, array=np.eye(2))
    with pytest.raises(DataError, match="not a sparse matrix"):
        read_features(data_file(path))
    path.write_bytes(b"PK nothing")
    with pytest.raises(DataError, match="not a sparse matrix"):
        read_features(data_file(path))


def test_bad_npy(tmp_path: Path) -> None:
    path = tmp_path / "train_X.npy"
    np.save(path, np.array([[1.0], [np.inf]]))
    with pytest.raises(DataError, match="not a finite number") as caught:
        read_features(data_file(path))
    assert caught.value.where == f"{path}:2"
    for wrong in (np.ones(3), np.array([["a"]]), np.ones((1, 1), dtype=complex)):
        np.save(path, wrong)
        with pytest.raises(DataError, match="not a two-dimensional array"):
            read_features(data_file(path))
    np.save(path, np.array([[{}]], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="not a two-dimensional array"):
        read_features(data_file(path))


def test_filter_pairs(tmp_path: Path) -> None:
    path = put(tmp_path / "filter_test.txt", "0 1\n\n2 0\n")
    np.testing.assert_array_equal(read_filter_pairs(path, (3, 2)), [[0, 1], [2, 0]])
    for content in ("0\n", "0 2\n", "3 0\n", "-1 0\n", "a b\n", "0 1 1\n"):
        with pytest.raises(DataError) as caught:
            read_filter_pairs(put(path, content), (3, 2))
        assert caught.value.where == f"{path}:1"
