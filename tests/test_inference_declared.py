"""What parts declare: folders of before load, and what once crashed, hung or raised something foreign is refused."""

import dataclasses
import json
import shutil
import typing
from pathlib import Path

import numpy as np
import pytest
from damage import MODELS, put, rehash, replace_tensors, rewrite, tensor
from handmade import BIAS, COLOURS, WEIGHT, model, servable
from typer.testing import CliRunner

from xclearn.cli.main import app
from xclearn.errors import ModelError, XclearnError
from xclearn.inference import Predictor, load_model, save_model
from xclearn.inference.components import COMPONENTS, Bag, Classifier
from xclearn.inference.declared import Inner, Tensor
from xclearn.inference.servable import Ensemble
from xclearn.inference.tensors import StringTable, read_tensors
from xclearn.text import Words

WHOLE = ("servable.v1", "ensemble.v1", "blend.v1", "blend_sources.v1")  # they check what they hold themselves
EXPECTED = json.loads((MODELS / "expected.json").read_text())


@pytest.mark.parametrize("name", EXPECTED["answers"])
@pytest.mark.parametrize("verify", [True, False])
def test_a_folder_written_before_declarations_answers_as_then(name, verify):
    """Written by commit 8f3b8a4, as are the expected answers."""
    found, answers = load_model(MODELS / name, verify=verify), EXPECTED["answers"][name]
    scores = [[-np.inf if score is None else score for score in row] for row in answers["scores"]]
    for predictor in (found.servable, Predictor(found)):
        ids, given = predictor.predict(EXPECTED["texts"], 5)
        assert ids.tolist() == answers["ids"]
        np.testing.assert_allclose(given, scores, rtol=1e-5)


def test_all_fixtures_were_looked_at():
    assert len(EXPECTED["answers"]) == 10
    assert {path.name for path in MODELS.iterdir() if path.is_dir()} == EXPECTED["answers"].keys()


def test_every_array_and_every_part_inside_a_part_is_declared():
    """A new part cannot forget it."""
    seen, forgotten = 0, []
    for name, kind in COMPONENTS.items():
        hints = typing.get_type_hints(kind, include_extras=True)
        for field in dataclasses.fields(kind) if name not in WHOLE else ():
            (spec, *_) = getattr(hints[field.name], "__metadata__", (None,))
            plain = str(typing.get_type_hints(kind)[field.name])
            needs = any(word in plain for word in ("ndarray", "inference.", "int"))
            seen += needs
            forgotten += [f"{name}.{field.name}"] if needs and spec is None else []
    assert seen >= 90
    assert forgotten == []


def wrapped(n: int, end: int) -> np.ndarray:
    """Offsets of n parts that run round all 64 bits: no difference of neighbours is negative, as it wraps too."""
    third = 2**64 // 3
    found = np.array([0, third, 2 * third - 2**64, *[end] * (n - 2)])
    assert found.dtype == np.int64
    assert len(found) == n + 1
    assert not (np.diff(found) < 0).any()
    return found


OFFSETS = {  # of each kind of part that has any: folder, tensor
    "cluster_beam": ("decaf", "servable.members.0.candidates.offsets"),
    "cluster_beam in game_beam": ("eclare", "servable.candidates.clusters.offsets"),
    "graph of clusters": ("eclare", "servable.candidates.game.graph.offsets"),
    "graph of labels": ("decaf", "servable.members.0.steps.0.game.graph.offsets"),
    "token_index": ("one_vs_all-tokens-int8", "servable.candidates.offsets"),
    "sparse_ranker": ("convolution", "servable.steps.0.ranker.starts"),
    "sparse_classifier": ("label_tree", "servable.scorers.1.starts"),
    "children of a tree": ("label_tree", "servable.scorers.0.trees.0.levels.3.children"),
    "weights of a tree": ("label_tree", "servable.scorers.0.trees.0.levels.3.starts"),
    "label names": ("slice", "labels.names.offsets"),
    "tokens": ("slice", "servable.vectoriser.tokens.offsets"),
    "training texts": ("one_vs_all-tokens-int8", "train_texts.offsets"),
    "rows of training texts": ("one_vs_all-tokens-int8", "train_texts.texts.offsets"),
}


def copied(name: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(MODELS / name, tmp_path / name))


def refused_everywhere(path: Path) -> None:
    """By loading, with the hashes and without, and by the commands: `main` prints such an error and exits with 2."""
    for verify in (True, False):
        with pytest.raises(XclearnError):
            load_model(path, verify=verify)
    for command in (["verify", str(path)], ["predict", str(path)]):
        result = CliRunner().invoke(app, command, input="own1\n")
        assert isinstance(result.exception, XclearnError), result.exception


@pytest.mark.parametrize(("name", "field"), OFFSETS.values(), ids=OFFSETS)
def test_offsets_that_wrap_around_are_refused(tmp_path, name, field):
    path = copied(name, tmp_path)
    offsets = tensor(path, field)
    replace_tensors(path, **{field: wrapped(len(offsets) - 1, int(offsets[-1]))})
    refused_everywhere(path)


INDICES = {
    "cluster_beam": ("decaf", "servable.members.0.candidates.labels"),
    "graph": ("eclare", "servable.candidates.game.graph.targets"),
    "centroid_search": ("slice", "servable.candidates.labels"),
    "learned_edges": ("elias", "servable.candidates.labels"),
    "bucket_classifier": ("mach", "servable.scorers.0.bucket_of_label"),
    "token_index": ("one_vs_all-tokens-int8", "servable.candidates.labels"),
    "always": ("one_vs_all-tokens-int8", "servable.candidates.always"),
    "centre_index": ("slice-centres-int8", "servable.candidates.labels"),
    "sparse_ranker": ("convolution", "servable.steps.0.ranker.features"),
    "sparse_classifier": ("label_tree", "servable.scorers.1.labels"),
    "tree_level features": ("label_tree", "servable.scorers.0.trees.0.levels.0.features"),
    "tree_level nodes": ("label_tree", "servable.scorers.0.trees.0.levels.0.nodes"),
    "label_tree": ("label_tree", "servable.scorers.0.trees.0.labels"),
    "training texts": ("one_vs_all-tokens-int8", "train_texts.rows"),
}


@pytest.mark.parametrize("value", ["below", "above"])
@pytest.mark.parametrize(("name", "field"), INDICES.values(), ids=INDICES)
def test_indices_out_of_range_are_refused(tmp_path, name, field, value):
    path = copied(name, tmp_path)
    indices = tensor(path, field)
    indices.flat[-1] = np.iinfo(indices.dtype).max if value == "above" else -2
    replace_tensors(path, **{field: indices})
    refused_everywhere(path)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf], ids=str)
def test_values_that_are_no_numbers_are_refused_when_every_byte_is_read(tmp_path, value):
    """Without `verify` the floats of a large model are not read; such a model answers, or says that it cannot."""
    for name in EXPECTED["answers"]:
        for field, found in read_tensors(MODELS / name / "tensors.safetensors")[0].items():
            if found.dtype.kind != "f" or ".members.1." in field:
                continue
            path = copied(name, tmp_path)
            broken = np.array(found)
            broken.flat[0] = value
            replace_tensors(path, **{field: broken})
            with pytest.raises(ModelError, match=r"out of range|above 0 and below 100|rows\.v1"):
                load_model(path)
            answers_or_refuses(path)
            shutil.rmtree(path)


def answers_or_refuses(path: Path) -> None:
    """With the native core and without it, nothing but an error of ours leaves a model that is loaded unverified."""
    try:
        found = load_model(path, verify=False)
    except XclearnError:
        return
    for predictor in (found.servable, Predictor(found)):
        try:
            with np.errstate(all="ignore"):
                ids, scores = predictor.predict(EXPECTED["texts"], found.servable.n_labels)
        except XclearnError:
            continue
        assert ids.max() < found.servable.n_labels
        assert not np.isnan(scores).any()


SETTINGS = {
    "beam": ("decaf", ("servable", "fields", "members", 0, "fields", "candidates", "fields", "beam")),
    "size": ("slice", ("servable", "fields", "candidates", "fields", "size")),
    "size of edges": ("elias", ("servable", "fields", "candidates", "fields", "size")),
    "size of centres": ("slice-centres-int8", ("servable", "fields", "candidates", "fields", "size")),
    "tokens": ("one_vs_all-tokens-int8", ("servable", "fields", "candidates", "fields", "tokens")),
    "depth": ("convolution", ("servable", "fields", "steps", 0, "fields", "depth")),
    "pools": ("convolution", ("servable", "fields", "encoders", "map", "document", "fields", "n_pools")),
    "length": ("convolution", ("servable", "fields", "vectoriser", "state", "map", "max_length")),
    "weight of a mix": ("slice", ("servable", "fields", "fusion", "fields", "weight")),
    "weights of scorers": ("slice", ("servable", "fields", "fusion", "fields", "scorer_weights")),
    "loss": ("label_tree", ("servable", "fields", "scorers", 0, "fields", "loss")),
    "weight of text": ("label_tree", ("servable", "fields", "fusion", "fields", "text_weight")),
}


@pytest.mark.parametrize("value", [2**63, 10**40, -1, float("nan"), float("inf"), True, "1", None, [], {}], ids=str)
@pytest.mark.parametrize(("name", "keys"), SETTINGS.values(), ids=SETTINGS)
def test_settings_out_of_range_are_refused(tmp_path, name, keys, value):
    path = copied(name, tmp_path)
    rewrite(path, put(*keys, value=value))
    refused_everywhere(path)


def test_a_sequence_of_endless_length_is_refused(tmp_path):
    """A text takes memory for as many tokens: this is 4 GB for one."""
    path = copied("convolution", tmp_path)
    rewrite(path, put(*SETTINGS["length"][1], value=2**30))
    refused_everywhere(path)


def test_vectors_of_no_width_are_refused(tmp_path):
    """They divided by zero in the native core, which ends the process."""
    path = copied("slice", tmp_path)
    wide = [name for name, found in read_tensors(path / "tensors.safetensors")[0].items() if found.shape[1:] == (4,)]
    assert len(wide) == 3
    replace_tensors(path, **{name: np.zeros((len(tensor(path, name)), 0), np.float32) for name in wide})
    refused_everywhere(path)


def test_a_model_without_labels_or_clusters_is_refused(tmp_path):
    path = copied("elias", tmp_path)
    nothing = {"labels": np.int32, "edges": np.float32}
    replace_tensors(path, **{f"servable.candidates.{name}": np.zeros((8, 0), kind) for name, kind in nothing.items()})
    refused_everywhere(path)
    shutil.rmtree(path)
    path = copied("decaf", tmp_path)
    for member in (0, 1):
        prefix = f"servable.members.{member}.candidates"
        for name, shape in (("weight", (0, 4)), ("bias", 0), ("offsets", 1)):
            kind = np.int64 if name == "offsets" else np.float32
            replace_tensors(path, **{f"{prefix}.{name}": np.zeros(shape, kind)})
    refused_everywhere(path)


# Ensembles of strangers


def test_members_of_other_vocabularies_are_refused(tmp_path):
    """They read the first one's token ids in tables of their own: out of bounds, where these are shorter."""
    shorter = Words().learn(COLOURS[:2])
    stranger = servable(
        vectoriser=shorter,
        encoders={"document": Bag(np.eye(2, 3, dtype=np.float32), [])},
        scorers=[Classifier("document", WEIGHT, BIAS)],
    )
    other = servable(vectoriser=Words().learn(["brown", "green", "red"]))
    for number, members in enumerate(([servable(), stranger], [stranger, servable()], [servable(), other])):
        save_model(dataclasses.replace(model(), servable=Ensemble(members)), tmp_path / str(number))
        with pytest.raises(ModelError, match="vocabulary"):
            load_model(tmp_path / str(number))
        refused_everywhere(tmp_path / str(number))
    save_model(dataclasses.replace(model(), servable=Ensemble([servable(), servable()])), tmp_path / "same")
    load_model(tmp_path / "same")


def test_members_of_other_labels_are_refused():
    fewer = servable(scorers=[Classifier("document", WEIGHT[:2], BIAS[:2])])
    with pytest.raises(ModelError, match="differ in labels"):
        Ensemble([servable(), fewer]).check()
    with pytest.raises(ModelError, match="no member"):
        Ensemble([]).check()


# The tensor file itself


def misaligned(path: Path, name: str) -> None:
    """Move every tensor by one byte: the header is right, and no number starts where a processor wants it."""
    raw = (path / "tensors.safetensors").read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    for entry in header.values():
        entry["data_offsets"] = [place + 1 for place in entry.get("data_offsets", [])]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    assert name in header
    content = len(text).to_bytes(8, "little") + text + b"\0" + raw[8 + length :]
    (path / "tensors.safetensors").write_bytes(content)
    rehash(path)


def test_a_label_whose_score_is_no_number_is_not_found():
    """Seed 202056 of the fuzzer: an unverified scale of −∞ made scores NaN in NumPy."""
    broken = dataclasses.replace(
        servable(), scorers=[Classifier("document", WEIGHT, np.array([0, 0, np.nan, 0], "f4"))]
    )
    stage = load_model(MODELS / "elias").servable.candidates
    every = np.arange(4, dtype=np.int32)[None]
    edges = dataclasses.replace(
        stage, vector="document", weight=WEIGHT[:1], bias=BIAS[:1], labels=every, edges=np.ones((1, 4), np.float32)
    )
    for made in (broken, dataclasses.replace(broken, candidates=edges)):
        with np.errstate(all="ignore"):
            ids, scores = made.predict(["red"], 4)
        assert sorted(ids[0].tolist()) == [-1, 0, 1, 3]
        assert not np.isnan(scores).any()


def test_misaligned_tensors_are_refused(tmp_path):
    path = copied("slice", tmp_path)
    misaligned(path, "servable.scorers.0.weight")
    refused_everywhere(path)
    with pytest.raises(ModelError, match=r"tensors\.safetensors:.*aligned"):
        load_model(path)


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [0, 2**70], "data_offsets": [0, 0]},
        {"dtype": "F32", "shape": [2**40, 0], "data_offsets": [0, 0]},
        {"dtype": "F32", "shape": [2.0], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1] * 100, "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": ["1"], "data_offsets": [0, 4]},
        {"dtype": [], "shape": [1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [0.0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]},
        {"dtype": "F32", "shape": [1], "data_offsets": [10**30, 10**30 + 4]},
    ],
    ids=str,
)
def test_a_header_that_lies_is_refused(tmp_path, entry):
    text = json.dumps({"x": entry}).encode()
    text += b" " * (-len(text) % 8)
    path = tmp_path / "tensors.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(64))
    if entry["shape"] != [2**40, 0]:
        with pytest.raises(ModelError, match="does not fit the file"):
            read_tensors(path)
    else:
        assert read_tensors(path)[0]["x"].size == 0


# Declarations themselves


def test_a_declaration_of_an_array_says_what_it_came_for():
    (spec, *_) = typing.get_type_hints(Classifier, include_extras=True)["weight"].__metadata__
    assert spec == Tensor("labels dim")
    (spec, *_) = typing.get_type_hints(Bag, include_extras=True)["layers"].__metadata__
    assert spec == Inner({"dim": "dim"}, empty=True)


def test_an_encoder_that_reads_other_features_is_refused():
    convolution = load_model(MODELS / "convolution").servable.encoders["document"]
    with pytest.raises(ModelError, match="cannot read the features; got 'sparse rows'; allowed: token ids in order"):
        dataclasses.replace(load_model(MODELS / "slice").servable, encoders={"document": convolution}).check()


def test_a_scorer_that_reads_sparse_rows_is_refused_dense_ones():
    tree, dense = load_model(MODELS / "label_tree").servable, load_model(MODELS / "slice").servable
    mixed = dataclasses.replace(dense, scorers=[dataclasses.replace(tree.scorers[1], vector="document")])
    with pytest.raises(ModelError, match="this form of vector; got 'dense rows'; allowed: sparse rows"):
        mixed.check()


def test_a_string_table_is_checked_by_comparison():
    with pytest.raises(ModelError, match="offsets"):
        StringTable(np.zeros(5, np.uint8), wrapped(4, 5)).check("here")
