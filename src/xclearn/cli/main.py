"""The command `xc`: parse, call, print. No mathematics here.

Errors of our tree, and what the system refuses (a full disk), are printed as one sentence without a traceback, with
exit code 2; Ctrl-C is 130. Results go to stdout, everything else to stderr. Heavy imports happen inside the commands,
so that `xc --help` is instant.
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
DataSource = Annotated[str, typer.Argument(metavar="DATA", help="A data folder, a data file, or a bundled set's name.")]
Assignments = Annotated[list[str], typer.Option("--set", metavar="NAME=VALUE", help="One setting; repeat for more.")]
PredictDevice = Annotated[str, typer.Option("--device", help="cpu, cuda, or auto: a GPU that the model can run on.")]
Track = Annotated[str, typer.Option("--track", metavar="WHERE", help="tensorboard[:FOLDER] or mlflow[:ADDRESS].")]
DEMO_OUT = Path("demo-model")  # a demo may replace this folder's model


def main() -> None:
    """Entry point: what a user or the system did wrong becomes one sentence and exit code 2."""
    # Threads that spin while they wait made training ten times slower beside another busy process (benchmarks/LOG.md)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8")  # JSON is, and a label may hold any character
    try:
        try:
            app(prog_name="xc")
        finally:
            sys.stdout.flush()  # here, where a failure can still be said
    except KeyboardInterrupt:
        sys.exit(130)
    except XclearnError as error:
        _fail(error)
    except ModuleNotFoundError as error:
        if (needed := explained(error)) is None:
            raise
        _fail(needed)
    except BrokenPipeError:  # the reader of our output went away, as `head` does
        _drop_stdout()
        sys.exit(1)
    except OSError as error:
        _drop_stdout()
        _fail(XclearnError(error.strerror or str(error), where=error.filename))


def _fail(error: XclearnError) -> NoReturn:
    say(f"Error: {error}")
    sys.exit(2)


def _drop_stdout() -> None:
    """What could not be written is let go, or the interpreter would try, and complain, again."""
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
    algorithm: Annotated[str, typer.Option("--algorithm", "-a", help="See `xc algorithms`; else blend.")] = "",
    out: Annotated[Path, typer.Option("--out", "-o", metavar="MODEL", help="Folder to write the model to.")] = Path(
        "model"
    ),
    settings: Assignments = [],  # noqa: B006 (typer copies it)
    config: Annotated[Path | None, typer.Option("--config", help="TOML: algorithm, data, a table settings.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    seed: Annotated[int, typer.Option(help="The same seed gives the same model on a CPU.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from MODEL.checkpoint.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the model, and a failed run's checkpoint.")
    ] = False,
    time_budget: Annotated[
        float | None, typer.Option("--time-budget", metavar="MINUTES", help="What training may take; of blend.")
    ] = None,
    log: Annotated[Path | None, typer.Option("--log", help="Append training events as JSON lines.")] = None,
    keep_texts: Annotated[
        bool, typer.Option("--keep-texts", help="The model carries training texts, which its server shows as evidence.")
    ] = False,
    track: Track = "",
    purpose: Annotated[str, typer.Option("--purpose", help="What the model is for; its card begins with it.")] = "",
    test_share: Annotated[
        float | None,
        typer.Option("--test-share", help="Hold this share of train out as test; near copies stay together."),
    ] = None,
    *,
    reading: Reading,
) -> None:
    """Train a model and write its folder; if the data has a test split, measure it there."""
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
            help="A table (csv, tsv, jsonl, parquet), a text a line, or a folder or 'pattern' of these.",
        ),
    ] = "-",
    k: Annotated[int, typer.Option("-k", help="Labels per text.")] = 5,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write here instead of stdout.")
    ] = None,
    format: Annotated[str, typer.Option(help="table, jsonl, tsv, csv or parquet; else as -o ends, or a table.")] = "",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file of -o.")] = False,
    device: PredictDevice = "cpu",
    min_score: Annotated[float, typer.Option("--min-score", help="Only labels with at least this score.")] = 0.0,
    target_precision: Annotated[
        float | None,
        typer.Option("--target-precision", help="Only labels scored high enough for this precision, 0 to 1."),
    ] = None,
    best_f1: Annotated[
        bool, typer.Option("--best-f1", help="Only labels scored so high that precision and recall are best together.")
    ] = False,
    by_frequency: Annotated[
        bool, typer.Option("--by-frequency", help="The precision is to hold for rare and for frequent labels alike.")
    ] = False,
    tail: Annotated[
        float | None, typer.Option(help="Lift labels of few documents, 0 to 1; scores stay probabilities.")
    ] = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    label_separator: LabelSeparator = None,
    delimiter: Delimiter = None,
    engine: Annotated[str, typer.Option(help="What answers many files: processes, or ray, also on a cluster.")] = "",
    workers: Annotated[int | None, typer.Option(metavar="N", help="Files that are answered at once.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Only the files that have no answers yet.")] = False,
) -> None:
    """Predict labels of texts; the other columns of a table are kept. Of many files each gets a file in -o.

    The flags of a table are those of training; labels that the table has are kept and not read.
    """
    from xclearn.cli.answers import Output
    from xclearn.cli.batch import Many, is_many
    from xclearn.cli.predicting import Asked, predict_file, predict_folder
    from xclearn.data import Reading
    from xclearn.inference.thresholds import Threshold

    output = Output(out, format, overwrite)
    threshold = Threshold(min_score, target_precision, best_f1, by_frequency)
    asked = Asked(k, threshold, tail)
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
    as_json: Annotated[bool, typer.Option("--json", help="One flat JSON object of percents on stdout.")] = False,
    bins: Annotated[bool, typer.Option("--bins", help="Also by label frequency, in five bins.")] = False,
    filter_rule: Annotated[
        str,
        typer.Option("--filter-rule", help="Filter pairs leave `both` predictions and truth, or only `predictions`."),
    ] = "both",
    device: PredictDevice = "cpu",
    *,
    reading: Reading,
) -> None:
    """Measure a model on a split, with 95 % intervals."""
    from xclearn.cli.measuring import Measure, measure

    measure(model, data, Measure(split, as_json, bins, filter_rule, device, reading))


@app.command()
@with_reading
def compare(
    paths: Annotated[
        list[str], typer.Argument(metavar="MODEL… DATA", help="Two or more model folders, then the data.")
    ],
    split: Annotated[str, typer.Option(help="test, dev or train; a single file is measured whole.")] = "test",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    examples: Annotated[int, typer.Option(help="Documents shown on which they differ, for each side.")] = 3,
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
        Path | None, typer.Option("--log", help="What `xc train --log` wrote: adds training curves.")
    ] = None,
    device: PredictDevice = "cpu",
    *,
    reading: Reading,
) -> None:
    """Write one HTML page on a model: accuracy, reliability, thresholds, labels, mistakes."""
    from xclearn.cli.reporting import ReportRequest, report_page

    report_page(model, data, ReportRequest(out, overwrite, split, log, device, reading))


@app.command()
@with_reading
def tune(
    data: DataSource,
    algorithm: Annotated[str, typer.Option("--algorithm", "-a", help="See `xc algorithms`.")] = "label_tree",
    trials: Annotated[int, typer.Option(help="Trainings, besides one with the default settings.")] = 20,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="The settings found, for `xc train`.")
    ] = Path("tuned.toml"),
    metric: Annotated[str, typer.Option(help="What is to be high on held-out documents.")] = "P@5",
    settings: Assignments = [],  # noqa: B006 (typer copies it)
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    seed: Annotated[int, typer.Option(help="The same seed tries the same on a CPU.")] = 0,
    track: Track = "",
    *,
    reading: Reading,
) -> None:
    """Look for settings on held-out documents of train; the same command goes on where it was stopped."""
    from xclearn.cli.tuning import TuneRequest, tune_settings

    asked = TuneRequest(algorithm, out, trials, metric, tuple(settings), device, seed, track, reading)
    tune_settings(data, asked)


@app.command()
def inspect(
    model: ModelPath,
    label: Annotated[str, typer.Option(help="Show the labels nearest to this one instead.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """What a model folder holds: algorithm, settings, data, metrics; or what is near a label."""
    from xclearn.cli.showing import show_label, show_model

    if label:
        show_label(model, label, as_json)
    else:
        show_model(model, as_json)


@app.command()
def verify(model: ModelPath) -> None:
    """Read every byte of a model folder and compare it with the hashes written at training."""
    from xclearn.inference import load_model

    loaded = load_model(model, verify=True)
    print(f"{model}: unchanged, {loaded.servable.n_labels:,} labels")


@app.command()
def export(
    model: ModelPath,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to write the exported model to.")],
    data: Annotated[str, typer.Option(help="What the model was trained on: measures the loss, teaches clusters.")] = "",
    precision: Annotated[str, typer.Option(help="fp32, bf16 or int8.")] = "",
    int8: Annotated[bool, typer.Option("--int8", help="The same as --precision int8.")] = False,
    breadth: Annotated[
        int | None, typer.Option("--breadth", "--beam", help="Labels, or clusters, that are looked at; 0: every label.")
    ] = None,
    target_p99_us: Annotated[float | None, typer.Option(help="The best form with at most this p99, in µs.")] = None,
    max_loss: Annotated[float | None, typer.Option(help="The fastest form that loses at most this much P@1.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write it whatever it loses, or without --data.")] = False,
) -> None:
    """Write a model that answers faster: fewer bits, labels found through clusters; choose by measuring."""
    from xclearn.cli.exporting import export_folder
    from xclearn.inference.export import Choice

    choice = Choice("int8" if int8 else precision or None, breadth, target_p99_us, max_loss)
    export_folder(model, out, data, choice, force)


@app.command()
def serve(
    model: ModelPath,
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 lets other machines in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes a free one.")] = 8080,
    workers: Annotated[int, typer.Option(help="Processes; they share one copy of the model.")] = 1,
    token_file: Annotated[
        Path | None, typer.Option(help="Only clients that show this token may ask; or set XCLEARN_TOKEN.")
    ] = None,
    cors_origin: Annotated[
        list[str], typer.Option(metavar="URL", help="Pages of this origin may ask; repeat for more.")
    ] = [],  # noqa: B006 (typer copies it)
    allow_host: Annotated[
        list[str], typer.Option(metavar="NAME", help="Also answer requests to this name; repeat for more, * for any.")
    ] = [],  # noqa: B006
    timeout: Annotated[float, typer.Option(help="Seconds a request may take.")] = 30.0,
    header_timeout: Annotated[float, typer.Option(help="Seconds a request's header may take.")] = 10.0,
    body_timeout: Annotated[float, typer.Option(help="Seconds for a body to come, or an answer to be read.")] = 15.0,
    idle_timeout: Annotated[float, typer.Option(help="Seconds a connection may be quiet between requests.")] = 60.0,
    trial_timeout: Annotated[float, typer.Option(help="Seconds to read and try a model before it serves.")] = 300.0,
    max_connections: Annotated[int, typer.Option(help="Connections of a worker.")] = 1000,
    max_wait: Annotated[float, typer.Option(help="Seconds a short request may have to wait for its turn.")] = 0.25,
    max_bodies: Annotated[int, typer.Option(help="Bytes of all large bodies a worker holds.")] = 64 << 20,
    max_body: Annotated[int, typer.Option(help="Bytes of a request.")] = 8 << 20,
    max_texts: Annotated[int, typer.Option(help="Texts of a request.")] = 1000,
    max_characters: Annotated[int, typer.Option(help="Characters of a text.")] = 20_000,
) -> None:
    """Serve a model over HTTP, with a page to try it; SIGHUP reads the folder again."""
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
    name: Annotated[str, typer.Argument(metavar="NAME", help="Show its settings.")] = "",
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
    """Train on the bundled set of 103,849 labels, measure, and show ten predictions."""
    from xclearn.cli.demo import run_demo

    run_demo(out, tuple(settings), device, overwrite=out == DEMO_OUT)
