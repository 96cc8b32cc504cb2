"""The outcome of a group: who serves the most (or reads KV fastest), by how much, and why."""

from __future__ import annotations

import math

from sweeps.analyse.facts import Gap, GroupOutcome, Verdict
from sweeps.analyse.figures import COMPUTE, KV_RATE, KV_SHARE, PREEMPTIONS_EACH, THROUGHPUT
from sweeps.analyse.gap import binds, gap, pairs
from sweeps.analyse.statistics import relative_gap
from sweeps.analyse.table import Group, Row

COMPUTES = 0.4
"""Compute evens competitors out where FLOPs bind for at least this share of step time (assumed)."""


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
    names = {best.name, *(item.other for item in close)}
    compute = min(row.mean(COMPUTE) or 0.0 for row in rows if row.name in names)
    return Verdict(
        group.title,
        "unbound" if not binds(best) else "undecided" if close else "won",
        best.name, best.mean(THROUGHPUT) or 0.0, gaps,
        limits=best.limits(),
        preemptions=best.mean(PREEMPTIONS_EACH) or 0.0,
        needed=max(map(_needed, close), default=0.0),
        compute=compute if compute >= COMPUTES else None,
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


def _needed(item: Gap) -> float:
    """Replications that would resolve it: the interval narrows with the root of their number."""
    total = item.total
    if not total.mean or not math.isfinite(total.half):
        return math.inf
    return total.count * (total.half / total.mean) ** 2
