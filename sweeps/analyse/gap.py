"""The gap between two competitors: how large it is, what memory layout makes of it, and the rest.

The `analytic` control serves the same requests with the same allocator, but its memory has no
banks. Layout's part is the gap less the gap that remains there; the rest is not layout, and the
metrics of the two say what it is.
"""

from __future__ import annotations

import math

from sweeps.analyse.facts import Cause, Gap, Reference
from sweeps.analyse.figures import (
    KV_MEMORY,
    KV_SLOTS,
    PREEMPTIONS_EACH,
    PREFILL,
    REFERENCE,
)
from sweeps.analyse.objective import Objective
from sweeps.analyse.statistics import Interval, grown, interval
from sweeps.analyse.table import Group, Row
from sweeps.analyse.variants import ANALYTIC

CONTROL = ANALYTIC
FEWER = 0.9
"""Fewer requests fit where the mean batch is below this share of the other's (assumed)."""
RECOMPUTES = 0.05
"""Preemptions a request from which recompute is a reason (assumed)."""
BINDS = 0.05
"""KV memory binds where it is the limit for at least this share of the time (assumed)."""
PREEMPTS = 0.01
"""... or where requests are preempted at least so often each (assumed)."""
FREE = 0.05
"""Holes and the head of the line are a reason from this share of KV memory (assumed)."""
UNKNOWN = Interval(0.0, -math.inf, math.inf, 0)


def binds(row: Row) -> bool:
    """Whether KV memory limited this competitor."""
    preempted = row.mean(PREEMPTIONS_EACH) or 0.0
    return row.limits().get(KV_MEMORY, 0.0) >= BINDS or preempted >= PREEMPTS


def gap(group: Group, best: Row, other: Row) -> Gap:
    """`best` against `other` of the group, over the replications that both have."""
    objective, control = group.objective, group.control(CONTROL)
    found, analytic, layout = advantage(best, other, objective), None, None
    if found.count and best.name in control and other.name in control:
        both = control[best.name], control[other.name]
        analytic, layout = _parts(best, other, *both, objective)
    why = causes(best, other) if objective.is_rate else []
    return Gap(best.name, other.name, found.mapped(grown), analytic, layout, why)


def advantage(best: Row, other: Row, objective: Objective) -> Interval:
    """Logarithm of how much better one is, over the replications that both have."""
    metric = objective.metric
    if not (among := pairs([best, other], metric)):
        return UNKNOWN
    return interval(objective.advantages(best.values(metric, among), other.values(metric, among)))


def _parts(
    best: Row, other: Row, ours: Row, theirs: Row, objective: Objective
) -> tuple[Interval | None, Interval | None]:
    """(the gap in the control, layout's part of the whole)."""
    metric = objective.metric
    if not (among := pairs([best, other, ours, theirs], metric)):
        return None, None
    main, plain = (
        objective.advantages(a.values(metric, among), b.values(metric, among))
        for a, b in ((best, other), (ours, theirs))
    )
    analytic = interval(plain).mapped(grown)
    layout = interval([a - b for a, b in zip(main, plain, strict=True)]).mapped(grown)
    # (1 + total) = (1 + analytic) (1 + layout): in points of the whole, layout's factor times base
    return analytic, layout.mapped(lambda part: (1 + analytic.mean) * part)


def causes(best: Row, other: Row) -> list[Cause]:
    """What of the gap is not layout: reservation, recompute or both, else load or steps."""

    def both(metric: str) -> tuple[float, float]:
        return other.mean(metric) or 0.0, best.mean(metric) or 0.0

    found: list[Cause] = []
    batch, used, prefill = both("batch"), both("utilization"), both(PREFILL)
    if batch[0] < FEWER * batch[1] and used[0] < used[1]:
        found.append("reservation")
    if (other.mean(PREEMPTIONS_EACH) or 0.0) >= RECOMPUTES and prefill[0] > prefill[1]:
        found.append("recompute")
    holes, blocked = (
        other.mean(f"{KV_SLOTS}.{state}") or 0.0 for state in ("holes", "head_of_line")
    )
    if holes + blocked >= FREE and holes > 0:
        found.append("slots")
    if found:
        return found
    limits = other.limits()
    main = max(limits, key=lambda name: limits[name], default=KV_MEMORY)
    return ["steps" if main == KV_MEMORY else "load"]


def references(group: Group) -> list[Reference]:
    """The group's references against its competitors: in the analytic control where they ran in
    it, as references then do."""
    control = group.control(CONTROL)
    rows = list(control.values()) or group.main()
    found = []
    for name, row in group.control(REFERENCE).items():
        each = {other.name: advantage(row, other, group.objective) for other in rows}
        gains = {other: gain.mapped(grown) for other, gain in each.items() if gain.count}
        if gains:
            found.append(Reference(group.title, name, gains, bool(control)))
    return found


def pairs(rows: list[Row], metric: str) -> list[int]:
    """Replications in which all of them have a metric above zero."""
    found = set(rows[0].replications)
    for row in rows:
        found &= {r for r in row.replications if any(v > 0 for v in row.values(metric, [r]))}
    return sorted(found)
