"""The model card: a Markdown summary of a model, from the facts that training recorded.

Knows nothing about models: only the plain values in `about`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def model_card(about: Mapping[str, Any], n_labels: int) -> str:
    """Algorithm, settings, data and metrics as a Markdown page."""
    title = f"# {about.get('algorithm', 'model')} on {about.get('data', {}).get('name', 'unnamed data')}"
    purpose = [str(about["purpose"])] if about.get("purpose") else []
    parts = [
        title,
        *purpose,
        f"{n_labels:,} labels. Written by xclearn {about.get('xclearn', '')}. Tensors and JSON only.",
    ]
    if about.get("metrics"):
        parts += ["## Accuracy", *(_metrics(split, values) for split, values in about["metrics"].items())]
    for heading, key in (
        ("Data", "data"),
        ("Settings", "settings"),
        ("Chosen from the data", "resolved"),
        ("Training", "training"),
    ):
        if about.get(key):
            parts += [f"## {heading}", _table(about[key])]
    parts += ["## Use", "```\nxc predict MODEL texts.txt\nxc evaluate MODEL DATA\n```"]
    return "\n\n".join(parts) + "\n"


def _metrics(split: str, values: Mapping[str, float]) -> str:
    return f"On `{split}`, in percent:\n\n" + _table({name: f"{value:.2f}" for name, value in values.items()})


def _table(values: Mapping[str, Any]) -> str:
    rows = [f"| {name} | {_cell(value)} |" for name, value in values.items()]
    return "\n".join(["| | |", "|---|---|", *rows])


def _cell(value: Any) -> str:
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")
