"""The propensity constants (A, B) used in the literature for a data set, by its name.

Knows the table of the Extreme Classification Repository, not what the constants are used for.
"""

from __future__ import annotations

DEFAULT_PROPENSITY = (0.55, 1.5)

_AMAZON = (0.6, 2.6)
_WIKIPEDIA = (0.5, 0.4)

_TABLE = {
    "amazon-670k": _AMAZON,
    "amazon-3m": _AMAZON,
    "amazontitles-670k": _AMAZON,
    "amazontitles-3m": _AMAZON,
    "lf-amazon-131k": _AMAZON,
    "lf-amazontitles-131k": _AMAZON,
    "lf-amazontitles-1.3m": _AMAZON,
    "wikilshtc-325k": _WIKIPEDIA,
    "wikipedia-500k": _WIKIPEDIA,
    "wikititles-500k": _WIKIPEDIA,
    "lf-wikipedia-500k": _WIKIPEDIA,
    "lf-wikititles-500k": _WIKIPEDIA,
}


def propensity_of(name: str) -> tuple[float, float]:
    """(A, B) by data-set name, ignoring case and dashes; (0.55, 1.5) for sets not in the table."""
    return _TABLE.get(name.lower().replace("_", "-"), DEFAULT_PROPENSITY)
