"""Every form of a model on the hold-out: P@1 against the microseconds of one text, as rows and as a plot.

    python -m benchmarks.speed.serve_pareto --model .bench/model --plot docs/images/serve_pareto.svg

Rows go to results/serve_pareto.csv. The plot is drawn from the rows of this run alone.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.speed.serve import WORDNET, record_row

from xclearn.data import load_dataset
from xclearn.inference import load_model
from xclearn.inference.export import Choice, Exporter, HoldOut, Measured

WIDTH, HEIGHT, LEFT, BOTTOM = 640, 400, 60, 50
COLOURS = {"fp32": "#b45309", "bf16": "#0f766e", "int8": "#1d4ed8"}


class Scale(NamedTuple):
    """Values of the data → places of the plot."""

    low: float
    high: float
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        return round(self.begin + (self.end - self.begin) * (value - self.low) / (self.high - self.low), 1)


def drawn(points: Sequence[Measured]) -> str:
    """An SVG: time on a logarithmic axis, P@1 upwards, a line for each precision; breadths stand at those of int8."""
    times = [math.log10(point.p50_us) for point in points]
    values = [point.values["P@1"] for point in points]
    x = Scale(min(times) - 0.1, max(times) + 0.1, LEFT, WIDTH - 20)
    y = Scale(min(values) - 0.3, max(values) + 0.3, HEIGHT - BOTTOM, 20)
    parts = [*_axes(x, y), *(_line(points, name, colour, x, y) for name, colour in COLOURS.items())]
    for row, (name, colour) in enumerate(COLOURS.items()):
        parts.append(_text(WIDTH - 90, HEIGHT - BOTTOM - 60 + 18 * row, f"● {name}", "start", colour))
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    return "\n".join([head, f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>', *parts, "</svg>", ""])


def _axes(x: Scale, y: Scale) -> list[str]:
    parts = []
    for exponent in range(math.ceil(x.low), math.floor(x.high) + 1):
        parts += [
            _rule(x(exponent), y.begin, x(exponent), y.end),
            _text(x(exponent), y.begin + 18, f"{10**exponent} µs"),
        ]
    for value in range(math.ceil(y.low), math.floor(y.high) + 1):
        parts += [_rule(x.begin, y(value), x.end, y(value)), _text(x.begin - 8, y(value) + 4, str(value), "end")]
    below = "one text to its ten label names on one core, median"
    beside = f'<g transform="translate(18 {HEIGHT / 2}) rotate(-90)">{_text(0, 0, "P@1 on the hold-out")}</g>'
    return [*parts, _text((x.begin + x.end) / 2, HEIGHT - 12, below), beside]


def _line(points: Sequence[Measured], precision: str, colour: str, x: Scale, y: Scale) -> str:
    own = sorted((point for point in points if point.form.precision == precision), key=lambda point: point.p50_us)
    places = [(x(math.log10(point.p50_us)), y(point.values["P@1"])) for point in own]
    parts = [f'<polyline points="{" ".join(f"{a},{b}" for a, b in places)}" fill="none" stroke="{colour}"/>']
    for (a, b), point in zip(places, own, strict=True):
        parts.append(f'<circle cx="{a}" cy="{b}" r="4" fill="{colour}"/>')
        if precision == "int8":
            parts.append(_text(a, b + 18, str(point.form.breadth or "all"), "middle", colour))
    return "\n".join(parts)


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#ddd"/>'


def _text(x: float, y: float, text: str, anchor: str = "middle", colour: str = "#333") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{colour}">{text}</text>'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path(".bench/model"), help="trained on the bundled set")
    parser.add_argument("--plot", type=Path, default=Path("docs/images/serve_pareto.svg"))
    arguments = parser.parse_args()
    data, model = load_dataset(WORDNET), load_model(arguments.model)
    exporter, held_out = Exporter(model, data), HoldOut.of(model, data)
    points = [held_out.measure(form, exporter.export(form)) for form in Choice(max_loss=0).forms(model.servable)]
    for point in points:
        losses = {f"lost_{name}": round(lost, 3) for name, lost in point.lost.items()}
        values = {name: round(value, 3) for name, value in point.values.items()}
        times = {"p50_us": round(point.p50_us, 1), "p99_us": round(point.p99_us, 1)}
        row = {**point.form._asdict(), **values, **losses, "overlap": round(point.overlap, 2), **times}
        record_row("serve_pareto", {"set": WORDNET, "labels": data.n_labels, **row})
    arguments.plot.parent.mkdir(parents=True, exist_ok=True)
    arguments.plot.write_text(drawn(points), encoding="utf-8")


if __name__ == "__main__":
    main()
