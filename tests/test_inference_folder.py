"""The model folder: what is written is read; what was changed, is foreign or lies is refused."""

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damage import put, replace_tensors, rewrite
from handmade import BIAS, COLOURS, LABELS, WEIGHT, model, servable

from xclearn.data import LabelSet
from xclearn.errors import DataError, ModelError
from xclearn.inference import Model, load_model, save_model
from xclearn.inference.components import Bag, Classifier, Encoder, Relu
from xclearn.inference.hashed import Joined
from xclearn.inference.label_editing import NewLabel, with_labels
from xclearn.inference.sequences import Convolution, Filters
from xclearn.inference.sparse import SparseFeatures
from xclearn.inference.tensors import read_tensors
from xclearn.inference.text_rows import TextRows

FILES = ["README.md", "model.json", "tensors.safetensors"]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save_model(model(texts=["a sky", "", "Beere", "\ud800"]), tmp_path / "model")
    return tmp_path / "model"


def predictions(found: Model) -> tuple[list, bytes]:
    ids, scores = found.servable.predict([*COLOURS, ""], 4)
    return ids.tolist(), scores.tobytes()


@pytest.mark.parametrize("verify", [True, False])
def test_what_is_written_is_read(saved, verify):
    assert sorted(os.listdir(saved)) == FILES
    found = load_model(saved, verify=verify)
    assert predictions(found) == predictions(model())
    assert list(found.labels.names) == LABELS
    assert list(found.labels.texts) == ["a sky", "", "Beere", "\ud800"]
    assert found.about == model().about


def test_how_frequent_labels_are_is_kept_and_refused_where_it_does_not_fit(tmp_path):
    counts = np.array([3, 0, 1, 7], np.int32)
    save_model(dataclasses.replace(model(), label_counts=counts), tmp_path / "m")
    assert load_model(tmp_path / "m").label_counts.tolist() == counts.tolist()
    assert load_model(tmp_path / "m", verify=False).label_counts.tolist() == counts.tolist()
    for number, wrong in enumerate((counts[:3], -counts, counts.astype(np.float32), "many")):
        save_model(dataclasses.replace(model(), label_counts=wrong), tmp_path / f"{number}")
        with pytest.raises(ModelError, match="document"):
            load_model(tmp_path / f"{number}")


@pytest.mark.parametrize("verify", [True, False])
def test_what_makes_rows_of_label_texts_is_kept_and_refused_where_it_makes_others(tmp_path, verify):
    def written(encoder: Encoder, name: str) -> Path:
        rows = TextRows(encoder, np.zeros(3, np.float32), scale=2.0, bias=-1.0, gain=0.5)
        save_model(dataclasses.replace(model(), text_rows=[rows]), tmp_path / name)
        return tmp_path / name

    bag = Bag(np.eye(3, dtype=np.float32), [])
    right = load_model(written(bag, "right"), verify=verify)
    assert with_labels(right, [NewLabel("new", COLOURS[0])]).servable.n_labels == len(LABELS) + 1
    filters = Filters(np.ones((1, 3, 1), np.float32), np.zeros(1, np.float32))
    others = {
        "wider": (Joined([bag, bag]), "does not fit the model's vectors; got 'dense rows of 6'"),
        "sparse": (SparseFeatures(3, unit=False), "does not fit the model's vectors; got 'sparse rows of 3'"),
        "sequences": (
            Convolution(
                np.eye(3, dtype=np.float32), [filters], 1, np.ones((3, 1), np.float32), np.zeros(3, np.float32)
            ),
            "an encoder cannot read the features",
        ),
    }
    for name, (encoder, said) in others.items():
        with pytest.raises(ModelError, match=said):
            load_model(written(encoder, name), verify=verify)


def test_an_array_that_two_parts_share_is_stored_once_and_read_once(tmp_path):
    """Equal arrays that are two are stored twice, as older folders have them; the answers are the same."""
    table = np.eye(3, dtype=np.float32)
    scorers, found = [Classifier("other", WEIGHT, BIAS)], []
    for name, other in (("shared", table), ("twice", table.copy())):
        parts = servable(encoders={"document": Bag(table, []), "other": Bag(other, [Relu()])}, scorers=scorers)
        save_model(dataclasses.replace(model(), servable=parts), tmp_path / name)
        stored, _ = read_tensors(tmp_path / name / "tensors.safetensors")
        assert sum("token_embeddings" in key for key in stored) == 1 + (name == "twice")
        found.append(load_model(tmp_path / name))
    tables = [[encoder.token_embeddings for encoder in each.servable.encoders.values()] for each in found]
    assert np.shares_memory(*tables[0])
    assert not np.shares_memory(*tables[1])
    assert predictions(found[0]) == predictions(found[1]) == predictions(model())
    save_model(found[0], tmp_path / "again")
    again, first = (tmp_path / name / "tensors.safetensors" for name in ("again", "shared"))
    assert again.read_bytes() == first.read_bytes()


def test_labels_without_text(tmp_path):
    save_model(model(), tmp_path / "model")
    assert load_model(tmp_path / "model").labels.texts is None


def test_label_features_are_not_needed_to_predict(tmp_path):
    made = model()
    save_model(Model(made.servable, LabelSet(LABELS, np.eye(4)), made.about), tmp_path / "model")
    assert load_model(tmp_path / "model").labels.texts is None


@pytest.mark.parametrize("name", ["ünïcode", "a|b\nc", "\udcff broken file name", "x" * 10_000, ""])
def test_any_name_of_the_data_is_kept(tmp_path, name):
    save_model(model(data={"name": name}), tmp_path / "model")
    assert load_model(tmp_path / "model").about["data"]["name"] == name


def test_saving_is_all_or_nothing(tmp_path):
    with pytest.raises(TypeError):
        save_model(model(unserialisable=object()), tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_holds_something_is_not_replaced_unasked(saved):
    with pytest.raises(DataError, match="not empty"):
        save_model(model(), saved)
    save_model(model(algorithm="newer"), saved, replace=True)
    assert load_model(saved).about["algorithm"] == "newer"


# Changed


@pytest.mark.parametrize("file", FILES)
def test_every_changed_byte_is_refused(saved, file):
    path = saved / file
    content = path.read_bytes()
    positions = range(0, len(content), max(1, len(content) // 150))
    assert len(positions) >= 100
    accepted = []
    for position in positions:
        for change in (1, 0x20, 0x80):  # the last bit, the case of a letter, not ASCII
            path.write_bytes(content[:position] + bytes([content[position] ^ change]) + content[position + 1 :])
            try:
                load_model(saved)
            except ModelError:
                continue
            accepted.append((position, change))
    assert accepted == []
    path.write_bytes(content)
    load_model(saved)


def test_white_space_of_the_description_counts_as_well(saved):
    path = saved / "model.json"
    content = path.read_bytes()
    for old, new in ((b"\n ", b"\n\t"), (b"\n", b"\r"), (b"\n", b"\r\n"), (b": ", b":  ")):
        assert old in content
        path.write_bytes(content.replace(old, new, 1))
        with pytest.raises(ModelError, match="changed after it was written"):
            load_model(saved)
    path.write_bytes(content + b"\n")
    with pytest.raises(ModelError, match="changed after it was written"):
        load_model(saved)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("verify", [True, False])
def test_a_file_cut_short_or_longer_or_gone_is_refused(saved, file, verify):
    content = (saved / file).read_bytes()
    for damaged in (content[:-1], content + b"x", b""):
        (saved / file).write_bytes(damaged)
        with pytest.raises(ModelError):
            load_model(saved, verify=verify)
    (saved / file).unlink()
    with pytest.raises(ModelError, match=r"missing|no model here"):
        load_model(saved, verify=verify)


def test_without_verifying_a_changed_tensor_is_not_noticed(saved):
    """What `verify=False` saves is reading every byte: a change in the middle of a tensor stays unseen."""
    path = saved / "tensors.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    load_model(saved, verify=False)
    with pytest.raises(ModelError, match=r"tensors\.safetensors: the file was changed"):
        load_model(saved)


# Foreign


def test_foreign_folders_are_refused(tmp_path):
    with pytest.raises(ModelError, match=r"no model here.*xc train"):
        load_model(tmp_path / "nothing")
    with pytest.raises(ModelError, match="no model here"):
        load_model(tmp_path)
    for content in ('{"format": "pytorch"}', "[]", "null", "3", '"text"'):
        (tmp_path / "model.json").write_text(content)
        with pytest.raises(ModelError, match="not of an xclearn model"):
            load_model(tmp_path)
    for broken in (b"{", b"\xff\xfe", b"", b"[" * 100_000):
        (tmp_path / "model.json").write_bytes(broken)
        with pytest.raises(ModelError, match="damaged"):
            load_model(tmp_path)


# Lying: whoever changes a model can write the right hash, too


def test_the_right_hash_makes_a_change_acceptable(saved):
    """Else the tests below would see the hash refuse, not the check they are for."""
    rewrite(saved, put("about", "algorithm", value="other"))
    assert load_model(saved).about["algorithm"] == "other"


def test_another_format_version_is_named(saved):
    rewrite(saved, put("format_version", value=99))
    with pytest.raises(ModelError, match=r"another format version; got 99; allowed: 1\. Train it again"):
        load_model(saved)


def test_a_part_that_this_version_does_not_have_is_named(saved):
    rewrite(saved, put("servable", "fields", "fusion", "component", value="sigmoid.v9"))
    with pytest.raises(ModelError, match=r"lacks; got 'sigmoid\.v9'; allowed: .*sigmoid\.v1"):
        load_model(saved)


RELU = {"component": "relu.v1", "fields": {}}
SCORER = ("servable", "fields", "scorers", 0, "fields")
BAG = ("servable", "fields", "encoders", "map", "document", "fields")
LIES: dict[str, Callable[[dict[str, Any]], None]] = {
    "about is gone": lambda content: content.pop("about"),
    "about is a list": put("about", value=[]),
    "files is a list": put("files", value=[]),
    "no servable": put("servable", value={}),
    "servable is a relu": put("servable", value=RELU),
    "servable without fields": put("servable", "fields", value=[]),
    "servable lacks a field": lambda content: content["servable"]["fields"].pop("fusion"),
    "encoders is a text": put("servable", "fields", "encoders", value="x"),
    "an encoder is a relu": put("servable", "fields", "encoders", "map", "document", value=RELU),
    "candidates is a number": put("servable", "fields", "candidates", value=3),
    "scorers is a text": put("servable", "fields", "scorers", value="x"),
    "no scorers": put("servable", "fields", "scorers", value=[]),
    "fusion is a relu": put("servable", "fields", "fusion", value=RELU),
    "vectoriser is a number": put("servable", "fields", "vectoriser", value=3),
    "vectoriser is unknown": put("servable", "fields", "vectoriser", "vectoriser", value="words.v9"),
    "vectoriser kind is a list": put("servable", "fields", "vectoriser", "vectoriser", value=[]),
    "vectoriser state is a number": put("servable", "fields", "vectoriser", "state", value=3),
    "layers is a number": put(*BAG, "layers", value=3),
    "a layer is a classifier": lambda content: content["servable"]["fields"]["encoders"]["map"]["document"]["fields"][
        "layers"
    ].append(content["servable"]["fields"]["scorers"][0]),
    "the table is one-dimensional": put(*BAG, "token_embeddings", value={"tensor": "servable.scorers.0.bias"}),
    "weight is a list": put(*SCORER, "weight", value=[1.0]),
    "bias is a list": put(*SCORER, "bias", value=[1.0, 2.0, 3.0, 4.0]),
    "bias is another tensor": put(*SCORER, "bias", value={"tensor": "servable.scorers.0.weight"}),
    "a tensor that is not there": put(*SCORER, "weight", value={"tensor": "missing"}),
    "a tensor whose name is a list": put(*SCORER, "weight", value={"tensor": []}),
    "the vector's name is a list": put(*SCORER, "vector", value=[]),
    "the vector is not made": put(*SCORER, "vector", value="other"),
    "a field too many": put(*SCORER, "more", value=1),
    "names are numbers": put("labels", "names", value=[1, 2, 3, 4]),
    "names are null": put("labels", "names", value=None),
    "names are of other tensors": put("labels", "names", value={"strings": "servable.scorers.0"}),
    "fewer names": put("labels", "names", value={"strings": "servable.vectoriser.tokens"}),
    "texts are a text": put("labels", "texts", value="four"),
    "fewer texts": put("labels", "texts", value={"strings": "servable.vectoriser.tokens"}),
    "labels is a number": put("labels", value=3),
    "nested beyond the stack": put("labels", "names", value=json.loads("[" * 900 + "]" * 900)),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_description_that_lies_is_refused(saved, lie):
    rewrite(saved, lie)
    with pytest.raises(ModelError):
        load_model(saved)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("servable.scorers.0.weight", np.zeros((0, 3), np.float32)),
        ("servable.scorers.0.weight", np.zeros((4, 2), np.float32)),
        ("servable.encoders.document.token_embeddings", np.zeros((2, 3), np.float32)),
        ("labels.names.offsets", np.array([0, 3, 2, 9, 17])),
        ("labels.names.offsets", np.array([0.0, 3, 7, 12, 17])),
        ("labels.names.utf8", np.zeros(5, np.uint8)),
        ("servable.vectoriser.tokens.utf8", np.full(12, 0xFF, np.uint8)),
        ("servable.vectoriser.idf", np.full(3, np.nan)),
        ("servable.vectoriser.idf", np.zeros(2)),
    ],
)
def test_tensors_that_lie_are_refused(saved, name, value):
    replace_tensors(saved, **{name: value})
    with pytest.raises(ModelError):
        load_model(saved)


def test_a_model_of_no_labels_is_refused(saved):
    for name, value in (
        ("servable.scorers.0.weight", np.zeros((0, 3), np.float32)),
        ("servable.scorers.0.bias", np.zeros(0, np.float32)),
        ("labels.names.offsets", np.zeros(1, np.int64)),
        ("labels.names.utf8", np.zeros(0, np.uint8)),
    ):
        replace_tensors(saved, **{name: value})
    rewrite(saved, lambda content: content["labels"].pop("texts"))
    with pytest.raises(ModelError, match=r"classifier\.v1\.weight"):
        load_model(saved)
