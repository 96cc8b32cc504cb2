"""Percentiles of a figure over the requests of a run, such as a latency."""

from __future__ import annotations

import numpy as np

from policies.requests.requests import FloatArray

PERCENTILES = (50, 90, 99)
POINTS = 101
"""Points of a quantile function: 0 %, 1 %, ... 100 %."""
_DIGITS = 5


def summary(values: FloatArray) -> dict[str, float | None]:
    """Mean and percentiles, None of no values: nothing that moved has no mean."""
    if not len(values):
        return dict.fromkeys(("mean", *(f"p{share}" for share in PERCENTILES)))
    points = np.percentile(values, PERCENTILES)
    named = {f"p{share}": float(point) for share, point in zip(PERCENTILES, points, strict=True)}
    return {"mean": float(values.mean()), **named}


def quantiles(values: FloatArray) -> list[float]:
    """The quantile function at `POINTS` even shares; empty without values."""
    if not len(values):
        return []
    points = np.quantile(values, np.linspace(0.0, 1.0, POINTS))
    return [float(f"{point:.{_DIGITS}g}") for point in points]
