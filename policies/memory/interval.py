"""Confidence intervals of means: of values whose number was fixed, and of those that were taken
until they lay close enough together.

Who stops where Student's interval has become narrow stops where the values happen to lie close
together, and that interval then covers the mean less often than it says (Starr, On the asymptotic
efficiency of a sequential procedure for estimating the mean, 1966, has tables of it): of normal
values, from two on and until 2 % are reached, in 87.7 % of cases at worst, where 95 are meant.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from hwmodel.measure.student import t_quantile

STOPPED = 0.985
"""Level of Student's interval that covers the mean of normal values in 95 % of cases, whatever they
spread, if they were taken, from two on, until the interval of 95 % was narrow or there were 32 or
100 of them (simulated; tests/policies/memory/test_interval.py)."""
STATED = 1.5
"""Times the half-width until which values are taken that the stated one may have: ±3 % of ±2 %."""


def stopped(half: float, count: int) -> float:
    """Half width of the 95 % interval of the mean of `count` values that were taken until `half`,
    that of `confidence_interval`, was narrow."""
    return half * t_quantile(count - 1, STOPPED) / t_quantile(count - 1)


def stated(mean: float, half: float, count: int, common: float) -> float:
    """Half width that is stated of a mean of `count` values: as they spread (`stopped`), and with
    what is common to all of them, a share of the mean."""
    return math.hypot(stopped(half, count), common * mean)


def confidence_interval(values: Sequence[float]) -> tuple[float, float | None]:
    """(mean, half width of its 95 % interval by Student's t); half width None below two values."""
    if not values:
        return 0.0, None
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, None
    return mean, t_quantile(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))


def ratio_interval(parts: Sequence[float], wholes: Sequence[float]) -> tuple[float, float | None]:
    """(sum of `parts` over that of `wholes`, half width of its 95 % interval), where both were
    drawn together: that of the wholes' share a part, by what each is off the mean one (Cochran,
    Sampling Techniques, 1977, 2.11). Half width None below two."""
    if not parts:
        return 0.0, None
    each = math.fsum(wholes) / math.fsum(parts)
    off = [whole - each * part for part, whole in zip(parts, wholes, strict=True)]
    half = confidence_interval(off)[1]
    share = 1 / each
    return share, None if half is None else share * half / statistics.fmean(wholes)
