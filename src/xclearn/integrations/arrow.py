"""Predictions for Arrow record batches: the input columns plus one with predictions.

`answers_of(model)` returns a plain function of batches, as needed by Spark's `mapInArrow`. It can be pickled: each
process that calls it maps the model folder once. Knows nothing about Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from xclearn.data.columns import Reading, columns_of
from xclearn.data.records import joined_text
from xclearn.errors import ConfigError, DataError
from xclearn.inference.predictor import Predictor, Suggestion

PREDICTIONS = "predictions"  # the added column
SPARK_TYPE = "array<struct<label:string,score:float,text:string>>"  # its type in Spark's notation

Batches = Iterable[Any]  # of pyarrow.RecordBatch
Answer = Callable[[Batches], Iterator[Any]]


def answers_of(
    model: str | Path,
    *,
    k: int = 5,
    text_column: str | None = None,
    min_score: float = 0.0,
    device: str = "cpu",
    n_threads: int | None = 1,
) -> Answer:
    """A function that adds the k best labels of each row to record batches.

    `text_column` is detected by common names if not given. Engines start one process per core, so each uses one thread
    unless `n_threads` is set (None: one per core).
    """
    if k < 1:
        raise ConfigError("k must be at least 1", where="k", got=k)
    loaded = partial(mapped, Path(model).resolve(), device, n_threads)
    return partial(_answered, loaded, k, Reading(text_column), min_score)


@lru_cache(maxsize=1)
def mapped(folder: Path, device: str, n_threads: int | None) -> Predictor:
    """The model in a folder, mapped once per process and shared by all processes of a machine."""
    return Predictor.load(folder, verify=False, device=device, n_threads=n_threads)


def answer_type() -> Any:
    """The Arrow type of the predictions for a text."""
    import pyarrow as pa

    return pa.list_(pa.struct([("label", pa.string()), ("score", pa.float32()), ("text", pa.string())]))


def plain(suggestion: Suggestion) -> dict[str, Any]:
    """Label, score and the label's text, if any."""
    text = {} if suggestion.text is None else {"text": suggestion.text}
    return {"label": suggestion.label, "score": suggestion.score} | text


def _answered(
    loaded: Callable[[], Predictor], k: int, reading: Reading, min_score: float, batches: Batches
) -> Iterator[Any]:
    import pyarrow as pa

    predictor = loaded()
    for batch in batches:
        if PREDICTIONS in batch.schema.names:
            raise DataError("the input already has a column of this name", got=PREDICTIONS, todo="Rename it.")
        found = predictor.suggest(_texts(batch, reading), k, min_score=min_score)
        answers = pa.array([list(map(plain, each)) for each in found], answer_type())
        schema = batch.schema.append(pa.field(PREDICTIONS, answer_type()))
        yield pa.RecordBatch.from_arrays([*batch.columns, answers], schema=schema)


def _texts(batch: Any, reading: Reading) -> list[str]:
    columns = columns_of(batch.schema.names, reading, "the record batch").texts
    if not columns:
        names = ", ".join(batch.schema.names)
        todo = "Give the column with text_column."
        raise DataError("no text column", where="the record batch", got=names, allowed="text", todo=todo)
    texts = []
    for row, values in enumerate(batch.select(list(columns)).to_pylist()):
        text = joined_text(values, columns, f"row {row} of the record batch")
        if text is None:
            raise DataError("the text is missing", where=f"row {row} of the record batch")
        texts.append(text)
    return texts
