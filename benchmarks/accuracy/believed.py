"""Whether a model's probabilities hold on a split that it never saw: ECE@5, by band of labels, at thresholds.

A threshold was chosen on the model's own hold-out for a precision; here is what it came to. `default.py` and
`shapes.py` record it.
"""

from __future__ import annotations

import numpy as np

from xclearn.errors import ConfigError
from xclearn.inference.blend import AnyServable, BlendServable
from xclearn.inference.operating_points import BAND_NAMES, band_of
from xclearn.metrics import Report
from xclearn.metrics.answers import reliability

TARGETS = (0.5, 0.7, 0.9)  # precisions that are asked for
_SHOWN, _GROUPS = 5, 15  # first labels of a document; groups of like scores, as in the model card


def believed(servable: AnyServable, report: Report) -> dict[str, object]:
    """Columns of a results file; empty for a model whose scores are no probabilities."""
    if not isinstance(servable, BlendServable) or servable.points is None:
        return {}
    found: dict[str, object] = {"ece_5": round(reliability(report, k=_SHOWN, n_groups=_GROUPS).error, 2)}
    found["reliability"] = by_band(report, servable.sources.counts)
    for target in TARGETS:
        try:
            threshold = servable.points.for_precision(target).threshold
        except ConfigError:  # no threshold was so precise on the hold-out
            found |= {f"precision_{target}": "", f"covered_{target}": ""}
            continue
        precision, error, covered = at_threshold(report, threshold)
        found |= {f"precision_{target}": f"{precision:.3f} ± {error:.3f}", f"covered_{target}": round(covered, 3)}
    return found


def at_threshold(report: Report, threshold: float) -> tuple[float, float, float]:
    """Precision of labels from a score on, its standard error over documents, and the share of documents covered."""
    given = (report.ids >= 0) & (report.scores >= threshold)
    hits, asked = (given & report.hit).sum(axis=1), given.sum(axis=1)
    precision = hits.sum() / max(asked.sum(), 1)
    error = np.sqrt(((hits - precision * asked) ** 2).sum()) / max(asked.sum(), 1)
    return float(precision), float(error), float((asked > 0).mean())


def by_band(report: Report, counts: np.ndarray) -> str:
    """What was said and what was right of the first labels, by their training documents `counts` (L,)."""
    ids, scores, hit = (values[:, :_SHOWN] for values in (report.ids, report.scores, report.hit))
    given = ids >= 0
    band, told = band_of(counts[ids[given]]), []
    for place, name in enumerate(BAND_NAMES):
        own = band == place
        if own.any():
            told.append(f"{name}: {own.sum()} said {scores[given][own].mean():.3f} right {hit[given][own].mean():.3f}")
    return "; ".join(told)
