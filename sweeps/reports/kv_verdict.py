"""Who reads the KV of one batch fastest, in a sentence; for sweeps of `measure: kv_read`."""

from __future__ import annotations

from sweeps.reports.gap import Gap, pairs
from sweeps.reports.table import Row
from sweeps.results.figures import KV_RATE, KV_SHARE
from sweeps.results.statistics import relative_gap


def gaps_of(rows: list[Row]) -> tuple[Row, list[Gap]]:
    """The fastest of `rows`, two or more, and how much faster it is than each other one."""
    best = max(rows, key=lambda row: row.mean(KV_RATE) or 0.0)
    found = []
    for other in rows:
        among = pairs([best, other], KV_RATE)
        if other is not best and among:
            gap = relative_gap(best.values(KV_RATE, among), other.values(KV_RATE, among))
            found.append(Gap(best, other, gap))
    return best, sorted(found, key=lambda item: item.total.mean)


def share_text(best: Row) -> str:
    """What the gaps can make of a step, where that is known."""
    share = best.mean(KV_SHARE)
    if share is None:
        return ""
    return f" Reading KV is {100 * share:.0f} % of the step, so of a gap that much is left there."
