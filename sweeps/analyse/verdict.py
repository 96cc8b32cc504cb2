"""The outcome of a group: who serves the most (or reads KV fastest), by how much, and why."""

from __future__ import annotations

import math

from hwmodel.measure.student import t_quantile
from sweeps.analyse.facts import Gap, GroupOutcome, Verdict
from sweeps.analyse.figures import KV_RATE, KV_SHARE, THROUGHPUT
from sweeps.analyse.gap import binds, gap, pairs
from sweeps.analyse.statistics import Interval, relative_gap
from sweeps.analyse.table import Group, Row

MOST = 200
"""No more replications than this are sought."""


def judge(group: Group) -> Verdict:
    """The verdict on one group of results."""
    rows = [row for row in group.main() if row.values(THROUGHPUT)]
    reading = [row for row in group.main() if row.values(KV_RATE)]
    if not rows and len(reading) > 1:
        return _of_reads(group.title, reading)
    if len(rows) < 2:
        return Verdict(group.title, "alone", rows[0].name if rows else "")
    best = max(rows, key=lambda row: row.mean(THROUGHPUT) or 0.0)
    gaps = sorted((gap(group, best, row) for row in rows if row is not best), key=_size)
    close = [item for item in gaps if item.total.sign <= 0]
    return Verdict(
        group.title,
        "unbound" if not binds(best) else "undecided" if close else "won",
        best.name, best.mean(THROUGHPUT) or 0.0, gaps,
        limits=best.limits(),
        needed=_most([needed(item.total) for item in close]),
    )  # fmt: skip


def _of_reads(title: str, rows: list[Row]) -> Verdict:
    """Of the KV read of one batch, where nothing is served."""
    best = max(rows, key=lambda row: row.mean(KV_RATE) or 0.0)
    gaps = []
    for other in rows:
        among = pairs([best, other], KV_RATE)
        if other is not best and among:
            found = relative_gap(best.values(KV_RATE, among), other.values(KV_RATE, among))
            gaps.append(Gap(best.name, other.name, found))
    gaps.sort(key=_size)
    outcome: GroupOutcome = "undecided" if any(item.total.sign <= 0 for item in gaps) else "won"
    rate, share = best.mean(KV_RATE) or 0.0, best.mean(KV_SHARE)
    return Verdict(title, outcome, best.name, rate, gaps, reads=True, kv_share=share)


def _size(item: Gap) -> float:
    return item.total.mean


def _most(counts: list[int | None]) -> int | None:
    """The largest, None where one is not known."""
    known = [count for count in counts if count is not None]
    return max(known) if known and len(known) == len(counts) else None


def needed(total: Interval) -> int | None:
    """Replications that would resolve a relative gap if its mean and the deviation of its
    logarithms held; None where nothing is known, or more than `MOST` are needed."""
    if total.count < 2 or not math.isfinite(total.half) or not total.mean or total.low <= -1:
        return None
    mean, low, high = (math.log1p(end) for end in (total.mean, total.low, total.high))
    deviation = (high - low) / 2 * math.sqrt(total.count) / t_quantile(total.count - 1)
    counts = range(total.count + 1, MOST + 1)
    return next((n for n in counts if t_quantile(n - 1) * deviation < abs(mean) * n**0.5), None)
