"""Building blocks of a self-contained HTML page: tables and SVG charts. All text is escaped.

Knows nothing about models or metrics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

_WIDTH, _HEIGHT, _MARGIN = 360, 220, 36  # of a chart, in SVG units
_COLOURS = ("#0b7285", "#b54708", "#5a686c", "#6b46c1", "#2b8a3e")

_STYLE = """
:root { color-scheme: light dark; --back: #f7f8f8; --card: #fff; --ink: #1b2426; --quiet: #5a686c; --line: #d9e0e1; }
@media (prefers-color-scheme: dark) {
  :root { --back: #12181a; --card: #1a2225; --ink: #e6eced; --quiet: #9badb1; --line: #2f3b3f; }
}
body { max-width: 64rem; margin: 0 auto; padding: 1rem 1rem 4rem; background: var(--back); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h2 { margin: 2.5rem 0 0.5rem; font-size: 1.2rem; }
.note, figcaption, th { color: var(--quiet); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 0.3rem 1.2rem 0.3rem 0; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
th { font-weight: 500; }
td.number, th.number { text-align: right; }
.beside { display: flex; flex-wrap: wrap; gap: 1rem 2rem; }
figure { flex: 1 1 20rem; max-width: 30rem; margin: 0; }
svg { width: 100%; background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
svg text { fill: var(--quiet); font-size: 11px; }
svg .axis { stroke: var(--line); }
input { padding: 0.4rem 0.6rem; font: inherit; }
"""

# A search field hides the table rows that do not contain its text.
_SCRIPT = """
for (const field of document.querySelectorAll("input[data-table]")) {
  const rows = [...document.getElementById(field.dataset.table).tBodies[0].rows];
  field.addEventListener("input", () => {
    const wanted = field.value.toLowerCase();
    for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  });
}
"""


def page(title: str, parts: Iterable[str]) -> str:
    """The whole page; it loads no external resources."""
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{escape(title)}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{escape(title)}</h1>\n"
        + "\n".join(parts)
        + f"\n</main>\n<script>{_SCRIPT}</script>\n</body>\n</html>\n"
    )


def section(title: str, note: str, *parts: str) -> str:
    """A section with a heading, a note and its content."""
    told = f'<p class="note">{escape(note)}</p>' if note else ""
    return f"<section>\n<h2>{escape(title)}</h2>\n{told}\n" + "\n".join(parts) + "\n</section>"


def table(header: Sequence[str], rows: Iterable[Sequence[object]], *, name: str = "") -> str:
    """A table with right-aligned numbers; `name` adds a search field."""
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in header)
    body = "\n".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows)
    label = escape(f"Search: {name}", quote=True)
    field = f'<p><input type="search" data-table="{escape(name, quote=True)}" aria-label="{label}"></p>' if name else ""
    identity = f' id="{escape(name, quote=True)}"' if name else ""
    return (
        f'{field}<div class="scroll" tabindex="0" role="region" aria-label="{escape(header[0], quote=True)}">'
        f"<table{identity}><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>"
    )


def beside(*figures: str) -> str:
    """Charts side by side, wrapping if there is no room."""
    return f'<div class="beside">{"".join(figures)}</div>'


def lines(
    title: str,
    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    across: str,
    diagonal: bool = False,
) -> str:
    """Curves by name, each as (x, y); axes start at 0 or below."""
    left, right = _span([value for x, _ in curves.values() for value in x])
    low, high = _span([value for _, y in curves.values() for value in y])
    drawn = [_axes((left, right), (low, high), across)]
    if diagonal:
        drawn.append(_path([left, right], [left, right], (left, right), (low, high), "#888", dashed=True))
    for number, (name, (x, y)) in enumerate(curves.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        drawn.append(_path(x, y, (left, right), (low, high), colour))
        if len(curves) > 1:
            drawn.append(f'<text x="{_MARGIN + 8}" y="{16 + 14 * number}" style="fill:{colour}">{escape(name)}</text>')
    return _figure(title, drawn)


def bars(title: str, names: Sequence[str], values: Sequence[float]) -> str:
    """One bar per name, with its value above."""
    high = max([*values, 1e-9])
    step = (_WIDTH - 20) / max(len(values), 1)
    drawn = []
    for number, (name, value) in enumerate(zip(names, values, strict=True)):
        tall = (_HEIGHT - 2 * _MARGIN) * value / high
        top, middle = _HEIGHT - _MARGIN - tall, 10 + (number + 0.5) * step
        drawn.append(
            f'<rect x="{10 + number * step + 6:.1f}" y="{top:.1f}" width="{step - 12:.1f}" height="{tall:.1f}" '
            f'fill="{_COLOURS[0]}"/>'
            f'<text x="{middle:.1f}" y="{top - 5:.1f}" text-anchor="middle">{value:.1f}</text>'
            f'<text x="{middle:.1f}" y="{_HEIGHT - _MARGIN + 16}" text-anchor="middle">{escape(name)}</text>'
        )
    return _figure(title, drawn)


def _cell(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (
            f'<td class="number">{value:,.2f}</td>'
            if isinstance(value, float)
            else f'<td class="number">{value:,}</td>'
        )
    return f"<td>{escape(str(value))}</td>"


def _figure(title: str, drawn: Iterable[str]) -> str:
    label = escape(title, quote=True)
    return (
        f'<figure><figcaption>{escape(title)}</figcaption><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{label}">{"".join(drawn)}</svg></figure>'
    )


def _span(values: Sequence[float]) -> tuple[float, float]:
    low, high = min([0.0, *values]), max([0.0, *values])
    return low, high if high > low else low + 1


def _axes(across: tuple[float, float], up: tuple[float, float], name: str) -> str:
    bottom, right = _HEIGHT - _MARGIN, _WIDTH - 10
    return (
        f'<line class="axis" x1="{_MARGIN}" y1="{bottom}" x2="{right}" y2="{bottom}"/>'
        f'<line class="axis" x1="{_MARGIN}" y1="8" x2="{_MARGIN}" y2="{bottom}"/>'
        f'<text x="{_MARGIN}" y="{bottom + 14}">{across[0]:.3g}</text>'
        f'<text x="{right}" y="{bottom + 14}" text-anchor="end">{across[1]:.3g}</text>'
        f'<text x="{(_MARGIN + right) / 2}" y="{bottom + 28}" text-anchor="middle">{escape(name)}</text>'
        f'<text x="{_MARGIN - 4}" y="{bottom}" text-anchor="end">{up[0]:.3g}</text>'
        f'<text x="{_MARGIN - 4}" y="16" text-anchor="end">{up[1]:.3g}</text>'
    )


def _path(
    x: Sequence[float],
    y: Sequence[float],
    across: tuple[float, float],
    up: tuple[float, float],
    colour: str,
    *,
    dashed: bool = False,
) -> str:
    wide, tall = _WIDTH - 10 - _MARGIN, _HEIGHT - _MARGIN - 8
    points = " ".join(
        f"{_MARGIN + wide * (a - across[0]) / (across[1] - across[0]):.1f},"
        f"{8 + tall * (1 - (b - up[0]) / (up[1] - up[0])):.1f}"
        for a, b in zip(x, y, strict=True)
    )
    dash = ' stroke-dasharray="4 4"' if dashed else ""
    dots = (
        ""
        if dashed or len(x) > 25
        else "".join(
            f'<circle cx="{point.split(",")[0]}" cy="{point.split(",")[1]}" r="2.5" fill="{colour}"/>'
            for point in points.split()
        )
    )
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>{dots}'
