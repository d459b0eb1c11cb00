"""The command `xc`: parses, calls and prints. No mathematics here.

Our own errors and system errors (such as a full disk) are printed as one sentence without a traceback, with exit code
2; Ctrl-C exits with 130. Results go to stdout, everything else to stderr. Heavy imports are inside the commands, so
that `xc --help` is instant.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from xclearn._version import __version__
from xclearn.cli.data import data_app
from xclearn.cli.labels import labels_app
from xclearn.cli.progress import say
from xclearn.cli.reading import Delimiter, LabelColumn, LabelSeparator, TextColumn, with_reading
from xclearn.errors import XclearnError
from xclearn.extras import explained

if TYPE_CHECKING:
    from xclearn.data import Reading

app = typer.Typer(
    name="xc",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(data_app, name="data")
app.add_typer(labels_app, name="labels")

ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder written by `xc train`.")]
DataSource = Annotated[
    str, typer.Argument(metavar="DATA", help="A data folder, a data file, or the name of a bundled set.")
]
Assignments = Annotated[list[str], typer.Option("--set", metavar="NAME=VALUE", help="A setting; can be repeated.")]
PredictDevice = Annotated[str, typer.Option("--device", help="cpu, cuda, or auto: a GPU if the model can run on it.")]
Track = Annotated[str, typer.Option("--track", metavar="WHERE", help="tensorboard[:FOLDER] or mlflow[:ADDRESS].")]
ChunkWords = Annotated[
    int | None, typer.Option("--chunk-words", metavar="N", help="Split long texts into chunks of at most N words.")
]
Pool = Annotated[str, typer.Option("--pool", help="How the scores of chunks are combined: mean or max.")]
DEMO_OUT = Path("demo-model")  # the demo may overwrite this model


def main() -> None:
    """Entry point: user and system errors become one sentence and exit code 2."""
    # Spinning OpenMP threads made training ten times slower beside another busy process (benchmarks/LOG.md)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8")  # JSON is UTF-8, and labels may contain any character
    try:
        try:
            app(prog_name="xc")
        finally:
            sys.stdout.flush()  # flush here, where a failure can still be reported
    except KeyboardInterrupt:
        sys.exit(130)
    except XclearnError as error:
        _fail(error)
    except ModuleNotFoundError as error:
        if (needed := explained(error)) is None:
            raise
        _fail(needed)
    except BrokenPipeError:  # the reader of our output has exited, as `head` does
        _drop_stdout()
        sys.exit(1)
    except OSError as error:
        _drop_stdout()
        _fail(XclearnError(error.strerror or str(error), where=error.filename))


def _fail(error: XclearnError) -> NoReturn:
    say(f"Error: {error}")
    sys.exit(2)


def _drop_stdout() -> None:
    """Discard unwritten output, or the interpreter would try to flush it again and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_version(asked: bool) -> None:
    if asked:
        print(f"xclearn {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Extreme multi-label classification: short text in, the few right labels out of very many."""


@app.command()
@with_reading
def train(
    data: Annotated[str, typer.Argument(metavar="DATA", help="A data folder, file or bundled name.")] = "",
    algorithm: Annotated[str, typer.Option("--algorithm", "-a", help="See `xc algorithms`; by default blend.")] = "",
    out: Annotated[Path, typer.Option("--out", "-o", metavar="MODEL", help="Folder to write the model to.")] = Path(
        "model"
    ),
    settings: Assignments = [],  # noqa: B006 (typer copies it)
    config: Annotated[
        Path | None, typer.Option("--config", help="TOML with algorithm, data and a table `settings`.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    seed: Annotated[int, typer.Option(help="The same seed gives the same model on a CPU.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from MODEL.checkpoint.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the model and the checkpoint of a failed run.")
    ] = False,
    time_budget: Annotated[
        float | None, typer.Option("--time-budget", metavar="MINUTES", help="Limit on training time, for blend.")
    ] = None,
    log: Annotated[Path | None, typer.Option("--log", help="Append training events as JSON lines.")] = None,
    keep_texts: Annotated[
        bool, typer.Option("--keep-texts", help="Store training texts in the model; its server shows them as evidence.")
    ] = False,
    track: Track = "",
    purpose: Annotated[str, typer.Option("--purpose", help="What the model is for; shown first in its card.")] = "",
    test_share: Annotated[
        float | None,
        typer.Option("--test-share", help="Hold out this share of train as test; near-duplicates stay together."),
    ] = None,
    *,
    reading: Reading,
) -> None:
    """Train a model and write its folder; evaluates on the test split if there is one."""
    from xclearn.cli.training import Request, train_model

    rest = (config, device, seed, resume, overwrite, log, keep_texts, reading, test_share, purpose, track, time_budget)
    train_model(Request(data, algorithm, out, tuple(settings), *rest))


@app.command()
def predict(
    model: ModelPath,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE|-",
            help="A table (csv, tsv, jsonl, parquet), one text per line, or a folder or 'pattern' of these.",
        ),
    ] = "-",
    k: Annotated[int, typer.Option("-k", help="Labels per text.")] = 5,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write here instead of stdout.")
    ] = None,
    format: Annotated[
        str, typer.Option(help="table, jsonl, tsv, csv or parquet; by default the suffix of -o, or a table.")
    ] = "",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file of -o.")] = False,
    device: PredictDevice = "cpu",
    min_score: Annotated[float, typer.Option("--min-score", help="Only labels with at least this score.")] = 0.0,
    target_precision: Annotated[
        float | None,
        typer.Option("--target-precision", help="Only labels with a score that reaches this precision, 0 to 1."),
    ] = None,
    best_f1: Annotated[
        bool, typer.Option("--best-f1", help="Only labels above the threshold with the best F1.")
    ] = False,
    by_frequency: Annotated[
        bool, typer.Option("--by-frequency", help="Reach the precision for rare and frequent labels separately.")
    ] = False,
    tail: Annotated[float | None, typer.Option(help="Favour rare labels, 0 to 1; scores stay probabilities.")] = None,
    chunk_words: ChunkWords = None,
    pool: Pool = "mean",
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    label_separator: LabelSeparator = None,
    delimiter: Delimiter = None,
    engine: Annotated[str, typer.Option(help="For many files: processes, or ray, also on a cluster.")] = "",
    workers: Annotated[int | None, typer.Option(metavar="N", help="Number of files to process at once.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Only process files without output.")] = False,
) -> None:
    """Predict labels of texts, keeping other columns of a table. For many files, -o is a folder with one file each.

    Tables are read with the same flags as in training; a label column is kept but ignored.
    """
    from xclearn.cli.answers import Output
    from xclearn.cli.batch import Many, is_many
    from xclearn.cli.predicting import Asked, predict_file, predict_folder
    from xclearn.data import Reading
    from xclearn.inference.long_texts import Chunks
    from xclearn.inference.thresholds import Threshold

    output = Output(out, format, overwrite)
    threshold = Threshold(min_score, target_precision, best_f1, by_frequency)
    asked = Asked(k, threshold, tail, None if chunk_words is None else Chunks(chunk_words, pool))
    reading = Reading(text_column, label_column, label_separator, delimiter)
    many = Many(engine, workers, resume)
    if many.asked_for or is_many(file):
        predict_folder(model, file, asked, output, device, reading, many)
    else:
        predict_file(model, file, asked, output, device, reading)


@app.command()
@with_reading
def evaluate(
    model: ModelPath,
    data: DataSource,
    split: Annotated[str, typer.Option(help="test, dev or train; a single file is measured whole.")] = "test",
    as_json: Annotated[bool, typer.Option("--json", help="Print one flat JSON object of percentages.")] = False,
    bins: Annotated[bool, typer.Option("--bins", help="Also show results by label frequency, in five bins.")] = False,
    filter_rule: Annotated[
        str,
        typer.Option(
            "--filter-rule", help="Remove filter pairs from `both` predictions and truth, or only `predictions`."
        ),
    ] = "both",
    device: PredictDevice = "cpu",
    chunk_words: ChunkWords = None,
    pool: Pool = "mean",
    *,
    reading: Reading,
) -> None:
    """Evaluate a model on a split, with 95 % intervals."""
    from xclearn.cli.measuring import Measure, measure
    from xclearn.inference.long_texts import Chunks

    chunks = None if chunk_words is None else Chunks(chunk_words, pool)
    measure(model, data, Measure(split, as_json, bins, filter_rule, device, reading, chunks))


@app.command()
@with_reading
def compare(
    paths: Annotated[
        list[str], typer.Argument(metavar="MODEL… DATA", help="Two or more model folders, then the data.")
    ],
    split: Annotated[str, typer.Option(help="test, dev or train; a single file is measured whole.")] = "test",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    examples: Annotated[int, typer.Option(help="Documents to show where models differ, for each side.")] = 3,
    device: PredictDevice = "cpu",
    *,
    reading: Reading,
) -> None:
    """Compare models on the same documents: paired tests, by label frequency, and where they differ."""
    from xclearn.cli.comparing import CompareRequest, compare_models

    compare_models(paths[:-1], paths[-1], CompareRequest(split, as_json, examples, device, reading))


@app.command()
@with_reading
def report(
    model: ModelPath,
    data: DataSource,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The page to write.")] = Path("report.html"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file of -o.")] = False,
    split: Annotated[str, typer.Option(help="test, dev or train; a single file is measured whole.")] = "test",
    log: Annotated[
        Path | None, typer.Option("--log", help="A log written by `xc train --log`, for training curves.")
    ] = None,
    device: PredictDevice = "cpu",
    *,
    reading: Reading,
) -> None:
    """Write an HTML report on a model: accuracy, reliability, thresholds, labels, mistakes."""
    from xclearn.cli.reporting import ReportRequest, report_page

    report_page(model, data, ReportRequest(out, overwrite, split, log, device, reading))


@app.command()
@with_reading
def tune(
    data: DataSource,
    algorithm: Annotated[str, typer.Option("--algorithm", "-a", help="See `xc algorithms`.")] = "label_tree",
    trials: Annotated[int, typer.Option(help="Number of trials besides the default settings.")] = 20,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="Where to write the best settings, for `xc train`.")
    ] = Path("tuned.toml"),
    metric: Annotated[str, typer.Option(help="The held-out metric to maximise.")] = "P@5",
    settings: Assignments = [],  # noqa: B006 (typer copies it)
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    seed: Annotated[int, typer.Option(help="The same seed gives the same trials on a CPU.")] = 0,
    track: Track = "",
    *,
    reading: Reading,
) -> None:
    """Search for settings on held-out documents of train; run the same command again to continue."""
    from xclearn.cli.tuning import TuneRequest, tune_settings

    asked = TuneRequest(algorithm, out, trials, metric, tuple(settings), device, seed, track, reading)
    tune_settings(data, asked)


@app.command()
def inspect(
    model: ModelPath,
    label: Annotated[str, typer.Option(help="Show the labels nearest to this one instead.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Show a model's algorithm, settings, data and metrics, or the labels nearest to a label."""
    from xclearn.cli.showing import show_label, show_model

    if label:
        show_label(model, label, as_json)
    else:
        show_model(model, as_json)


@app.command()
def verify(model: ModelPath) -> None:
    """Verify every byte of a model folder against the hashes written at training."""
    from xclearn.inference import load_model

    loaded = load_model(model, verify=True)
    print(f"{model}: unchanged, {loaded.servable.n_labels:,} labels")


@app.command()
def export(
    model: ModelPath,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to write the exported model to.")],
    data: Annotated[str, typer.Option(help="The training data, to measure the loss and build an index.")] = "",
    precision: Annotated[str, typer.Option(help="fp32, bf16 or int8.")] = "",
    int8: Annotated[bool, typer.Option("--int8", help="The same as --precision int8.")] = False,
    breadth: Annotated[
        int | None, typer.Option("--breadth", "--beam", help="Labels or clusters to search; 0: every label.")
    ] = None,
    target_p99_us: Annotated[
        float | None, typer.Option(help="Choose the most accurate form with at most this p99, in µs.")
    ] = None,
    max_loss: Annotated[
        float | None, typer.Option(help="Choose the fastest form that loses at most this much P@1.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Export whatever the loss, or without --data.")] = False,
) -> None:
    """Write a model that predicts faster, with fewer bits and a label index, chosen by measuring."""
    from xclearn.cli.exporting import export_folder
    from xclearn.inference.export import Choice

    choice = Choice("int8" if int8 else precision or None, breadth, target_p99_us, max_loss)
    export_folder(model, out, data, choice, force)


@app.command()
def serve(
    model: ModelPath,
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 accepts other machines.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 picks a free one.")] = 8080,
    workers: Annotated[int, typer.Option(help="Number of processes, which share one copy of the model.")] = 1,
    token_file: Annotated[
        Path | None, typer.Option(help="Require clients to send this token; or set XCLEARN_TOKEN.")
    ] = None,
    cors_origin: Annotated[
        list[str], typer.Option(metavar="URL", help="Allow pages of this origin; can be repeated.")
    ] = [],  # noqa: B006 (typer copies it)
    allow_host: Annotated[
        list[str],
        typer.Option(metavar="NAME", help="Also accept requests to this host name; can be repeated, * for any."),
    ] = [],  # noqa: B006
    timeout: Annotated[float, typer.Option(help="Seconds a request may take.")] = 30.0,
    header_timeout: Annotated[float, typer.Option(help="Seconds a request's header may take.")] = 10.0,
    body_timeout: Annotated[
        float, typer.Option(help="Seconds to receive a body, or for a client to read a response.")
    ] = 15.0,
    idle_timeout: Annotated[float, typer.Option(help="Seconds a connection may be idle between requests.")] = 60.0,
    trial_timeout: Annotated[float, typer.Option(help="Seconds to load and test a model before it serves.")] = 300.0,
    max_connections: Annotated[int, typer.Option(help="Maximum connections per worker.")] = 1000,
    max_wait: Annotated[float, typer.Option(help="Seconds a short request may wait for its turn.")] = 0.25,
    max_bodies: Annotated[int, typer.Option(help="Maximum bytes of all large bodies per worker.")] = 64 << 20,
    max_body: Annotated[int, typer.Option(help="Maximum bytes of a request.")] = 8 << 20,
    max_texts: Annotated[int, typer.Option(help="Maximum texts of a request.")] = 1000,
    max_characters: Annotated[int, typer.Option(help="Maximum characters of a text.")] = 20_000,
) -> None:
    """Serve a model over HTTP, with a web page to try it; SIGHUP reloads the folder."""
    from xclearn.cli.serving import serve_model
    from xclearn.serving.settings import Limits, Settings

    limits = Limits(
        max_body=max_body,
        max_texts=max_texts,
        max_characters=max_characters,
        timeout=timeout,
        header_timeout=header_timeout,
        body_timeout=body_timeout,
        idle_timeout=idle_timeout,
        max_connections=max_connections,
        max_bodies=max_bodies,
        max_wait=max_wait,
    )
    settings = Settings(
        *(model, host, port, workers),
        cors_origins=tuple(cors_origin),
        allow_hosts=tuple(allow_host),
        limits=limits,
        trial_timeout=trial_timeout,
    )
    serve_model(settings, token_file)


@app.command()
def algorithms(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Show the settings of this algorithm.")] = "",
) -> None:
    """List the algorithms, or the settings of one."""
    from xclearn.cli.showing import show_algorithm, show_algorithms

    if name:
        show_algorithm(name)
    else:
        show_algorithms()


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="MODEL", help="Folder to write the model to.")] = DEMO_OUT,
    settings: Assignments = [],  # noqa: B006 (typer copies it)
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Train on the bundled set of 103,849 labels, evaluate, and show ten predictions."""
    from xclearn.cli.demo import run_demo

    run_demo(out, tuple(settings), device, overwrite=out == DEMO_OUT)
