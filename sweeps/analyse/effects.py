"""The rule of effects: what changes do to a rate, or to the ratio of two.

A rate is looked at in logarithms, replication by replication: what a change does is a difference of
logarithms on the same requests, and several differences add up.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sweeps.analyse.statistics import Interval, family_signs, interval
from sweeps.analyse.table import Row

Logs = dict[int, float]
"""Replication -> natural logarithm of a rate, or of the ratio of two."""


def logs_of(row: Row, metric: str) -> Logs:
    """Of a metric, in the replications that have it above zero."""
    found = ((r, row.values(metric, [r])) for r in sorted(row.replications))
    return {r: math.log(values[0]) for r, values in found if values and values[0] > 0}


def weighted(parts: Iterable[tuple[int, Logs]]) -> Logs:
    """A weighted sum in the replications that all of the parts have."""
    parts = list(parts)
    common = sorted(set.intersection(*(set(logs) for _, logs in parts)))
    return {r: math.fsum(weight * logs[r] for weight, logs in parts) for r in common}


def less(ours: Logs, theirs: Logs) -> Logs:
    """Logarithm of the ratio of two."""
    return weighted([(1, ours), (-1, theirs)])


def mean(logs: Logs) -> Interval | None:
    """Of the replications; None where there is none."""
    return interval([*logs.values()]) if logs else None


@dataclass(frozen=True)
class Sensitivity:
    """What changes do to one rate, or to the ratio of two."""

    subject: str
    levels: dict[str, Interval]
    """By change, and as described: means of the rate, or log ratios."""
    effects: dict[str, Interval]
    """By change: logarithm of the level with the change over the level without."""
    base: str
    """What the levels as described are under."""

    @property
    def signs(self) -> dict[str, int]:
        """Of the effects of all changes as one family: 1 or -1, 0 where not significant."""
        return family_signs(self.effects)

    @property
    def sides(self) -> dict[str, int]:
        """Of log ratios with all changes as one family: who is ahead, 0 where not significant."""
        return family_signs({n: e for n, e in self.levels.items() if n != self.base})


def sensitivity(
    subject: str, series: Mapping[str, Logs], base: str, apart: Collection[str] = (),
    rates: bool = False,
) -> Sensitivity:  # fmt: skip
    """What changes do to a subject, whose logarithms are given by change and under `base`. apart:
    changes that have a level but no effect. rates: levels are rates, not log ratios."""
    effects = {
        change: found
        for change, logs in series.items()
        if change not in (base, *apart) and (found := mean(less(logs, series[base]))) is not None
    }
    levels = {change: [*logs.values()] for change, logs in series.items() if logs}
    return Sensitivity(
        subject, {name: interval(_exp(each) if rates else each) for name, each in levels.items()},
        effects, base,
    )  # fmt: skip


def _exp(logs: Sequence[float]) -> list[float]:
    return list(map(math.exp, logs))
