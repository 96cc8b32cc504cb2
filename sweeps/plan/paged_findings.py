"""What a run of the ODMA paper's table with `paged` beside it found: layout, capacity, bandwidth.

All effects are logarithms of ratios of output tokens/s, taken in each replication (the same
requests and arrivals), then their mean with its interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from sweeps.analyse.gap import CONTROL, pairs
from sweeps.analyse.label import label
from sweeps.analyse.statistics import Interval, interval, log_ratios
from sweeps.analyse.table import Group, Row, Table
from sweeps.analyse.variants import overrides, with_role
from sweeps.plan.paper_findings import given

PAGED = "paged"


RATE, KV, KV_TIME, FLOPS = "throughput", "kv_gbps", "kv_time_share", "compute_share"


SAME = 0.01
"""Peak bandwidths that differ by less than this are equal (assumed)."""


BOUND = 0.05
"""Share of step time from which a policy is called compute-bound (assumed)."""


EFFICIENCY = "_efficiency"
"""How the paths end of numbers that say which share of its FLOPs an accelerator reaches."""


@dataclass(frozen=True)
class Card:
    """One memory under the accelerator: its results on simulated memory and under controls."""

    main: Row
    controls: dict[str, Row]
    """By name, those that have it."""

    @property
    def control(self) -> Row | None:
        return self.controls.get(CONTROL)

    @property
    def memory(self) -> str:
        found = [metrics.get("card.memory") for metrics in self.main.replications.values()]
        return str(found[0])

    @property
    def gbps(self) -> float:
        return self.main.mean("card.peak_gbps") or 0.0

    @property
    def title(self) -> str:
        return f"{self.memory}, {self.gbps:.0f} GB/s"

    def mean(self, metric: str, policy: str) -> float:
        return self.main.mean(f"{metric}.{policy}") or 0.0


def is_paged(table: Table) -> bool:
    """Whether paged is beside odma in a run of the paper's table."""
    return any(row.values(f"{RATE}.{PAGED}") for group in table.groups for row in group.main())


def _name(table: Table, group: Group) -> str:
    return str(given(table, group, "dataset").get("name", group.title))


def _cards(group: Group) -> list[Card]:
    rows = [row for row in group.rows if row.values(f"{RATE}.{PAGED}")]
    return [
        Card(main, {row.control: row for row in rows if row.control and row.name == main.name})
        for main in rows
        if not main.control
    ]


def _policies(card: Card) -> list[str]:
    metrics = next(iter(card.main.replications.values()))
    return [key.split(".", 1)[1] for key in metrics if key.startswith(f"{RATE}.")]


def _effects(card: Card, first: Card) -> list[Effects]:
    """Of paged over each other policy."""
    return [_over(card, first, name) for name in _policies(card) if name != PAGED]


def _over(card: Card, first: Card, other: str) -> Effects:
    among = pairs([card.main], f"{RATE}.{PAGED}")
    gap, kv = interval(_gaps(card.main, other, among)), interval(_by_kv(card.main, other, among))
    capacity = layout = bandwidth = None
    if card.control is not None and (both := _shared(card.main, card.control)):
        plain = _gaps(card.control, other, both)
        capacity, layout = interval(plain), _apart(_gaps(card.main, other, both), plain)
    if card is not first and (both := _shared(card.main, first.main)):
        bandwidth = _apart(_gaps(card.main, other, both), _gaps(first.main, other, both))
    return Effects(other, gap, capacity, layout, kv, bandwidth)


def _shared(one: Row, another: Row) -> list[int]:
    return pairs([one, another], f"{RATE}.{PAGED}")


def _gaps(row: Row, other: str, among: list[int]) -> list[float]:
    """ln(paged / other) in each replication."""
    return log_ratios(*(row.values(f"{RATE}.{name}", among) for name in (PAGED, other)))


def _by_kv(row: Row, other: str, among: list[int]) -> list[float]:
    """ln of what paged serves over what it would with its KV read at the other's bandwidth."""
    time = row.values(f"{KV_TIME}.{PAGED}", among)
    ours, theirs = (row.values(f"{KV}.{name}", among) for name in (PAGED, other))
    return [
        math.log(1 - share + share * mine / its)
        for share, mine, its in zip(time, ours, theirs, strict=True)
    ]


def _apart(ours: list[float], theirs: list[float]) -> Interval:
    return interval([a - b for a, b in zip(ours, theirs, strict=True)])


def _speedup(card: Card, first: Card, policy: str) -> Interval:
    """ln of what a policy serves on this card over the first."""
    among = _shared(card.main, first.main)
    return interval(log_ratios(*(c.main.values(f"{RATE}.{policy}", among) for c in (card, first))))


def _card_changes(table: Table, cards: list[Card]) -> Iterator[CardEffects]:
    """Each later card against the first, then cards of one bandwidth and different memories."""
    names = {path for items in table.assumed.values() for path in items if EFFICIENCY in path}
    for i, card in enumerate(cards[1:], 1):
        change = f"{card.title}, instead of {cards[0].title}"
        yield _card_effects(change, card, cards[0], sorted(names))
        for other in cards[1:i]:
            if abs(card.gbps / other.gbps - 1) < SAME and card.memory != other.memory:
                both = f"both at {card.gbps:.0f} GB/s"
                change = f"{card.memory} instead of {other.memory}, {both}"
                yield _card_effects(change, card, other, sorted(names))


def _card_effects(change: str, card: Card, first: Card, assumed: list[str]) -> CardEffects:
    effects = _effects(card, first)
    faster = {name: _speedup(card, first, name) for name in _policies(card)}
    gaps = {e.other: e.bandwidth for e in effects if e.bandwidth is not None}
    flops = {name: card.mean(FLOPS, name) for name in _policies(card)}
    bound = {name: part for name, part in flops.items() if part >= BOUND}
    return CardEffects(change, faster, gaps, bound, assumed)


def _other_controls(table: Table, cards: list[Card]) -> Iterator[OtherControl]:
    """Capacity under each control but the analytic one, over the best other policy."""
    controls = {name: overrides(v) for name, v in with_role(table.config, "control").items()}
    base = controls.get(CONTROL, {})
    for name in (each for each in controls if each != CONTROL):
        found = [each for card in cards if (each := _both_ways(card, name)) is not None]
        changed = [
            f"{path}={label(value)}"
            for path, value in controls[name].items()
            if base.get(path) != value
        ]
        if found:
            yield OtherControl(name, changed, found)


def _both_ways(card: Card, name: str) -> tuple[str, str, Interval, Interval] | None:
    """Capacity over the best other policy, as `OtherControl.capacities` has it."""
    if card.control is None or (there := card.controls.get(name)) is None:
        return None
    if not (among := _shared(card.control, there)):
        return None
    other = max((p for p in _policies(card) if p != PAGED), key=lambda p: card.mean(RATE, p))
    here = interval(_gaps(card.control, other, among))
    return card.title, other, here, interval(_gaps(there, other, among))


@dataclass(frozen=True)
class Effects:
    """Of paged over one other policy on one card; None where a run of it is missing."""

    other: str
    gap: Interval
    capacity: Interval | None
    layout: Interval | None
    kv: Interval
    bandwidth: Interval | None
    """None on the first card."""


@dataclass(frozen=True)
class CardEffects:
    """One card instead of another."""

    change: str
    """Which."""
    faster: dict[str, Interval]
    """By policy."""
    gaps: dict[str, Interval]
    """Of paged's gap, by other policy."""
    compute_bound: dict[str, float]
    """Policy -> share of its step time on the card, where that is not small."""
    assumed: list[str]
    """The assumed numbers that say how fast FLOPs are."""


@dataclass(frozen=True)
class OtherControl:
    """Capacity under a control besides the analytic one."""

    control: str
    changed: list[str]
    """What it changes, in words."""
    capacities: list[tuple[str, str, Interval, Interval]]
    """(card, other policy, capacity under the analytic control, under this one)."""
