"""Intervals from a few replications: Student's t, and paired ratios."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

LEVEL = 0.95
"""Confidence of every interval that is reported."""
_LARGEST_LOG = 700.0
_TINY = 1e-300
_BETA_TOLERANCE = 1e-14


@dataclass(frozen=True)
class Interval:
    """A mean and the ends of its interval, which are infinite for fewer than two values."""

    mean: float
    low: float
    high: float
    count: int

    @property
    def half(self) -> float:
        """Half of its width."""
        return (self.high - self.low) / 2

    @property
    def sign(self) -> int:
        """1 or -1 where the whole interval is on that side of zero, 0 where it straddles it."""
        if self.low > 0:
            return 1
        return -1 if self.high < 0 else 0

    def mapped(self, rising: Callable[[float], float]) -> Interval:
        """The interval of a rising function of what this one bounds."""
        return Interval(rising(self.mean), rising(self.low), rising(self.high), self.count)


def interval(values: Sequence[float]) -> Interval:
    """Mean of independent `values` with its Student-t interval at `LEVEL`."""
    count = len(values)
    if count == 0:
        raise ValueError("no values")
    mean = math.fsum(values) / count
    if count == 1:
        return Interval(mean, -math.inf, math.inf, 1)
    half = t_quantile(count - 1) * math.sqrt(_variance(values) / count)
    return Interval(mean, mean - half, mean + half, count)


def log_ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """ln(ours / theirs) of each replication; all of them must be above zero."""
    return [math.log(a / b) for a, b in zip(ours, theirs, strict=True)]


def relative_gap(ours: Sequence[float], theirs: Sequence[float]) -> Interval:
    """Interval of `ours / theirs - 1`, paired by replication: of the geometric mean of the ratios.

    In logarithms twice as much and half as much are equally far from none, so that one noisy
    replication widens the interval without carrying it below -100 %.
    """
    return interval(log_ratios(ours, theirs)).mapped(grown)


def difference(ours: Sequence[float], theirs: Sequence[float]) -> Interval:
    """Interval of the difference of two means of values that do not pair (Welch 1947): degrees of
    freedom after Satterthwaite, rounded down."""
    mean = math.fsum(ours) / len(ours) - math.fsum(theirs) / len(theirs)
    count = min(len(ours), len(theirs))
    if count < 2:
        return Interval(mean, -math.inf, math.inf, count)
    parts = [(_variance(values) / len(values), len(values)) for values in (ours, theirs)]
    whole = math.fsum(part for part, _ in parts)
    if whole == 0:
        return Interval(mean, mean, mean, count)
    freedom = whole**2 / math.fsum(part**2 / (n - 1) for part, n in parts)
    half = t_quantile(max(int(freedom), 1)) * math.sqrt(whole)
    return Interval(mean, mean - half, mean + half, count)


def _variance(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def grown(log_ratio: float) -> float:
    """exp(log_ratio) - 1, infinite where it is too large for a float."""
    return math.expm1(log_ratio) if log_ratio < _LARGEST_LOG else math.inf


@lru_cache(maxsize=256)
def t_quantile(freedom: int, level: float = LEVEL) -> float:
    """The t with `level` of Student's distribution between -t and t, by bisection."""
    if freedom < 1:
        raise ValueError(f"expected at least 1 degree of freedom; got {freedom}")
    low, high = 0.0, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        if _within(middle, freedom) < level:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _within(t: float, freedom: int) -> float:
    """P(|T| <= t) = 1 - I_x(freedom / 2, 1 / 2) with x = freedom / (freedom + t^2)."""
    return 1 - _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    front = a * math.log(x) + b * math.log1p(-x)
    front -= math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    return math.exp(front) / (a * _beta_fraction(a, b, x))


def _beta_fraction(a: float, b: float, x: float) -> float:
    """The continued fraction 1 + d1 / (1 + d2 / (1 + ...)) of I_x, by ratios of convergents."""
    value, numerator, denominator = 1.0, 1.0, 0.0
    for step in range(1, 500):
        m = step // 2
        if step % 2:
            d = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            d = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        numerator = 1 + d / numerator or _TINY
        denominator = 1 / (1 + d * denominator or _TINY)
        factor = numerator * denominator
        value *= factor
        if abs(factor - 1) < _BETA_TOLERANCE:
            break
    return value
