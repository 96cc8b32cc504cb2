"""The confidence interval of a mean."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from hwmodel.measure.student import t_quantile


def confidence_interval(values: Sequence[float]) -> tuple[float, float | None]:
    """(mean, half width of its 95 % interval by Student's t); half width None below two values."""
    if not values:
        return 0.0, None
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, None
    return mean, t_quantile(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
