"""Intervals from a few replications: Student's t, and paired ratios."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hwmodel.measure.student import t_quantile

_LARGEST_LOG = 700.0
FEW = 5
"""Replications below which an interval wider than its mean is not shown (assumed)."""


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

    @property
    def told(self) -> bool:
        """Whether the interval of what cannot be negative says something: not where fewer than
        `FEW` values leave it wider than the mean, or where it goes below zero."""
        width = self.high - self.low
        return self.low >= 0 and (self.count >= FEW or width <= self.mean)

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
