"""The confidence interval of a mean."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

_T975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
         2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
         2.052, 2.048, 2.045, 2.042)  # fmt: skip
"""Student's t, 97.5 %, by degrees of freedom from 1; 1.96 beyond the table."""


def confidence_interval(values: Sequence[float]) -> tuple[float, float | None]:
    """(mean, half width of its 95 % interval by Student's t); half width None below two values."""
    if not values:
        return 0.0, None
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, None
    t = _T975[len(values) - 2] if len(values) - 2 < len(_T975) else 1.96
    return mean, t * statistics.stdev(values) / math.sqrt(len(values))
