"""Record batches in, the same with answers out; in Spark too, where it is installed."""

import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from planted import planted

from xclearn.algorithms.one_vs_all import OneVsAll
from xclearn.errors import ConfigError, DataError
from xclearn.inference.predictor import Predictor
from xclearn.integrations.arrow import SPARK_TYPE, answers_of

TEXTS = ["own1 noise2", "own7", "", "own3 own4"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "model"
    OneVsAll(epochs=5).fit(planted(), device="cpu").save(folder)
    return folder


def batch(**columns: list) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_columns_stay_and_answers_are_those_of_the_predictor(model: Path) -> None:
    answer = pickle.loads(pickle.dumps(answers_of(model, k=3)))
    given = [
        batch(id=[0, 1], text=TEXTS[:2]),
        batch(id=[2, 3], text=TEXTS[2:]),
        batch(id=pa.array([], pa.int64()), text=pa.array([], pa.string())),
    ]
    table = pa.Table.from_batches(list(answer(iter(given))))
    assert table.schema.names == ["id", "text", "predictions"]
    assert table.column("id").to_pylist() == [0, 1, 2, 3]
    found = Predictor.load(model).suggest(TEXTS, 3)
    for answers, expected in zip(table.column("predictions").to_pylist(), found, strict=True):
        assert [(each["label"], each["text"]) for each in answers] == [(each.label, each.text) for each in expected]
        assert [each["score"] for each in answers] == pytest.approx([each.score for each in expected])


def test_the_column_of_texts_and_the_least_score_can_be_given(model: Path) -> None:
    answer = answers_of(model, k=3, text_column="words", min_score=1.1)
    (found,) = answer([batch(words=["own1"], text=["own2"])])
    assert found.column("predictions").to_pylist() == [[]]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"number": [1]}, "the record batch: no text column; got 'number'"),
        ({"text": ["own1", None]}, "row 1 of the record batch: the text is missing"),
        ({"text": [1]}, "row 0 of the record batch: 'text' must be a text"),
        ({"text": ["own1"], "predictions": [0]}, "the input already has a column of this name"),
    ],
)
def test_what_cannot_be_answered_is_refused(model: Path, columns: dict[str, list], said: str) -> None:
    with pytest.raises(DataError, match=said):
        list(answers_of(model)([batch(**columns)]))


def test_k_is_checked_before_any_process_starts(model: Path) -> None:
    with pytest.raises(ConfigError, match="k must be at least 1; got 0"):
        answers_of(model, k=0)


def test_spark_takes_the_function(model: Path) -> None:
    sql = pytest.importorskip("pyspark.sql")
    spark = sql.SparkSession.builder.master("local[2]").getOrCreate()
    try:
        frame = spark.createDataFrame(list(enumerate(TEXTS)), "id long, text string")
        found = frame.mapInArrow(answers_of(model, k=1), f"id long, text string, predictions {SPARK_TYPE}").collect()
    finally:
        spark.stop()
    expected = Predictor.load(model).suggest(TEXTS, 1)
    assert [row["predictions"][0]["label"] for row in sorted(found, key=lambda row: row["id"])] == [
        each[0].label for each in expected
    ]
