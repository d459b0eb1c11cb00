"""What a blend learns: on planted evidence, whose right answer is known, and on sets where members differ."""

import dataclasses
import re
import shlex

import numpy as np
import pytest
from handmade import expect_fits
from planted import planted, relevant_first
from tiny_transformer import write_transformer

from xclearn import algorithms, load
from xclearn.algorithms.blend import Blend
from xclearn.algorithms.blend.choice import usual_cut, usual_members
from xclearn.algorithms.blend.sources import heavy_rows
from xclearn.errors import ConfigError
from xclearn.inference.blend import COLUMNS
from xclearn.inference.operating_points import BANDS, band_of
from xclearn.inference.placed import device_predictor
from xclearn.inference.runner import answered_on
from xclearn.parts.held_out import HeldOut, judged, together
from xclearn.parts.probabilities import expected_error
from xclearn.parts.stacking import dispensed, is_ahead, learn, only, single
from xclearn.text import Words
from xclearn.training.prepare import Size

N, EACH = 600, 8


def held_out(noise: tuple[float, ...], seed: int = 0, *, copies: bool = False) -> HeldOut:
    """Documents with eight candidates of which the first is right; each list says so, with its noise."""
    rng = np.random.default_rng(seed)
    rows, labels = np.divmod(np.arange(N * EACH), EACH)
    right = labels == 0
    first = 2.0 * right + noise[0] * rng.normal(size=len(rows))
    columns = []
    for _place, own in enumerate(noise):
        score = first if copies else 2.0 * right + own * rng.normal(size=len(rows))
        columns += [score, score - 1, np.full(len(rows), 0.5)]
    columns += [np.full(len(rows), float(len(noise))), np.ones(len(rows)), np.ones(len(rows))]
    values = np.column_stack(columns).astype(np.float32)
    one = np.ones(N, dtype=np.int64)
    return HeldOut(rows, labels, values, right, one, one, np.arange(N), seed)


@pytest.mark.parametrize("kind", ["linear", "both"])
def test_a_stack_of_two_is_ahead_of_either(kind):
    data = held_out((1.5, 1.5))
    stack, alone = learn(data, kind), [single(data, 0), single(data, COLUMNS)]
    print([round(float(one.gains.mean()), 3) for one in (stack, *alone)])
    assert all(is_ahead(stack, one) for one in alone)
    assert not any(is_ahead(one, stack) for one in alone)


def test_noise_is_not_ahead_of_the_member_that_knows():
    data = held_out((0.3, 50.0))
    assert not is_ahead(learn(data, "linear"), single(data, 0))


def test_a_member_that_adds_nothing_goes():
    data = held_out((1.5, 1.5, 1.5), copies=True)  # three times the same
    _, _, kept = dispensed(data, ["a", "b", "c"], "b")
    assert kept == ["b"]
    data = held_out((1.5, 1.5))
    _, learnt, kept = dispensed(data, ["a", "b"], "a")
    assert kept == ["a", "b"]
    assert learnt.stacker.weights.shape == (data.values.shape[1],)


def test_without_a_list_what_it_alone_named_goes_too():
    data = held_out((1.0, 1.0))
    values = data.values.copy()
    values[1, :COLUMNS] = np.nan, np.nan, 0  # the pair 1 is named by the second list only
    values[1, -3] = 1
    data = dataclasses.replace(data, values=values)
    left = only(data, ["a", "b"], "a")
    assert len(left.rows) == len(data.rows) - 1
    assert left.values.shape[1] == data.values.shape[1] - COLUMNS
    assert (left.values[:, -3] == 1).all()
    assert (left.labels[:2] == [0, 2]).all()


def test_gains_by_hand():
    """Right labels at places 1 and 3 of two: P@1 1, nDCG@5 (1 + 1/2) / (1 + 1/log2 3), R@10 1."""
    rows, labels = np.zeros(3, dtype=np.int64), np.arange(3)
    two = np.array([2])
    data = HeldOut(rows, labels, np.ones((3, 6), np.float32), np.array([True, False, True]), two, two, rows[:1], 0)
    expected = (1 + 1.5 / (1 + 1 / np.log2(3)) + 1) / 3
    assert data.gains(np.array([3.0, 2.0, 1.0])).tolist() == [pytest.approx(expected)]


def test_the_expected_error_by_hand():
    """Four answers of 0.75 of which one is right, and four of 0.1 in another bin of which none is."""
    right = np.array([True, False, False, False])
    assert expected_error(np.full(4, 0.75), right) == pytest.approx(0.5)
    both = np.concatenate([np.full(4, 0.75), np.full(4, 0.1)])
    assert expected_error(both, np.concatenate([right, 4 * [False]])) == pytest.approx((0.5 + 0.1) / 2)


def test_folds_stand_one_after_the_other():
    folds = [held_out((1.0, 1.0), seed) for seed in range(2)]
    whole = together(folds, 5)
    assert len(whole.n_right) == 2 * N
    assert whole.rows[N * EACH] == N
    assert len(np.unique(whole.groups)) == 2 * N
    assert (np.diff(whole.rows) >= 0).all()


def test_documents_that_resemble_each_other_are_in_one_half():
    data = dataclasses.replace(held_out((1.0, 1.0)), groups=np.arange(N) // 10)
    halves = data.half.reshape(-1, 10)
    assert (halves == halves[:, :1]).all()
    assert 0.3 < data.half.mean() < 0.7


@pytest.fixture(scope="module")
def fitted() -> Blend:
    return Blend(members=("label_tree", "sparse_one_vs_all"), folds=2).fit(planted(), device="cpu")


def test_the_card_says_what_was_found(fitted):
    training = fitted.model.about["training"]
    assert {"stacker", "ece_5", "hold-out: memory alone", "hold-out: linear stack"} <= training.keys()
    assert relevant_first(planted(), fitted.predict(planted().test.documents).ids) > 0.9


def test_recall_is_of_all_right_labels_also_those_that_train_has_not():
    held, _ = planted_chances()
    mostly_unseen = dataclasses.replace(held, right=held.right & ~held.seen, n_right=np.zeros_like(held.n_right))
    points = learn(mostly_unseen, "linear").judged.points()
    assert points is not None
    expect_fits(points)
    judged_pairs = learn(held, "linear").judged
    points = judged_pairs.points()
    given = judged_pairs.probabilities >= points.thresholds[0]
    assert points.recall[0] == pytest.approx(held.right[given].sum() / held.right.sum())


def test_void_pairs_are_neither_right_nor_counted(fitted):
    sources, test = fitted.model.servable.sources, planted().split("test")
    first = np.column_stack([np.arange(len(test)), test.relevance.indices[test.relevance.indptr[:-1]]])
    found = judged(sources, dataclasses.replace(test, filter_pairs=first))
    assert found.n_true.tolist() == (np.diff(test.relevance.indptr) - 1).tolist()
    assert found.right.sum() <= found.n_true.sum()


def test_members_are_judged_on_the_device_with_the_same_evidence():
    """A dense member in its form for devices of torch says what the native form says."""
    model = Blend(members=("one_vs_all epochs=3",), folds=2).fit(planted(), device="cpu").model
    sources, test = model.servable.sources, planted().split("test")
    (member,) = sources.members.values()
    placed = sources.answered_by([device_predictor(member, "cpu")])
    native = answered_on(sources, "cpu")
    assert type(native.answering[0]) is not type(placed.answering[0])
    ours, theirs = native.evidence(test.documents), placed.evidence(test.documents)
    keys = [set(zip(found.rows.tolist(), found.labels.tolist(), strict=True)) for found in (ours, theirs)]
    assert len(keys[0] & keys[1]) > 0.98 * len(keys[0])  # the last of a list may change with the rounding
    np.testing.assert_allclose(ours.values[:50, 0], theirs.values[:50, 0], rtol=1e-3)


def test_labels_that_only_held_out_documents_have_teach_nothing(fitted):
    sources = fitted.model.servable.sources
    unseen = dataclasses.replace(sources, counts=np.where(np.arange(sources.n_labels) < 5, 0, sources.counts))
    unseen = dataclasses.replace(unseen, counts=unseen.counts.astype(np.float32))
    found = judged(unseen, planted().test)
    assert (found.seen == (found.labels >= 5)).all()
    assert found.labels[found.kept].min() >= 5
    relevance = planted().test.relevance[:, 5:]
    assert found.n_right.tolist() == np.diff(relevance.tocsr().indptr).tolist()
    otherwise = dataclasses.replace(found, right=np.where(found.seen, found.right, ~found.right))
    once, again = learn(found, "linear"), learn(otherwise, "linear")
    assert (once.stacker.weights == again.stacker.weights).all()
    assert (once.gains == again.gains).all()


def planted_chances(n: int = 4_000, seed: int = 0) -> tuple[HeldOut, np.ndarray]:
    """Pairs and the chance with which each is right: of labels with 0, 1, 3 and 30 documents; no member is calibrated.

    A quarter of the documents has no label that train knows, and nothing named for it is right.
    """
    rng = np.random.default_rng(seed)
    rows, labels = np.divmod(np.arange(n * EACH), EACH)
    documents = np.array([0, 1, 3, 30])[labels % 4]
    said = rng.normal(-1.0, 2.0, size=len(rows))  # the logit that the member says
    chances = 1 / (1 + np.exp(-(0.5 * said - 0.3 + 0.4 * np.log2(1 + documents) / 2)))
    chances[documents == 0] *= 0.3
    chances[rows % 4 == 0] = 0.0
    right = rng.random(len(rows)) < chances
    code = np.round(2 * np.log2(1 + documents))
    values = np.column_stack([said, said - 1, np.full(len(rows), 0.5), 1 + 0 * said, code, 1 + 0 * said])
    known = np.bincount(rows, weights=right & (documents > 0), minlength=n).astype(np.int64)
    marked = np.bincount(rows, weights=right, minlength=n).astype(np.int64)
    held = HeldOut(rows, labels, values.astype(np.float32), right, known, marked, np.arange(n), seed)
    return held, np.where(rows % 4 == 0, 0.0, chances)


def test_probabilities_are_the_planted_chances():
    """What is said of other documents is right so often, of labels of any frequency and of those without documents."""
    learnt, (other, chances) = learn(planted_chances()[0], "both"), planted_chances(seed=1)
    logits = learnt.stacker(other.values)
    assert learnt.unseen is not None
    said = np.where(other.seen, learnt.calibration(logits), learnt.unseen(logits))
    mean = np.array([chances[said > at].mean() - said[said > at].mean() for at in (0.0, 0.1, 0.3, 0.5)])
    print(mean.round(4))
    assert np.abs(mean).max() < 0.02
    for band in (0, 1, 2, 4):
        own = band_of(other.documents) == band
        print(band, said[own].mean().round(4), chances[own].mean().round(4))
        assert said[own].mean() == pytest.approx(chances[own].mean(), abs=0.015)
    assert expected_error(said, other.right) < 0.01


def test_the_card_tells_reliability_by_frequency():
    told = learn(planted_chances()[0], "linear").judged.reliability
    assert list(told) == ["no document", "1 document", "2 to 5 documents", "26 documents and more"]
    for words in told.values():
        said, right = map(float, re.findall(r"0\.\d+", words))
        assert said == pytest.approx(right, abs=0.03)


def test_points_of_each_band_are_what_brute_force_counts():
    learnt = learn(planted_chances()[0], "linear").judged
    bands = learnt.points_by_band()
    assert set(bands) == {"0", "1", "2", "26"}
    held = learnt.held
    for least, points in bands.items():
        own = band_of(held.documents) == BANDS.index(int(least))
        place = len(points.thresholds) // 2
        given = own & (learnt.probabilities >= points.thresholds[place])
        assert points.precision[place] == pytest.approx(held.right[given].mean())
        assert points.coverage[place] == pytest.approx(len(np.unique(held.rows[given])) / len(held.n_right))


def test_the_dev_split_is_what_is_learnt_from():
    data = planted()
    with_dev = dataclasses.replace(data, dev=data.test)
    steps = []
    Blend(members=("label_tree",), refit=False).fit(with_dev, device="cpu", callback=steps.append)
    assert [event["steps"] for event in steps if event.get("stage") == "hold-out"] == [1]


def test_without_memory_the_model_carries_no_words_of_train():
    model = Blend(members=("label_tree",), folds=2, memory=False).fit(planted(), device="cpu").model
    assert model.servable.sources.memory is None
    assert [name for name in model.servable.sources.value_names if "memory" in name] == []


@pytest.mark.parametrize(
    ("members", "said"),
    [
        (("no_such",), "unknown algorithm"),
        (("blend",), "cannot be a member"),
        (("label_tree nonsense=1",), "members.label_tree: unknown setting"),
    ],
)
def test_members_that_cannot_be(members, said):
    with pytest.raises(ConfigError, match=said):
        Blend(members=members, folds=2).fit(planted(train=3), device="cpu")


def test_label_texts_alone_are_a_list_beside_the_rows_of_the_same_training(tmp_path):
    data = planted(n_labels=24, train=10, test=5)
    short = "dual_encoder epochs=4 row_epochs=2 batch_size=16 embedding_dim=32 n_negatives=12"
    blend = Blend(members=("label_tree", short), folds=1, memory=False).fit(data, device="cpu")
    noted = blend.model.about["training"]
    assert {"hold-out: dual_encoder alone", "hold-out: dual_encoder: texts alone"} <= set(noted)
    blend.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    expected = blend.predict(data.test.documents)
    np.testing.assert_array_equal(loaded.predict(data.test.documents).ids, expected.ids)
    served = blend.model.servable.sources.members
    views = {name.split(":")[0] for name in served}
    assert views <= {"label_tree", "dual_encoder"}
    more = blend.add_labels([{"label": "new", "text": data.labels.texts[0]}])
    more.model.servable.check()
    assert more.model.servable.n_labels == 25


def test_a_pretrained_encoder_is_a_member_on_a_gpu_where_its_weights_are(tmp_path):
    texts = Size(20_000, 5_000, 30_000, 200_000, 60_000, 50_000, of_texts=True)
    assert not any("pretrained" in member for member in usual_members(texts, "cuda", 10, 2, f"{tmp_path}"))
    folder = tmp_path / "with a space"
    write_transformer(folder)
    members = usual_members(texts, "cuda", 10, 2, f"{folder}")
    (found,) = (member for member in members if "pretrained" in member)
    assert shlex.split(found)[2] == f"vectoriser.folder={folder}"
    assert not any("pretrained" in member for member in usual_members(texts, "cpu", 10, 2, f"{folder}"))
    assert not any("pretrained" in member for member in usual_members(texts, "cuda", 10, 2, None))
    numbers = dataclasses.replace(texts, of_texts=False)
    assert not any("pretrained" in member for member in usual_members(numbers, "cuda", 10, 2, f"{folder}"))


def test_few_documents_are_served_by_one_model():
    data = planted(n_labels=3, train=3)
    model = Blend().fit(data, device="cpu")
    assert model.resolved_["members"] == ["sparse_one_vs_all"]
    alone = algorithms.find("sparse_one_vs_all")().fit(data, device="cpu")
    texts = data.test.documents
    assert (model.predict(texts, 3).ids == alone.predict(texts, 3).ids).all()
    np.testing.assert_allclose(
        model.predict(texts, 3).scores, alone.predict(texts, 3).scores, atol=0.05
    )  # another seed


def size(n: int, n_labels: int, text: bool) -> Size:
    return Size(n, n_labels, 20_000, 13 * n, 3 * n, 5 * n_labels if text else 0)


def test_members_follow_from_data_and_time():
    few, many = (usual_members(size(50_000, 50_000, True), "cpu", minutes, 2) for minutes in (0.5, 30))
    assert few[0] == many[0] == "label_tree"
    assert len(few) < len(many)
    assert usual_members(size(10, 5, True), "cpu", 10, 2) == ("sparse_one_vs_all",)


def test_the_tree_reads_parts_of_words_where_there_are_texts_and_time():
    texts = dataclasses.replace(size(50_000, 50_000, True), of_texts=True)
    with_parts = "label_tree vectoriser.kind=subwords vectoriser.shortest_part=4"
    assert usual_members(texts, "cpu", 60, 2)[0] == with_parts
    assert usual_members(texts, "cpu", 1, 2)[0] == "label_tree"
    assert usual_members(size(50_000, 50_000, True), "cpu", 60, 2)[0] == "label_tree"  # features, not texts


def test_decaf_is_left_to_large_sets():
    found = [usual_members(size(n, n, True), "cpu", 30, 2) for n in (5_000, 50_000)]
    assert [any(member.startswith("decaf") for member in members) for members in found] == [False, True]


def test_members_are_planned_by_the_tokens_that_they_read():
    """A member over parts of words holds more tokens than the words that the blend has counted."""
    data = planted(n_labels=20, train=300)
    model = Blend(members=("label_tree",), folds=1)
    parts = Blend(members=("label_tree vectoriser.kind=subwords",), folds=1)
    words, tokens = (each.plan(data, device="cpu").stages[0].parameters for each in (model, parts))
    assert tokens > 3 * words


def test_linear_members_take_as_long_beside_a_gpu():
    """One label against all documents for each of 100,000 labels does not fit into a few minutes of a CPU."""
    for device in ("cpu", "cuda"):
        names = [member.split()[0] for member in usual_members(size(100_000, 100_000, True), device, 4, 2)]
        assert "label_tree" in names
        assert "sparse_one_vs_all" not in names
    assert "decaf" in names


@pytest.mark.parametrize("n", [20, 500, 3_000, 9_999, 20_000, 100_000])
def test_what_is_held_out(n):
    folds, held = usual_cut(size(n, 100, False))
    assert 1 <= folds <= 5
    assert folds <= held <= min(n, 9_995)
    assert held / folds <= n / 5


@pytest.mark.parametrize("n", [20, 500, 3_000, 9_999, 20_000])
def test_one_fold_holds_out_what_one_of_several_does(n):
    folds, held = usual_cut(size(n, 100, False))
    assert usual_cut(size(n, 100, False), 1) == (1, pytest.approx(held / folds, abs=1))


def test_without_a_refit_one_fold_leaves_most_documents_to_the_members():
    model = Blend(members=("label_tree",), refit=False).fit(planted(), device="cpu")
    assert model.resolved_["folds"] == 1
    assert model.resolved_["hold_out"] == 120  # a fifth of 600
    assert model.model.servable.sources.counts.sum() > 0.75 * planted().train.relevance.nnz


def test_a_hold_out_that_leaves_nothing_to_train_on_is_refused():
    with pytest.raises(ConfigError, match="no documents would be left to train on"):
        Blend(members=("label_tree",), folds=1, hold_out=600).fit(planted(), device="cpu")


def test_a_dev_split_is_one_fold_so_that_members_get_more_time():
    n = 5_000
    with_dev = dataclasses.replace(size(n, 500, True), n_dev=1_000)
    assert usual_cut(with_dev) == (1, 1_000)
    for own, rounds in ((size(n, 500, True), 4), (with_dev, 2)):
        assert Blend(time_budget=0.1)._auto(own, "cpu")["members"] == usual_members(own, "cpu", 0.1, rounds)
    assert usual_members(with_dev, "cpu", 0.1, 4) != usual_members(with_dev, "cpu", 0.1, 2)
    with pytest.raises(ConfigError, match="remove the dev split"):
        Blend(folds=2)._resolve(with_dev, "cpu")


def test_epochs_follow_from_all_of_train_also_in_the_folds():
    """Of 17,000 documents dual_encoder's own rule says 20 passes, of the 15,300 that a fold leaves 30."""
    whole, fold = size(17_000, 2_000, True), size(15_300, 2_000, True)
    member = Blend(members=("dual_encoder",))._resolve(whole, "cpu")._members(whole, "cpu")["dual_encoder"]
    assert algorithms.find("dual_encoder")()._resolve(fold, "cpu").epochs == 30
    assert member._resolve(fold, "cpu").epochs == member._resolve(whole, "cpu").epochs == 20


def test_heavy_words_of_a_row():
    rows = Words(min_count=1).learn(["a b", "a c", "a d"]).transform(["a b b b c", ""])
    kept = heavy_rows(rows)
    assert kept.getnnz(axis=1).tolist() == [3, 0]
    assert np.asarray(kept.multiply(kept).sum(axis=1)).ravel().tolist() == [pytest.approx(1), 0]
    wide = (
        Words(min_count=1)
        .learn([" ".join(f"w{i}" for i in range(100))])
        .transform([" ".join(f"w{i}" for i in range(100))])
    )
    assert heavy_rows(wide).nnz == 64
