"""`xc export`: measures forms of a model on a hold-out, picks one and writes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from xclearn.cli.progress import say
from xclearn.cli.showing import print_table
from xclearn.data import load_dataset
from xclearn.errors import ConfigError
from xclearn.inference.export import Choice, Exporter, HoldOut, Measured, refuse_loss
from xclearn.inference.folder import Model, load_model, save_model


def export_folder(folder: Path, out: Path, source: str, choice: Choice, force: bool) -> None:
    """Read a model, write the chosen form, print the measurements."""
    model = load_model(folder)
    forms = choice.forms(model.servable)
    if not source:
        if not force:
            todo = "Give --data, or --force to export unmeasured."
            raise ConfigError("there is no data to measure the loss on", where="--data", todo=todo)
        if len(forms) > 1:
            raise ConfigError(
                "there is no data to choose a form by", where="--data", todo="Give --precision and --breadth."
            )
        save_model(Exporter(model, None).export(forms[0]), out)
        say(f"model: {out} ({forms[0]}, not measured)")
        return
    data = load_dataset(source)
    say(f"measuring {len(forms)} forms on a hold-out of {data.name}")
    exporter, held_out = Exporter(model, data), HoldOut.of(model, data)
    points = [held_out.measure(form, exporter.export(form)) for form in forms]
    chosen = choice.pick(points)
    _print_points(points, chosen)
    if not force:
        refuse_loss(chosen)
    save_model(_with_measurement(exporter.export(chosen.form), chosen), out)
    say(f"model: {out} ({chosen.form})")


def _with_measurement(model: Model, point: Measured) -> Model:
    facts = {"lost": point.lost, "overlap": point.overlap, "p50_us": point.p50_us, "p99_us": point.p99_us}
    return replace(model, about=model.about | {"export": point.form._asdict() | facts})


def _print_points(points: Sequence[Measured], chosen: Measured) -> None:
    names = list(chosen.values)
    title = ("", "precision", "breadth", *names, *(f"lost {name}" for name in names), "same top 10", "p50 µs", "p99 µs")
    print_table(title, [_row(point, point is chosen) for point in points])


def _row(point: Measured, is_chosen: bool) -> tuple[str, ...]:
    return (
        "→" if is_chosen else "",
        point.form.precision,
        str(point.form.breadth or "all"),
        *(f"{value:.2f}" for value in point.values.values()),
        *(f"{value:.2f}" for value in point.lost.values()),
        f"{point.overlap:.1f} %",
        f"{point.p50_us:.0f}",
        f"{point.p99_us:.0f}",
    )
