"""The gap between two competitors: how large it is, what memory layout makes of it, and the rest.

The `analytic` control serves the same requests with the same allocator, but its memory has no
banks. Layout's part is the gap less the gap that remains there; the rest is not layout, and the
metrics of the two say what it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sweeps.reports.table import Group, Row
from sweeps.results.figures import KV_MEMORY, PREEMPTIONS_EACH, PREFILL, THROUGHPUT
from sweeps.results.statistics import Interval, grown, interval, log_ratios, relative_gap

CONTROL = "analytic"
FEWER = 0.9
"""Fewer requests fit where the mean batch is below this share of the other's (assumed)."""
RECOMPUTES = 0.05
"""Preemptions a request from which recompute is a reason (assumed)."""
UNKNOWN = Interval(0.0, -math.inf, math.inf, 0)


@dataclass(frozen=True)
class Gap:
    """`best` against `other`. All intervals are relative to the other's throughput: 0.8 is 80 %."""

    best: Row
    other: Row
    total: Interval
    analytic: Interval | None = None
    """The gap in the control; None where there is no control for both."""
    layout: Interval | None = None
    """The total less the analytic gap."""

    @property
    def name(self) -> str:
        return self.other.name

    @property
    def rest_counts(self) -> bool:
        """Whether something besides memory layout puts the best ahead, as far as is known."""
        return self.analytic is None or self.analytic.sign > 0

    @property
    def causes(self) -> list[str]:
        """What the rest is: `reservation`, `recompute`, both, or else `load` or `compute`."""
        found = []
        if self.lower("batch", FEWER) and self.lower("utilization"):
            found.append("reservation")
        preempted = self.other.mean(PREEMPTIONS_EACH) or 0.0
        if preempted >= RECOMPUTES and self.higher(PREFILL):
            found.append("recompute")
        if found:
            return found
        limits = self.other.limits()
        main = max(limits, key=lambda name: limits[name], default=KV_MEMORY)
        return ["compute" if main == KV_MEMORY else "load"]

    def lower(self, metric: str, share: float = 1.0) -> bool:
        """Whether the other's metric is below `share` of the best's."""
        ours, theirs = self.best.mean(metric), self.other.mean(metric)
        return ours is not None and theirs is not None and theirs < share * ours

    def higher(self, metric: str) -> bool:
        """Whether the other's metric is above the best's."""
        ours, theirs = self.best.mean(metric), self.other.mean(metric)
        return ours is not None and theirs is not None and theirs > ours


def gap(group: Group, best: Row, other: Row) -> Gap:
    """`best` against `other` of the group, over the replications that both have."""
    among = pairs([best, other])
    if not among:
        return Gap(best, other, UNKNOWN)
    total = relative_gap(best.values(THROUGHPUT, among), other.values(THROUGHPUT, among))
    control = group.control(CONTROL)
    if best.name not in control or other.name not in control:
        return Gap(best, other, total)
    ours, theirs = control[best.name], control[other.name]
    among = pairs([best, other, ours, theirs])
    if not among:
        return Gap(best, other, total)
    main = _log_ratios(best, other, among)
    plain = _log_ratios(ours, theirs, among)
    analytic = interval(plain).mapped(grown)
    layout = interval([a - b for a, b in zip(main, plain, strict=True)]).mapped(grown)
    # (1 + total) = (1 + analytic) (1 + layout): in points of the whole, layout's factor times base
    points = layout.mapped(lambda part: (1 + analytic.mean) * part)
    return Gap(best, other, total, analytic, points)


def _log_ratios(ours: Row, theirs: Row, among: list[int]) -> list[float]:
    return log_ratios(ours.values(THROUGHPUT, among), theirs.values(THROUGHPUT, among))


def pairs(rows: list[Row], metric: str = THROUGHPUT) -> list[int]:
    """Replications in which all of them have a metric above zero."""
    found = set(rows[0].replications)
    for row in rows:
        found &= {r for r in row.replications if any(v > 0 for v in row.values(metric, [r]))}
    return sorted(found)
