"""Settings classes ↔ plain values, TOML and the command line."""

import json
import math
from dataclasses import dataclass, field, fields
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xclearn import config
from xclearn.config import AUTO, Auto, Count, Number, Range, Rate, Setting, Share, Weight
from xclearn.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Words:
    """One way to cut texts."""

    min_count: Count = 2  # words in fewer texts are left out
    lower: bool = True  # ignore case


@dataclass(frozen=True, kw_only=True)
class WordPiece:
    """Another way."""

    size: Annotated[int, Range(100)] = 1000  # pieces


@dataclass(frozen=True, kw_only=True)
class Stopping:
    """A settings class that may be absent."""

    patience: Count = 2  # epochs


@dataclass(kw_only=True)
class Model:
    """What the tests configure."""

    text: Words | WordPiece = field(default_factory=Words)  # how texts are cut
    dim: Auto[Count] = AUTO  # length of vectors
    lr: Rate = 0.1  # learning rate
    decay: Weight = 0.0  # weight decay
    dropout: Share = 0.5  # share dropped
    workers: Number = 0  # processes beside this one
    optimiser: Literal["sgd", "adam"] = "sgd"  # how rows move
    layers: tuple[int, ...] = (64, 32)  # widths
    name: str = "plain"  # a name
    exact: bool = False  # all labels
    beam: int | float = 8  # a number of either kind
    stopping: Stopping | None = None  # when to end


# build


def test_nothing_given_is_the_default():
    assert config.build(Model, {}) == Model()


def test_values_of_every_kind():
    built = config.build(
        Model,
        {
            "text": {"kind": "word_piece", "size": 200},
            "dim": 8,
            "lr": 1,  # a whole number is a number
            "dropout": 0,
            "optimiser": "adam",
            "layers": [5],
            "exact": True,
            "beam": 2.5,
            "stopping": {"patience": 3},
        },
    )
    assert built == Model(
        text=WordPiece(size=200),
        dim=8,
        lr=1.0,
        dropout=0.0,
        optimiser="adam",
        layers=(5,),
        exact=True,
        beam=2.5,
        stopping=Stopping(patience=3),
    )
    assert isinstance(built.lr, float)


def test_a_union_is_chosen_by_kind():
    assert config.build(Model, {"text": "word_piece"}).text == WordPiece()
    assert config.build(Model, {"text": {"kind": "words", "min_count": 5}}).text == Words(min_count=5)
    assert config.build(Model, {"text": {"min_count": 5}}).text == Words(min_count=5)  # the first is the default
    assert config.build(Model, {"text": WordPiece(size=300)}).text == WordPiece(size=300)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dimm": 3}, "settings: unknown setting; got 'dimm'. Did you mean 'dim'?"),
        ({"zzz": 3}, "settings: unknown setting; got 'zzz'. Known: beam, decay, dim,"),
        ({"dim": 0}, "settings.dim: out of range; got 0; allowed: a number of at least 1."),
        ({"dim": 2.0}, "settings.dim: wrong type; got 2.0; allowed: int."),
        ({"dim": "8"}, "settings.dim: wrong type; got '8'; allowed: int."),
        ({"dim": True}, "settings.dim: wrong type; got True; allowed: int."),
        ({"lr": 0}, "settings.lr: out of range; got 0; allowed: a number above 0."),
        ({"lr": math.nan}, "settings.lr: wrong type; got nan; allowed: float."),
        ({"lr": math.inf}, "settings.lr: wrong type; got inf; allowed: float."),
        ({"lr": None}, "settings.lr: wrong type; allowed: float."),
        ({"decay": -1e-9}, "settings.decay: out of range; got -1e-09; allowed: a number of at least 0."),
        ({"dropout": 1.01}, "settings.dropout: out of range; got 1.01; allowed: a number from 0 to 1."),
        ({"optimiser": "adamw"}, "settings.optimiser: unknown choice; got 'adamw'; allowed: sgd, adam."),
        ({"layers": 5}, "settings.layers: not a list; got 5; allowed: list of int."),
        ({"layers": [5, "x"]}, "settings.layers[1]: wrong type; got 'x'; allowed: int."),
        ({"exact": 1}, "settings.exact: wrong type; got 1; allowed: bool."),
        ({"name": 3}, "settings.name: wrong type; got 3; allowed: str."),
        ({"beam": "x"}, "settings.beam: wrong type; got 'x'; allowed: float."),
        ({"text": "word_pieces"}, "settings.text: unknown kind; got 'word_pieces'. Did you mean 'word_piece'?"),
        ({"text": 3}, "settings.text: unknown kind; got 3."),
        (
            {"text": {"kind": "words", "size": 3}},
            "settings.text: unknown setting; got 'size'. Known: lower, min_count.",
        ),
        ({"text": {"min_count": 0}}, "settings.text.min_count: out of range; got 0"),
        ({"text": {"kind": "word_piece", "size": 99}}, "settings.text.size: out of range; got 99"),
        ({"stopping": {"patience": 0}}, "settings.stopping.patience: out of range; got 0"),
        ({"stopping": {"kind": "words"}}, "settings.stopping: unknown kind; got 'words'."),
    ],
)
def test_what_does_not_fit_is_refused_by_name(given, message):
    with pytest.raises(ConfigError) as caught:
        config.build(Model, given)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("given", [{"text": [1]}, {"text": {"kind": {}}}, {"lr": 10**400}])
def test_values_of_no_sensible_kind_are_refused(given):
    with pytest.raises(ConfigError):
        config.build(Model, given)


def test_where_is_said_as_the_caller_calls_it():
    with pytest.raises(ConfigError, match=r"^model\.toml\.dim: out of range"):
        config.build(Model, {"dim": -1}, "model.toml")


# check


def test_constructors_store_and_check_looks():
    config.check(Model())
    config.check(Model(text=WordPiece(), dim=3, stopping=Stopping()))
    for wrong, name in (
        (Model(dim=0), "dim"),
        (Model(lr="fast"), "lr"),
        (Model(text=WordPiece(size=5)), "text.size"),
        (Model(stopping=Stopping(patience=0)), "stopping.patience"),
    ):
        with pytest.raises(ConfigError, match=rf"^here\.{name}: "):
            config.check(wrong, "here")


# to_plain

NUMBERS = st.floats(0, 1, exclude_min=True)
MODELS = st.builds(
    Model,
    text=st.builds(Words, min_count=st.integers(1), lower=st.booleans()) | st.builds(WordPiece, size=st.integers(100)),
    dim=st.just(AUTO) | st.integers(1),
    lr=NUMBERS,
    decay=NUMBERS,
    dropout=NUMBERS,
    workers=st.integers(0),
    optimiser=st.sampled_from(["sgd", "adam"]),
    layers=st.lists(st.integers()).map(tuple),
    name=st.text(),
    exact=st.booleans(),
    beam=st.integers(),
    stopping=st.none() | st.builds(Stopping, patience=st.integers(1)),
)


@given(model=MODELS)
def test_build_is_the_reverse_of_to_plain_through_json(model):
    plain = config.to_plain(model)
    assert config.build(Model, plain) == model
    assert config.build(Model, json.loads(json.dumps(plain))) == model
    config.check(model)


def test_plain_values_name_the_kind():
    plain = config.to_plain(Model(text=WordPiece()))
    assert plain["text"] == {"kind": "word_piece", "size": 1000}
    assert plain["layers"] == [64, 32]
    assert plain["stopping"] is None
    assert list(plain) == [each.name for each in fields(Model)]


# automatic settings


@pytest.mark.parametrize("given", [{}, {"dim": None}, {"dim": "auto"}, {"dim": AUTO}])
def test_auto_may_be_left_out_or_said(given):
    assert config.build(Model, given) == Model()
    assert Model().dim is AUTO


@pytest.mark.parametrize("given", [None, "none"])
def test_an_optional_part_may_be_none_and_is_not_auto(given):
    assert config.build(Model, {"stopping": given}).stopping is None


def test_auto_is_null_in_json_and_comes_back():
    plain = json.loads(json.dumps(config.to_plain(Model())))
    assert plain["dim"] is None
    assert config.build(Model, plain).dim is AUTO


def test_only_automatic_settings_are_chosen_and_the_original_stays():
    model = Model(beam=3)
    resolved = config.resolve(model, {"dim": 7, "beam": 5})
    assert (resolved.dim, resolved.beam, model.dim) == (7, 3, AUTO)
    assert config.resolve(model, {}).dim is AUTO  # it is chosen later


def test_automatic_settings_of_a_part_are_chosen_too():
    @dataclass(frozen=True, kw_only=True)
    class Phase:
        """A part."""

        lr: Auto[Rate] = AUTO  # learning rate
        steps: Count = 3  # of it

    @dataclass(kw_only=True)
    class Whole:
        """Holds it."""

        phase: Phase = field(default_factory=Phase)  # the part

    assert config.resolve(Whole(), {"phase": {"lr": 0.5, "steps": 9}}).phase == Phase(lr=0.5)
    assert config.resolve(Whole(phase=Phase(lr=0.1)), {"phase": {"lr": 0.5}}).phase == Phase(lr=0.1)


def test_check_gives_values_the_types_of_their_fields():
    checked = config.check(Model(lr=1, layers=[5]))
    assert isinstance(checked.lr, float)
    assert checked.layers == (5,)


def test_settings_of_a_class_include_those_of_the_class_it_extends():
    @dataclass(kw_only=True)
    class More(Model):
        """One more."""

        depth: Count = 2  # of the tree

    rows = {row.name: row for row in config.describe(More)}
    assert (rows["lr"].help, rows["depth"].help) == ("learning rate", "of the tree")


# merge


@pytest.mark.parametrize(
    ("assignment", "merged"),
    [
        ("dim=8", {"dim": 8}),
        (" dim = 8 ", {"dim": 8}),
        ("lr=1e-3", {"lr": 0.001}),
        ("exact=true", {"exact": True}),
        ("name=plain", {"name": "plain"}),
        ("name='8'", {"name": "8"}),
        ("name=a=b", {"name": "a=b"}),
        ("name=", {"name": ""}),
        ("layers=[1, 2]", {"layers": [1, 2]}),
        ("start=none", {"start": "none"}),
        ("dim=auto", {"dim": None}),
        ("text=word_piece", {"text": "word_piece"}),
        ("text.min_count=3", {"text": {"min_count": 3}}),
        ("text={kind='words', min_count=3}", {"text": {"kind": "words", "min_count": 3}}),
    ],
)
def test_an_assignment_is_a_toml_value_or_a_word(assignment, merged):
    assert config.merge({}, [assignment]) == merged


def test_later_assignments_win_and_tables_are_merged():
    values = {"text": {"kind": "words", "lower": False}, "dim": 4}
    merged = config.merge(values, ["text.min_count=3", "dim=5", "dim=6"])
    assert merged == {"text": {"kind": "words", "lower": False, "min_count": 3}, "dim": 6}
    assert values == {"text": {"kind": "words", "lower": False}, "dim": 4}  # the file's values stay as they were


def test_a_kind_given_as_a_word_can_be_refined():
    merged = config.merge({"text": "word_piece"}, ["text.size=200"])
    assert config.build(Model, merged).text == WordPiece(size=200)
    assert config.build(Model, config.merge({}, ["text=word_piece", "text.size=300"])).text == WordPiece(size=300)


@pytest.mark.parametrize("assignment", ["dim", "", "=3", " =3"])
def test_what_is_no_assignment_is_refused(assignment):
    with pytest.raises(ConfigError, match=f"--set: not an assignment; got '{assignment}'; allowed: name=value"):
        config.merge({}, [assignment])


def test_a_second_line_is_not_dropped():
    """Either it is part of a text, or it is refused; `b=2` must not vanish."""
    try:
        merged = config.merge({}, ["dim=1\nlr=2"])
    except ConfigError:
        return
    assert "lr=2" in str(merged["dim"])


@given(text=st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20))
def test_any_text_is_a_value(text):
    assert list(config.merge({}, [f"name={text}"])) == ["name"]


# read_toml


def test_toml(tmp_path):
    path = tmp_path / "model.toml"
    path.write_text("dim = 8 # é\n[text]\nkind = 'word_piece'\n", encoding="utf-8")
    assert config.build(Model, config.read_toml(path)) == Model(dim=8, text=WordPiece())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"dim = 8\nlr = = 3\n", "not a TOML file.*line 2"),
        (b"name = '\xff'", "not a TOML file"),
        (b"dim = 1\ndim = 2", "not a TOML file"),
    ],
)
def test_what_is_no_toml_is_refused_with_its_line(tmp_path, content, message):
    path = tmp_path / "model.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message) as caught:
        config.read_toml(path)
    assert caught.value.where == str(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path in (tmp_path / "missing.toml", tmp_path):
        with pytest.raises(ConfigError, match="cannot be read"):
            config.read_toml(path)


# describe


def test_one_row_a_setting_with_the_comment_beside_it():
    rows = {row.name: row for row in config.describe(Model)}
    assert rows["dim"] == Setting("dim", "int, a number of at least 1 or auto", "auto", "length of vectors")
    assert rows["lr"] == Setting("lr", "float, a number above 0", "0.1", "learning rate")
    assert rows["optimiser"] == Setting("optimiser", "sgd | adam", "sgd", "how rows move")
    assert rows["layers"] == Setting("layers", "list of int", "(64, 32)", "widths")
    assert rows["text"] == Setting("text", "words or word_piece", "words", "how texts are cut")
    assert rows["text[words].min_count"].help == "words in fewer texts are left out"
    assert rows["text[word_piece].size"].default == "1000"
    assert rows["stopping"].default == "none"
    assert rows["stopping"].type == "stopping or none"
    assert rows["stopping.patience"].type == "int, a number of at least 1"
    assert len(rows) == len(fields(Model)) + 4


def test_a_setting_without_default_is_required():
    @dataclass(kw_only=True)
    class Needy:
        """Has no default."""

        size: int  # how much
        note: str = "#  # not a comment"

    assert config.describe(Needy)[0] == Setting("size", "int", "required", "how much")


@pytest.mark.parametrize(
    ("name", "kind"),
    [("Words", "words"), ("WordPiece", "word_piece"), ("OneVsAll", "one_vs_all"), ("Elias2Plus", "elias2_plus")],
)
def test_kinds_are_class_names_in_snake_case(name, kind):
    assert config.kind_of(type(name, (), {})) == kind


@pytest.mark.parametrize(
    ("limits", "inside", "outside"),
    [
        (Range(1), [1, 5, math.inf], [0, -1]),
        (Range(0, open_low=True), [1e-9], [0, -1]),
        (Range(0, 1), [0, 0.5, 1], [-0.1, 1.1]),
        (Range(0, 1, open_low=True), [1], [0]),
    ],
)
def test_ranges(limits, inside, outside):
    assert all(limits.holds(value) for value in inside)
    assert not any(limits.holds(value) for value in outside)


def test_a_class_without_source_has_settings_without_help():
    """Typed into an interpreter or a notebook."""
    namespace = {"__name__": "__main__", "dataclass": dataclass}
    exec("@dataclass(kw_only=True)\nclass Typed:\n    depth: int = 3  # not to be read\n", namespace)
    assert [(row.name, row.default, row.help) for row in config.describe(namespace["Typed"])] == [("depth", "3", "")]
