"""The pictures of how each algorithm works, and of which one to take, in docs/images: boxes and arrows as SVG.

`python -m benchmarks.flows` writes them.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

IMAGES = Path(__file__).parents[1] / "docs" / "images"
_WIDE, _TALL, _GAP, _A_ROW = 190, 58, 30, 4  # a box, and boxes in a row
_STYLE = (
    "<style>rect{fill:#e8f4f6;stroke:#0b7285}rect.last{fill:#fde6d3;stroke:#b54708}text{font:12px sans-serif;"
    "fill:#1b2426;text-anchor:middle}path{stroke:#5a686c;fill:none;marker-end:url(#tip)}</style>"
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0L8 4L0 8" style="fill:#5a686c;stroke:none;marker-end:none"/></marker></defs>'
)

FLOWS = {
    "blend": [
        "text|",
        "members|label_tree, decaf, …",
        "label texts,|memory of train",
        "stacker|learnt on held-out texts",
        "calibration|score = chance",
        "labels|with probabilities",
    ],
    "one_vs_all": ["text|", "bag of words|to a vector", "one row a label|all labels scored", "labels|"],
    "xml_cnn": [
        "text|",
        "words in order|",
        "filters over words|and pooling",
        "bottleneck|",
        "one row a label|all labels scored",
        "labels|",
    ],
    "astec": [
        "text|",
        "encoder|learnt on label clusters",
        "residual block|how features may move",
        "near labels|by their centres",
        "own row of each|on the shortlist",
        "re-ranker|",
        "labels|",
    ],
    "slice": [
        "text|",
        "fixed vector|not trained",
        "near labels|by their centres",
        "linear classifier|of each on the list",
        "labels|",
    ],
    "mach": [
        "text|",
        "several networks|one a hashing",
        "buckets|of labels by chance",
        "mean over networks|of a label's buckets",
        "labels|",
    ],
    "decaf": [
        "text|",
        "shared word table|texts and labels",
        "label classifier|text + own refinement",
        "all labels,|or a cluster beam",
        "labels|",
    ],
    "eclare": [
        "text|",
        "shared word table|texts and labels",
        "label graph|from random walks",
        "label classifier|text + graph + own",
        "scores passed on|over the graph",
        "labels|",
    ],
    "lightdxml": [
        "text|",
        "encoder|",
        "near labels|by label embedding",
        "own row of each|on the shortlist",
        "mix|row and similarity",
        "labels|",
    ],
    "elias": [
        "text|",
        "encoder|",
        "best clusters|",
        "learnt edges|cluster to label",
        "own row|of the best labels",
        "labels|",
    ],
    "dual_encoder": [
        "text|",
        "encoder|",
        "nearest label texts|in the same space",
        "row of a label|text + its documents",
        "labels|",
    ],
    "label_tree": [
        "text|",
        "TF-IDF|",
        "tree of labels|linear classifier a node",
        "best paths|beam search",
        "+ likeness to|the label's text",
        "labels|",
    ],
}
DECISION = (
    ("Do you want the best answer|and can wait some minutes?", "yes", "blend"),
    ("Is torch missing, or must|training end in a minute?", "yes", "label_tree"),
    ("Do labels have texts,|and many are rare?", "yes", "dual_encoder or decaf"),
    ("Are links between labels|known or worth learning?", "yes", "eclare"),
    ("Long texts, a GPU and|a pretrained transformer?", "yes", "elias or one_vs_all"),
    ("Millions of labels,|each with many texts?", "yes", "astec or lightdxml"),
)


def flow(boxes: list[str]) -> str:
    """Boxes from left to right, and on in the next row."""
    parts = []
    for number, box in enumerate(boxes):
        x, y = _place(number)
        parts.append(_box(x, y, box, last=number == len(boxes) - 1))
        if number:
            before = _place(number - 1)
            if before[1] == y:
                parts.append(f'<path d="M{before[0] + _WIDE} {y + _TALL / 2}H{x - 2}"/>')
            else:
                middle = y - _GAP / 2
                parts.append(
                    f'<path d="M{before[0] + _WIDE / 2} {before[1] + _TALL}V{middle}H{x + _WIDE / 2}V{y - 2}"/>'
                )
    columns, rows = min(len(boxes), _A_ROW), -(-len(boxes) // _A_ROW)
    return _svg(columns * (_WIDE + _GAP), rows * (_TALL + _GAP), parts)


def decision() -> str:
    """Questions downwards, answers to the right."""
    parts = []
    for number, (question, answer, algorithm) in enumerate(DECISION):
        y = 6 + number * (_TALL + _GAP)
        parts.append(_box(6, y, question))
        parts.append(f'<path d="M{6 + _WIDE} {y + _TALL / 2}H{2 * _WIDE - 2}"/>')
        parts.append(f'<text x="{1.5 * _WIDE + 3}" y="{y + _TALL / 2 - 6}">{answer}</text>')
        parts.append(_box(2 * _WIDE, y, f"{algorithm}|", last=True))
        if number:
            parts.append(
                f'<path d="M{6 + _WIDE / 2} {y - _GAP}V{y - 2}"/><text x="{_WIDE / 2 + 22}" y="{y - 10}">no</text>'
            )
    y = 6 + len(DECISION) * (_TALL + _GAP)
    parts.append(f'<path d="M{6 + _WIDE / 2} {y - _GAP}V{y - 2}"/><text x="{_WIDE / 2 + 22}" y="{y - 10}">no</text>')
    parts.append(_box(6, y, "one_vs_all|", last=True))
    return _svg(3 * _WIDE + 12, y + _TALL + 6, parts)


def _place(number: int) -> tuple[float, float]:
    return 6 + number % _A_ROW * (_WIDE + _GAP), 6 + number // _A_ROW * (_TALL + _GAP)


def _box(x: float, y: float, text: str, *, last: bool = False) -> str:
    first, _, second = text.partition("|")
    style = ' class="last"' if last else ""
    lines = [f'<text x="{x + _WIDE / 2}" y="{y + (25 if second else 34)}">{escape(first)}</text>']
    if second:
        lines.append(f'<text x="{x + _WIDE / 2}" y="{y + 43}">{escape(second)}</text>')
    return f'<rect{style} x="{x}" y="{y}" width="{_WIDE}" height="{_TALL}" rx="8"/>' + "".join(lines)


def _svg(width: float, height: float, parts: list[str]) -> str:
    inside = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'style="background:#fff">{_STYLE}\n{inside}\n</svg>\n'
    )


def pictures() -> dict[str, str]:
    """File name → SVG."""
    return {**{f"flow_{name}.svg": flow(boxes) for name, boxes in FLOWS.items()}, "which_algorithm.svg": decision()}


if __name__ == "__main__":
    for name, content in pictures().items():
        (IMAGES / name).write_text(content, encoding="utf-8")
