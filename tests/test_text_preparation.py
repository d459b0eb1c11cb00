"""Words of many languages by hand-made examples; the native core finds the same; old folders stay as they were."""

import sys
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xclearn import LabelTree, OneVsAll
from xclearn.data import Dataset
from xclearn.errors import ConfigError, MissingExtra, ModelError
from xclearn.inference.folder import load_model
from xclearn.inference.native import native_predictor
from xclearn.text import Subwords, WordPiece, Words, vectoriser_from_state
from xclearn.text.preparation import _STEMMERS, LANGUAGES, PLAIN, Preparation
from xclearn.text.tokenisers import words

UNICODE = Preparation(unicode=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ﬁle №2 Ⅷ ｆｕｌｌ", ["file", "no2", "viii", "full"]),
        ("cafe\u0301 café CAFÉ", ["café"] * 3),
        ("İstanbul", ["istanbul"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("كِتَاب", ["كِتَاب"]),
        ("検索", ["検", "検索", "索"]),
        ("機械学習の本", ["機", "機械", "械", "械学", "学", "学習", "習", "習の", "の", "の本", "本"]),
        ("ｶﾅ", ["カ", "カナ", "ナ"]),
        ("iPhone用", ["iphone", "用"]),
        ("น้ำ", ["น้\u0e4d", "น้\u0e4dา", "า"]),  # NFKC parts the vowel am
        ("ที่นี่", ["ที่", "ที่นี่", "นี่"]),
        ("한국어 책", ["한국어", "책"]),  # Korean has spaces
        ("x\u0308, \u0308 \u2764\ufe0f!", ["ẍ"]),
        ("Über-Fluß, x_1  42!\0a\ud800b", ["über", "fluß", "x_1", "42", "a", "b"]),
    ],
)
def test_words_of_many_scripts(text: str, expected: list[str]) -> None:
    assert UNICODE.words(text) == expected


def test_without_it_marks_part_words_and_a_script_without_spaces_is_one_word() -> None:
    assert PLAIN.words("में 機械学習") == ["म", "機械学習"]


@pytest.mark.parametrize(
    ("language", "text", "stems"),
    [
        ("en", "Libraries and their cataloguing", ["librari", "and", "their", "catalogu"]),
        ("fi", "kirjastoissa kirjastot", ["kirjasto", "kirjasto"]),
        ("de", "Häuser", ["haus"]),
        ("ru", "книги", ["книг"]),
    ],
)
def test_endings_are_taken_off(language: str, text: str, stems: list[str]) -> None:
    pytest.importorskip("snowballstemmer")
    assert Preparation(unicode=True, language=language).words(text) == stems


def test_every_language_has_a_stemmer() -> None:
    snowball = pytest.importorskip("snowballstemmer")
    assert set(LANGUAGES) == {"none", *_STEMMERS}
    assert set(_STEMMERS.values()) <= set(snowball.algorithms())


@given(st.text(alphabet=st.characters(max_codepoint=0x7F)))
def test_of_ascii_nothing_changes(text: str) -> None:
    assert UNICODE.words(text) == words(text)
    assert UNICODE(text) == text


@given(st.text())
def test_prepared_texts_are_words_with_spaces_between_them(text: str) -> None:
    found = UNICODE.words(text)
    prepared = UNICODE(text)
    assert prepared == text if text.isascii() else prepared == " ".join(found)
    assert all(word and " " not in word for word in found)
    assert text.isascii() or prepared.lower() == prepared  # the native core lower-cases once more


def test_lower_casing_twice_is_lower_casing_once() -> None:
    texts = map(chr, range(sys.maxunicode + 1))
    assert [text for text in texts if (once := unicodedata.normalize("NFKC", text).lower()) != once.lower()] == []


TEXTS = [
    "機械学習の本",
    "Cafe\u0301 libraries",
    "café library",
    "हिन्दी में किताब",
    "ที่นี่ น้ำ",
    "plain words here",
    "ﬁles",
    "",
]


def tagged() -> Dataset:
    return Dataset.from_lists(TEXTS * 4, [[f"label{row}"] for row in range(len(TEXTS))] * 4)


@pytest.mark.parametrize("kind", [Words, WordPiece])
@pytest.mark.parametrize("language", ["none", "en"])
@pytest.mark.parametrize("algorithm", [LabelTree, OneVsAll])
def test_the_native_core_finds_what_numpy_finds(kind: type, language: str, algorithm: type, tmp_path) -> None:
    pytest.importorskip("snowballstemmer")
    settings = kind(language=language, **({"vocabulary_size": 300} if kind is WordPiece else {}))
    model = algorithm(vectoriser=settings).fit(tagged(), device="cpu")
    model.save(tmp_path / "model")
    servable = load_model(tmp_path / "model").servable
    native = native_predictor(servable)
    assert native is not None
    for text in [*TEXTS, "図書館で 学習", "LIBRARY’S ﬁle"]:
        ids, weights = servable.vectoriser.transform_one(text)
        found, values = native.transform_one(text)
        np.testing.assert_array_equal(found, ids)
        np.testing.assert_array_equal(values, weights)
    one, other = servable.predict(TEXTS, 3), native.predict(TEXTS, 3)
    np.testing.assert_array_equal(one.ids, other.ids)
    np.testing.assert_allclose(one.scores, other.scores, rtol=1e-5)


def test_a_stem_finds_what_its_other_forms_taught() -> None:
    pytest.importorskip("snowballstemmer")
    data = Dataset.from_lists(["cataloguing libraries", "feeding dogs"] * 10, [["a"], ["b"]] * 10)
    stemmed = LabelTree(vectoriser=Words(language="en")).fit(data, device="cpu")
    assert stemmed.suggest(["a dog"], 1)[0][0].label == "b"
    assert len(stemmed.model.servable.vectoriser.transform_one("dog")[0]) == 1
    plain = LabelTree().fit(data, device="cpu")
    assert len(plain.model.servable.vectoriser.transform_one("dog")[0]) == 0


def test_parts_of_words_are_those_of_prepared_words() -> None:
    vectoriser = Subwords(table_size=4096).learn(["機械学習", "本の検索"])
    assert "機械" in vectoriser.tokens(vectoriser.transform_one("機械")[0])
    again = vectoriser_from_state(vectoriser.kind, vectoriser.to_state())
    for text in TEXTS:
        for one, other in zip(vectoriser.transform_one(text), again.transform_one(text), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("settings", [Words(unicode=False), Words(), Subwords(), Subwords(unicode=False)])
def test_what_a_folder_before_this_held_is_read_as_plain_words(settings: Words | Subwords) -> None:
    learnt = settings.learn(TEXTS)
    state = {name: value for name, value in learnt.to_state().items() if name not in ("unicode", "language")}
    old = vectoriser_from_state(learnt.kind.replace("v2", "v1"), state)
    same = np.array_equal(old.transform(TEXTS).toarray(), learnt.transform(TEXTS).toarray())
    assert same is not settings.unicode
    assert vectoriser_from_state(old.kind, old.to_state()).to_state()["unicode"] is False


def test_wrong_languages_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="fi"):
        Words(language="fin").learn(TEXTS)
    state = {**Words().learn(TEXTS).to_state(), "language": "xx"}
    with pytest.raises(ModelError, match="unknown language; got 'xx'"):
        vectoriser_from_state("words.v2", state)
    monkeypatch.setattr("xclearn.extras.is_installed", lambda _: False)
    with pytest.raises(MissingExtra, match=r"xclearn\[languages\]"):
        Words(language="fi").learn(TEXTS)
