"""One plain sentence a group: who wins, by how much, and whether layout or capacity decided it.

The `analytic` control serves the same requests with the same allocator, but its memory has no
banks: what remains of a gap there is capacity (how many requests fit), what it lacks is layout.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from sweeps.figures import KV_MEMORY, THROUGHPUT, limit_word
from sweeps.statistics import Interval, interval, relative_gap
from sweeps.table import Group, Row, Table

CONTROL = "analytic"
BINDS = 0.05
"""KV memory binds where it is the limit for at least this share of the time in some competitor."""
DOMINANT = 0.8
"""Share of a gap from which one cause has decided it."""


@dataclass(frozen=True)
class Rival:
    """The best competitor against another one: the gap, and its two parts where a control tells."""

    name: str
    gap: Interval
    capacity: Interval | None = None
    layout: Interval | None = None

    @property
    def cause(self) -> str:
        """`capacity`, `layout`, `both`, `unclear`, or `unknown` without a control."""
        if self.capacity is None or self.layout is None:
            return "unknown"
        capacity, layout = self.capacity.sign > 0, self.layout.sign > 0
        if capacity and layout:
            share = self.capacity.mean / (self.capacity.mean + self.layout.mean)
            if share >= DOMINANT:
                return "capacity"
            return "layout" if share <= 1 - DOMINANT else "both"
        if capacity:
            return "capacity"
        return "layout" if layout else "unclear"


@dataclass(frozen=True)
class Verdict:
    """A group's outcome (`won`, `undecided`, `unbound`, `alone`) and the sentence that says it."""

    title: str
    outcome: str
    best: str
    sentence: str
    rivals: list[Rival] = field(default_factory=list)


def judge(group: Group) -> Verdict:
    """The verdict on one group of results."""
    rows = [row for row in group.main() if row.values(THROUGHPUT)]
    if len(rows) < 2:
        only = rows[0].name if rows else ""
        sentence = f"{group.title}: nothing to compare yet."
        return Verdict(group.title, "alone", only, sentence)
    if max(row.limits().get(KV_MEMORY, 0.0) for row in rows) < BINDS:
        return Verdict(group.title, "unbound", "", _unbound(group.title, rows))
    best = max(rows, key=lambda row: _mean(row))
    rivals = [_rival(group, best, row) for row in rows if row is not best]
    rivals.sort(key=lambda rival: rival.gap.mean)
    close = [rival for rival in rivals if rival.gap.sign <= 0]
    behind = [rival for rival in rivals if rival.gap.sign > 0]
    if close:
        text = _undecided(best, close, behind)
        return Verdict(group.title, "undecided", "", f"{group.title}: {text}.", rivals)
    text = f"{best.name} wins with {_mean(best):,.1f} output tokens/s: {_ahead(behind)}"
    return Verdict(group.title, "won", best.name, f"{group.title}: {text}.", rivals)


def sentences(table: Table) -> list[str]:
    """One plain sentence a group."""
    return [judge(group).sentence for group in table.groups]


def _mean(row: Row) -> float:
    values = row.values(THROUGHPUT)
    return sum(values) / len(values)


def _paired(ours: Row, theirs: Row) -> list[int]:
    return sorted(set(ours.replications) & set(theirs.replications))


def _gaps(ours: Row, theirs: Row, among: list[int]) -> list[float]:
    pairs = zip(ours.values(THROUGHPUT, among), theirs.values(THROUGHPUT, among), strict=True)
    return [a / b - 1 for a, b in pairs]


def _rival(group: Group, best: Row, other: Row) -> Rival:
    among = _paired(best, other)
    if not among:
        return Rival(other.name, Interval(0.0, math.inf, 0))
    gap = relative_gap(best.values(THROUGHPUT, among), other.values(THROUGHPUT, among))
    control = group.control(CONTROL)
    if best.name not in control or other.name not in control:
        return Rival(other.name, gap)
    ours, theirs = control[best.name], control[other.name]
    among = [r for r in among if r in ours.replications and r in theirs.replications]
    if not among:
        return Rival(other.name, gap)
    capacity = _gaps(ours, theirs, among)
    layout = [a - b for a, b in zip(_gaps(best, other, among), capacity, strict=True)]
    return Rival(other.name, gap, interval(capacity), interval(layout))


def _ahead(behind: list[Rival]) -> str:
    """By how much, and why, the best is ahead of those behind."""
    text = _listed(
        f"{_percent(rival.gap)} more than {rival.name}{_because(rival)}" for rival in behind
    )
    if any(rival.cause == "unknown" for rival in behind):
        text += f"; without the {CONTROL} control beside it, this run does not say why"
    return text


def _because(rival: Rival) -> str:
    if rival.capacity is None or rival.layout is None:
        return ""
    beside = f"with analytic memory the gap is {rival.capacity.mean:+.1%}"
    points = f"{100 * rival.layout.mean:+.1f} points"
    match rival.cause:
        case "capacity" if rival.layout.sign < 0:
            return f", by capacity, against the memory layout ({beside}, layout {points})"
        case "capacity":
            return f", decided by capacity ({beside})"
        case "layout" if rival.capacity.sign < 0:
            return f", by memory layout, against capacity ({beside}, layout {points})"
        case "layout":
            return f", decided by memory layout ({beside})"
        case "both":
            return f", by capacity and memory layout both ({beside}, layout {points})"
    return f", too little to tell capacity from memory layout ({beside}, layout {points})"


def _undecided(best: Row, close: list[Rival], behind: list[Rival]) -> str:
    names = _listed([best.name, *(rival.name for rival in close)])
    if any(rival.gap.count < 2 for rival in close):
        return f"undecided between {names}: one replication gives no interval"
    apart = _listed(f"{best.name} against {r.name} {_percent(r.gap)}" for r in close)
    text = f"undecided between {names}: the difference may be zero ({apart})"
    if behind:
        text += f"; {best.name} serves {_ahead(behind)}"
    return text


def _unbound(title: str, rows: list[Row]) -> str:
    most = max(row.limits().get(KV_MEMORY, 0.0) for row in rows)
    mean: dict[str, float] = {}
    for row in rows:
        for name, share in row.limits().items():
            mean[name] = mean.get(name, 0.0) + share / len(rows)
    mean.pop(KV_MEMORY, None)
    instead = ""
    if mean:
        name = max(mean, key=lambda key: mean[key])
        instead = f"; {limit_word(name)} was the limit for {mean[name]:.0%}"
    names = _listed(row.name for row in rows)
    return (
        f"{title}: KV memory did not bind (at most {most:.0%} of the time{instead}), "
        f"so this run does not choose between {names}."
    )


def _percent(gap: Interval) -> str:
    return f"{100 * gap.mean:.1f} % ({100 * gap.low:.1f} to {100 * gap.high:.1f})"


def _listed(items: object) -> str:
    words = list(items)  # type: ignore[call-overload]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
