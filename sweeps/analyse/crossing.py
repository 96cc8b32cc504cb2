"""The rule of crossings: at which value of a number the lead of one over another changes sides.

The lead is a log ratio with its interval, known at a few values. Its mean crosses zero at a value,
and its two ends at others, between which the lead is not significant: these are the interval of the
crossing. All three are interpolated between the known values beside them; where a curve turns more
than once, its last turn counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from sweeps.analyse.statistics import Interval

Leads = Mapping[float, Interval]
"""Value -> the log ratio there, less what is sought."""


@dataclass(frozen=True)
class Crossing:
    """Where the mean changes its sign, and between which values it is undecided."""

    at: float
    low: float | None
    """None: from the least value on."""
    high: float | None
    """None: up to the most."""
    falls: bool
    """The first is ahead below, the second above."""

    def within(self, least: float, most: float, count: int) -> Interval:
        """As an interval over a range, whose ends stand for open ones."""
        low = least if self.low is None else self.low
        return Interval(self.at, low, most if self.high is None else self.high, count)


@dataclass(frozen=True)
class Edge:
    """Where a lead that does not cross becomes significant."""

    at: float
    above: bool
    """It is significant above, not below."""
    ahead: bool
    """The first is ahead there."""


def crossing(leads: Leads, log: bool) -> Crossing | None:
    """Where the mean crosses; None where it has one sign at both ends. log: interpolate over the
    logarithm of the values."""
    if (at := _turn({value: lead.mean for value, lead in leads.items()}, log)) is None:
        return None
    lows, highs = _ends(leads)
    falls = leads[min(leads)].mean > 0
    begin, end = (lows, highs) if falls else (highs, lows)
    return Crossing(at, _turn(begin, log), _turn(end, log), falls)


def edge(leads: Leads, log: bool) -> Edge | None:
    """From where on a lead that does not cross is significant; None where it is at both ends, or at
    neither."""
    for ahead, curve in zip((True, False), _ends(leads), strict=True):
        if (at := _turn(curve, log)) is not None:
            return Edge(at, (curve[max(curve)] > 0) == ahead, ahead)
    return None


def _ends(leads: Leads) -> tuple[dict[float, float], dict[float, float]]:
    """Low and high ends: above zero where the first is surely ahead, and where it may be."""
    low, high = ({value: getattr(lead, end) for value, lead in leads.items()}
                 for end in ("low", "high"))  # fmt: skip
    return low, high


def _turn(curve: Mapping[float, float], log: bool) -> float | None:
    """Where a curve last comes to the side on which it ends; None where it begins there."""
    points = sorted(curve.items())
    side = bool(points) and points[-1][1] > 0
    if not points or (points[0][1] > 0) == side:
        return None
    (a, before), (b, after) = [
        pair for pair in pairwise(points) if (pair[0][1] > 0) != side and (pair[1][1] > 0) == side
    ][-1]
    share = before / (before - after)
    return a * (b / a) ** share if log else a + (b - a) * share


def sure(leads: Leads, value: float, log: bool) -> bool:
    """Whether the lead at a value is significant, by the intervals at the known ones beside it."""
    a, b = next(ends for ends in pairwise(sorted(leads)) if ends[0] <= value <= ends[1])
    part = math.log(value / a) / math.log(b / a) if log else (value - a) / (b - a)
    low, high = (before + (after - before) * part for before, after in
                 ((leads[a].low, leads[b].low), (leads[a].high, leads[b].high)))  # fmt: skip
    return low > 0 or high < 0  # nan of one replication
