"""Intervals from a few replications: Student's t, paired ratios, and families of comparisons."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from hwmodel.measure.student import LEVEL, t_quantile

_LARGEST_LOG = 700.0
Name = TypeVar("Name")


def nine_in_ten(errors: Iterable[float]) -> float:
    """The least of errors within which at least nine in ten of them lie."""
    ranked = sorted(errors)
    return ranked[math.ceil(0.9 * len(ranked)) - 1]


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
    def is_known(self) -> bool:
        """Whether the interval of what cannot be negative says something: not where it goes below
        zero."""
        return self.low >= 0

    def within(self, least: float, most: float = math.inf) -> Interval:
        """The interval cut to where its mean can lie: no time is below zero, no share above one. Of
        one value as it is."""
        if not math.isfinite(self.half):
            return self
        return self.mapped(lambda value: min(max(value, least), most))

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


def p_value(interval: Interval) -> float:
    """Probability of a mean so far from zero or farther were it zero, of an `interval` (not of what
    it was mapped to): Student's t, two-sided. 1 where one value or none says nothing."""
    from scipy.special import stdtr  # heavy

    if interval.count < 2 or not interval.mean:
        return 1.0
    if not interval.half:
        return 0.0
    t = abs(interval.mean) / interval.half * t_quantile(interval.count - 1)
    return float(2 * stdtr(interval.count - 1, -t))


def holm(p_values: Sequence[float]) -> list[float]:
    """p values adjusted for their number (Holm 1979, step-down): those at most 1 - `LEVEL` are
    significant with that error in the whole family."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, most = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        most = max(most, min((len(p_values) - rank) * p_values[i], 1.0))
        adjusted[i] = most
    return adjusted


def significant(p: float) -> bool:
    """Whether a p value is that of a difference, at `LEVEL`."""
    return p < 1 - LEVEL


def family_signs(family: Mapping[Name, Interval]) -> dict[Name, int]:
    """1 or -1 where a mean of the family differs from zero after Holm, else 0."""
    adjusted = holm([p_value(found) for found in family.values()])
    return {
        name: found.sign if significant(p) else 0
        for (name, found), p in zip(family.items(), adjusted, strict=True)
    }


def widened(interval: Interval, tests: int) -> Interval:
    """An `interval` that holds together with `tests - 1` others (Bonferroni)."""
    if interval.count < 2 or not interval.half:
        return interval
    freedom = interval.count - 1
    level = 1 - (1 - LEVEL) / max(tests, 1)
    half = interval.half * t_quantile(freedom, level) / t_quantile(freedom)
    return Interval(interval.mean, interval.mean - half, interval.mean + half, interval.count)


def farthest(interval: Interval) -> float:
    """The end that is farther from zero, without its sign."""
    return max(abs(interval.low), abs(interval.high))


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
