"""What every algorithm promises, tested on every algorithm that is found."""

import ast
import dataclasses
import functools
import inspect
import json
import textwrap
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from planted import N_LABELS, planted, relevant_first
from quick import TEXTS_ONLY, epochs_everywhere

from xclearn import algorithms, config, evaluate, load
from xclearn.data import Dataset, Split
from xclearn.errors import ConfigError, DataError, ModelError, NotFitted
from xclearn.inference import evaluation
from xclearn.training.algorithm import Algorithm

NAMES = algorithms.algorithm_names()
K = 5


def make(name: str, epochs: int = 30, **settings: object) -> Algorithm:
    """The algorithm with its defaults, but so many epochs a stage."""
    return algorithms.find(name)(**epochs_everywhere(name, epochs) | settings)


@functools.cache
def fitted(name: str, kind: str = "texts") -> Algorithm:
    """Fitted once for all tests that only look at it."""
    return make(name).fit(planted(kind), device="cpu", seed=1)


def files_of(algorithm: Algorithm, folder: Path) -> dict[str, bytes]:
    algorithm.save(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def bits(algorithm: Algorithm, folder: Path) -> bytes:
    """All that was learnt."""
    return files_of(algorithm, folder)["tensors.safetensors"]


def test_the_algorithms_were_found():
    assert len(NAMES) >= 1
    assert "one_vs_all" in NAMES


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


# fit


def test_fit_returns_self_and_leaves_the_settings(name, planted_texts):
    algorithm = make(name, epochs=1)
    before = config.to_plain(algorithm)
    assert algorithm.fit(planted_texts, device="cpu") is algorithm
    assert config.to_plain(algorithm) == before


def test_the_planted_answer_is_found(name, planted_texts):
    found = relevant_first(planted_texts, fitted(name).predict(planted_texts.test.documents).ids)
    print(f"{name}: P@1 {found:.3f}; chance {1.3 / N_LABELS:.3f}")
    assert found > 0.9


def test_the_same_seed_gives_the_same_bits_and_another_seed_others(name, planted_texts, tmp_path):
    seeds = {"a": 3, "b": 3, "c": 4}
    learnt = {
        folder: bits(make(name, epochs=2).fit(planted_texts, device="cpu", seed=seed), tmp_path / folder)
        for folder, seed in seeds.items()
    }
    assert learnt["a"] == learnt["b"]
    assert learnt["a"] != learnt["c"]


def test_fitting_again_gives_the_same(name, planted_texts, tmp_path):
    algorithm = make(name, epochs=2).fit(planted_texts, device="cpu")
    first = bits(algorithm, tmp_path / "first")
    assert bits(algorithm.fit(planted_texts, device="cpu"), tmp_path / "second") == first


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_documents_may_be_features_or_the_need_of_texts_is_said(name, kind):
    data = planted(kind)
    if name in TEXTS_ONLY:
        with pytest.raises(DataError, match="reads texts in their order"):
            fitted(name, kind)
        return
    assert relevant_first(data, fitted(name, kind).predict(data.test.documents).ids) > 0.9


def test_one_label_is_enough(name):
    data = planted(n_labels=1, train=30)
    ids, scores = make(name, epochs=2).fit(data, device="cpu").predict(data.test.documents)
    assert ids.tolist() == [[0], [0]]
    assert np.isfinite(scores).all()


def test_labels_without_text_are_enough_or_the_need_is_said(name, planted_texts):
    data = dataclasses.replace(planted_texts, labels=dataclasses.replace(planted_texts.labels, texts=None))
    said = ""
    try:
        assert make(name, epochs=1).fit(data, device="cpu").predict(data.test.documents).ids.shape == (
            len(data.test),
            K,
        )
    except DataError as error:
        said = str(error)
    assert not said or "label text" in said


def test_a_set_without_relevant_labels_is_refused(name, planted_texts):
    train = planted_texts.train
    nothing = Split(train.documents, sp.csr_matrix(train.relevance.shape, dtype=np.float32))
    with pytest.raises(DataError, match="no training document has a label"):
        make(name).fit(Dataset("empty", nothing, planted_texts.labels), device="cpu")


# predict


def test_scores_are_sorted_and_finite_and_ids_unique(name, planted_texts):
    ids, scores = fitted(name).predict(planted_texts.test.documents, k=20)
    assert ids.shape == scores.shape == (len(planted_texts.test), 20)
    assert (ids.dtype, scores.dtype) == (np.int64, np.float32)
    there = ids >= 0
    assert there[:, 0].all()
    assert np.isfinite(scores[there]).all()
    assert np.isneginf(scores[~there]).all()
    assert (scores[:, :-1] >= scores[:, 1:]).all()
    assert all(len(np.unique(row[row >= 0])) == (row >= 0).sum() for row in ids)
    assert ids.max() < N_LABELS


def test_predict_of_a_subset_is_the_subset_of_predict(name, planted_texts):
    algorithm, texts = fitted(name), planted_texts.test.documents
    whole = algorithm.predict(texts, K)
    rows = np.arange(1, len(texts), 3)
    part = algorithm.predict([texts[row] for row in rows], K)
    assert (part.ids == whole.ids[rows]).all()
    np.testing.assert_allclose(part.scores, whole.scores[rows], rtol=1e-5)


def test_a_batch_of_one_is_its_row_in_a_batch(name, planted_texts):
    """Ids are equal, scores nearly: the product of one row is summed in another order than that of many rows."""
    algorithm, texts = fitted(name), planted_texts.test.documents
    whole = algorithm.predict(texts, K)
    alone = [algorithm.predict([text], K) for text in texts]
    difference = max(np.abs(one.scores[0] - row).max() for one, row in zip(alone, whole.scores, strict=True))
    print(f"{name}: largest difference of a score {difference:.2e}")
    assert all((one.ids[0] == row).all() for one, row in zip(alone, whole.ids, strict=True))
    assert difference < 1e-5


def test_fewer_labels_are_the_first_of_more(name, planted_texts):
    algorithm, texts = fitted(name), planted_texts.test.documents
    assert (algorithm.predict(texts, 3).ids == algorithm.predict(texts, K).ids[:, :3]).all()


@pytest.mark.parametrize("text", ["", "  ", "nothing known here", "\x00", "\ud800", "own7 " * 50_000])
def test_any_text_gets_a_valid_answer(name, text):
    ids, scores = fitted(name).predict([text], K)
    assert ids.shape == (1, K)
    assert np.isfinite(scores[ids >= 0]).all()
    assert ids[0, 0] >= 0


def test_no_documents_get_no_answers(name):
    ids, scores = fitted(name).predict([], K)
    assert ids.shape == scores.shape == (0, K)


def test_k_beyond_the_labels_is_clipped(name):
    assert fitted(name).predict(["own1"], 10 * N_LABELS).ids.shape == (1, N_LABELS)


@pytest.mark.parametrize("k", [0, -1, 2.5, "3", None])
def test_other_k_is_refused(name, k):
    with pytest.raises(ConfigError, match="k must be at least 1"):
        fitted(name).predict(["own1"], k)


def test_predict_changes_nothing(name, planted_texts, tmp_path):
    algorithm = fitted(name)
    fields, files = dict(vars(algorithm)), files_of(algorithm, tmp_path / "before")
    algorithm.predict(planted_texts.test.documents, K)
    after = vars(algorithm)
    assert after.keys() == fields.keys()
    assert all(after[key] is value for key, value in fields.items())
    assert files_of(algorithm, tmp_path / "after") == files


def test_other_kinds_and_shapes_of_documents_are_named(name):
    with pytest.raises(DataError, match=r"trained on; got 'sparse features'; allowed: texts"):
        fitted(name).predict(sp.csr_matrix((1, N_LABELS), dtype=np.float32))
    with pytest.raises(DataError, match="list of texts"):
        fitted(name).predict("own1")
    if name not in TEXTS_ONLY:
        with pytest.raises(DataError, match=r"trained on; got 'texts'; allowed: sparse features"):
            fitted(name, "sparse").predict(["own1"])
        with pytest.raises(DataError, match=r"wrong shape; got \(2, 7\); allowed: \(n, 260\)"):
            fitted(name, "dense").predict(np.zeros((2, 7), np.float32))


def test_documents_and_relevance_of_different_length_are_named(planted_texts):
    with pytest.raises(DataError, match=r"differ in rows; got \(2, 600\)"):
        Split(["one", "two"], planted_texts.train.relevance)


# unfitted


@pytest.mark.parametrize(
    "use",
    [lambda a: a.predict(["text"]), lambda a: a.save("never"), lambda a: a.model],
    ids=["predict", "save", "model"],
)
def test_unfitted_is_said(name, use):
    with pytest.raises(NotFitted, match=f"{algorithms.class_name(name)} has not been fitted"):
        use(make(name))


# settings


def test_an_unknown_setting_is_refused_with_the_nearest_name(name):
    cls = algorithms.find(name)
    for field in dataclasses.fields(cls):
        with pytest.raises(ConfigError, match=f"got '{field.name}x'. Did you mean '{field.name}'"):
            config.build(cls, {f"{field.name}x": 1})


def test_a_wrong_value_is_refused_by_fit_too(name, planted_texts):
    """A constructor stores without looking, so `fit` must look."""
    with pytest.raises(ConfigError, match=rf"{name}\.\w*epochs: out of range; got -1"):
        make(name, epochs=-1).fit(planted_texts, device="cpu")


def test_every_setting_has_help_and_a_default(name):
    rows = config.describe(algorithms.find(name))
    assert len(rows) >= 3
    assert [row.name for row in rows if not row.help or row.default == "required"] == []


def unread(source: str, names: set[str]) -> set[str]:
    """Those of `names` that no method reads as `self.name` or asks for as `self.method("name")`."""
    read = set()
    for node in ast.walk(ast.parse(textwrap.dedent(source))):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and ast.unparse(node.value) == "self":
            read.add(node.attr)
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("self."):
            read |= {argument.value for argument in node.args if isinstance(argument, ast.Constant)}
    return names - read


def test_the_rule_of_unread_settings_itself():
    source = """
    class Planted:
        used: int = 1
        asked: int = 2
        forgotten: int = 3
        written: int = 4

        def _auto(self):
            return {"forgotten": 5}

        def _stages(self):
            self.written = self.used + self._number("asked")
    """
    assert unread(source, {"used", "asked", "forgotten", "written"}) == {"forgotten", "written"}


def test_every_setting_is_read(name):
    cls = algorithms.find(name)
    fields = {field.name for field in dataclasses.fields(cls)}
    bases = [base for base in cls.__mro__ if issubclass(base, Algorithm)]
    assert set.intersection(*(unread(inspect.getsource(base), fields) for base in bases)) == set()


# save and load


def test_save_and_load_predict_the_same_bits(name, planted_texts, tmp_path):
    algorithm, texts = fitted(name), planted_texts.test.documents
    algorithm.save(tmp_path / "model")
    before, after = algorithm.predict(texts, K), type(algorithm).load(tmp_path / "model").predict(texts, K)
    assert (after.ids == before.ids).all()
    assert after.scores.tobytes() == before.scores.tobytes()


def test_fitted_loaded_predictor_and_evaluation_give_the_same_answers(name, planted_texts, tmp_path, monkeypatch):
    """All of them are what the servable computes in NumPy, the oracle, up to rounding."""
    algorithm, texts = fitted(name), planted_texts.test.documents
    algorithm.save(tmp_path / "model")
    loaded, predictor = type(algorithm).load(tmp_path / "model"), load(tmp_path / "model")
    seen = []
    measure = evaluation.evaluate_predictions
    monkeypatch.setattr(
        evaluation,
        "evaluate_predictions",
        lambda found, *rest, **named: (seen.append(found), measure(found, *rest, **named))[1],
    )
    evaluate(loaded, planted_texts)
    found = {"fitted": algorithm.predict, "loaded": loaded.predict, "predictor": predictor.predict}
    k = seen[0].ids.shape[1]
    answers = {who: ask(texts, k) for who, ask in found.items()} | {"evaluate": seen[0]}
    oracle = algorithm.model.servable.predict(texts, k)
    largest = 0.0
    for who, answer in answers.items():
        assert (answer.ids == oracle.ids).all(), who
        known = oracle.ids >= 0
        scale = np.maximum(np.abs(oracle.scores), 1)  # a score above 1 rounds in proportion
        largest = max(largest, float((np.abs(answer.scores - oracle.scores) / scale)[known].max()))
    print(f"{name}: largest difference of a score {largest:.2e}")
    assert largest < 2e-6  # float32 rounds a logit of 20, a cosine over the temperature, by as much


def test_a_fitted_and_a_loaded_model_suggest_measure_and_save_alike(name, planted_texts, tmp_path):
    fitted(name).save(tmp_path / "model")
    texts, cards = list(planted_texts.test.documents[:3]), set()
    said = []
    for which, one in enumerate((type(fitted(name)).load(tmp_path / "model"), load(tmp_path / "model"))):
        report = one.evaluate(planted_texts)
        one.save(tmp_path / f"again{which}")
        card = (tmp_path / f"again{which}" / "README.md").read_text()
        assert f"| P@1 | {report.values['P@1']:.2f} |" in card
        cards.add(card)
        said.append([[label.label for label in labels] for labels in one.suggest(texts, 2)])
    names = planted_texts.labels.names
    assert said[0] == said[1] == [[names[i] for i in row] for row in fitted(name).predict(texts, 2).ids]
    assert len(cards) == 1


def test_saving_what_was_loaded_writes_the_same_files(name, tmp_path):
    files = files_of(fitted(name), tmp_path / "one")
    assert files_of(type(fitted(name)).load(tmp_path / "one"), tmp_path / "two") == files


def test_settings_survive_saving(name, planted_texts, tmp_path):
    algorithm = make(
        name, epochs=1, stopping=config.build(algorithms.find(name), {"stopping": {"patience": 7}}).stopping
    )
    algorithm.fit(planted_texts, device="cpu").save(tmp_path / "model")
    loaded = type(algorithm).load(tmp_path / "model")
    assert loaded == algorithm  # dataclass equality: every setting
    assert loaded.resolved_ == algorithm.resolved_
    assert loaded.stopping.patience == 7


def test_a_folder_holds_tensors_json_and_a_page_and_no_pickle(name, tmp_path):
    files = files_of(fitted(name), tmp_path / "model")
    assert sorted(files) == ["README.md", "model.json", "tensors.safetensors"]
    tensors = files["tensors.safetensors"]
    length = int.from_bytes(tensors[:8], "little")
    assert json.loads(tensors[8 : 8 + length])  # in a pickle or a file of torch.save another byte stands here
    assert json.loads(files["model.json"])
    assert files["README.md"].decode().startswith("#")


def test_nothing_is_written_over_without_being_asked(name, tmp_path):
    fitted(name).save(tmp_path / "model")
    with pytest.raises(DataError, match="not empty"):
        fitted(name).save(tmp_path / "model")
    fitted(name).save(tmp_path / "model", replace=True)


def test_another_algorithms_folder_is_refused(name, tmp_path):
    algorithm = make(name, epochs=1).fit(planted(n_labels=3), device="cpu")
    algorithm.model.about["algorithm"] = "other"
    algorithm.save(tmp_path / "model")
    with pytest.raises(ModelError, match=f"another algorithm; got 'other'; allowed: {name}"):
        type(algorithm).load(tmp_path / "model")


def loads_code(source: str) -> bool:
    """Whether a source imports a serialiser that runs code, or calls `torch.load`, or allows pickles to NumPy."""
    for node in ast.walk(ast.parse(source)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        if {name.split(".")[0] for name in names} & {"pickle", "joblib", "dill", "cloudpickle", "shelve", "marshal"}:
            return True
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("torch.load", "torch.save"):
            return True
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle" and ast.unparse(node.value) != "False":
            return True
    return False


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import pickle", True),
        ("from joblib import load", True),
        ("torch.load(path)", True),
        ("np.load(path, allow_pickle=True)", True),
        ("np.load(path, allow_pickle=False)", False),
        ("load_model(path)", False),
    ],
)
def test_the_rule_of_pickles_itself(source, expected):
    assert loads_code(source) is expected


def test_the_package_reads_and_writes_no_pickles():
    package = Path(algorithms.__file__).parents[1]
    files = sorted(package.rglob("*.py"))
    assert len(files) >= 60
    assert [str(path.relative_to(package)) for path in files if loads_code(path.read_text(encoding="utf-8"))] == []
