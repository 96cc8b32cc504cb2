"""The confidence interval of a mean."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence


def confidence_interval(values: Sequence[float]) -> tuple[float, float | None]:
    """(mean, half width of its 95 % interval by Student's t); half width None below two values."""
    if not values:
        return 0.0, None
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, None
    from scipy.special import stdtrit  # heavy, and only needed where something was sampled

    t = float(stdtrit(len(values) - 1, 0.975))
    return mean, t * statistics.stdev(values) / math.sqrt(len(values))
