"""Long texts in chunks: the cuts, and pooled scores beside those of a loop over chunks and labels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import xclearn
from xclearn.errors import ConfigError, DataError
from xclearn.inference.long_texts import Chunks
from xclearn.inference.predictor import Predictor

TOPICS = {"printer": "paper toner ink", "network": "cable router wifi", "account": "password login user"}


@pytest.fixture(scope="module")
def model() -> xclearn.SparseOneVsAll:
    texts = [f"{words} {noise}" for words in TOPICS.values() for noise in ("the", "of", "and", "with")]
    return xclearn.SparseOneVsAll().fit(texts, [[name] for name in TOPICS for _ in range(4)])


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """From no word to many, in one topic or in all."""
    rng = np.random.default_rng(0)
    words = " ".join(TOPICS.values()).split()
    return [" ".join(rng.choice(words, size=n)) for n in (0, 1, 4, 5, 9, 23, 40)]


def by_hand(model, chunks: Chunks, text: str) -> np.ndarray:
    """The pooled score of every label, (L,)."""
    asked = model.predict(chunks.of(text), len(model.labels))
    scores = np.take_along_axis(asked.scores, np.argsort(asked.ids, axis=1), axis=1)  # (chunks, L)
    return scores.mean(axis=0) if chunks.pool == "mean" else scores.max(axis=0)


@given(st.text(alphabet="ab \n検索", max_size=60), st.integers(1, 9))
def test_chunks_are_the_text_cut_between_words_into_nearly_equal_parts(text: str, most: int) -> None:
    chunks = Chunks(most).of(text)
    assert "".join(chunks) == text
    sizes = [len(chunk.replace("検", " 検 ").replace("索", " 索 ").split()) for chunk in chunks]
    assert max(sizes) <= most
    assert max(sizes) - min(sizes) <= 1
    assert len(chunks) == max(1, -(-sum(sizes) // most)), "no more chunks than needed"


def test_an_example_of_cuts_by_hand() -> None:
    assert Chunks(3).of("one two three four") == ["one two ", "three four"]
    assert Chunks(4).of(" one two\nthree four") == [" one two\nthree four"]
    assert Chunks(2).of("図書館学") == ["図書", "館学"]


@pytest.mark.parametrize("pool", ["mean", "max"])
@pytest.mark.parametrize("words", [1, 5, 100])
def test_pooled_scores_are_those_of_a_loop(model, texts, words, pool):
    chunks = Chunks(words, pool)
    ids, scores = chunks.predict(model, texts, 3)
    for text, row_ids, row_scores in zip(texts, ids, scores, strict=True):
        expected = by_hand(model, chunks, text)
        np.testing.assert_allclose(row_scores, np.sort(expected)[::-1], rtol=1e-6)
        np.testing.assert_allclose(expected[row_ids], row_scores, rtol=1e-6)


def test_many_chunks_are_asked_in_blocks(model, texts, monkeypatch):
    whole = Chunks(2).predict(model, texts, 2)
    monkeypatch.setattr("xclearn.inference.long_texts._AT_ONCE", 3)
    for once, blocks in zip(whole, Chunks(2).predict(model, texts, 2), strict=True):
        np.testing.assert_array_equal(once, blocks)


def test_a_short_text_is_asked_as_it_is(model, texts):
    for whole, chunked in zip(model.predict(texts, 2), Chunks(40).predict(model, texts, 2), strict=True):
        np.testing.assert_array_equal(whole, chunked)


def test_pairs_are_left_out_of_every_chunk(model, texts):
    best = Chunks(5).predict(model, texts, 1).ids[:, 0]
    exclude = np.stack([np.arange(len(texts)), best], axis=1)[[1, 4, 6]]
    ids, _ = Chunks(5).ask(Predictor(model.model).predict, 3, texts, 3, exclude)
    for row, found in enumerate(ids):
        assert (best[row] in found) == (row not in (1, 4, 6))


def test_topics_of_parts_are_named_where_the_whole_names_one(model):
    """Forty words of one topic, then three of another: the maximum over chunks hears both."""
    text = " ".join(["paper toner ink"] * 14 + ["cable router wifi"])
    named = Chunks(3, "max").suggest(model, [text], 2, min_score=0.5)[0]
    assert {label for label, _, _ in named} == {"printer", "network"}
    alone = [label for label, score, _ in model.suggest([text], 2)[0] if score >= 0.5]
    assert alone == ["printer"]


def test_evaluation_asks_in_chunks_and_without_filtered_pairs(model, texts):
    data = {"text": texts[2:], "labels": [["printer"]] * len(texts[2:])}
    chunks = Chunks(5)
    report = xclearn.evaluate(model, data, chunks=chunks)
    hits = [
        int(np.argmax(by_hand(model, chunks, text))) == list(model.labels.names).index("printer") for text in texts[2:]
    ]
    assert report.values["P@1"] == pytest.approx(100 * np.mean(hits))
    assert 0 < np.mean(hits) < 1, "the case would not tell chunks from a constant"


@pytest.mark.parametrize(
    ("chunks", "message"),
    [(Chunks(0), "--chunk-words: .*got 0; allowed: at least 1"), (Chunks(9, "sum"), "--pool: .*allowed: mean, max")],
)
def test_values_out_of_range_are_refused_by_the_name_of_the_flag(model, chunks, message):
    with pytest.raises(ConfigError, match=message):
        chunks.predict(model, ["a"], 1)


def test_features_cannot_be_cut(model):
    with pytest.raises(DataError, match="texts"):
        Chunks().predict(model, np.ones((2, 3)), 1)
