"""What a run of the ODMA paper's table with `paged` beside it found: layout, capacity, bandwidth.

All effects are logarithms of ratios of output tokens/s, taken in each replication (the same
requests and arrivals), then their mean with its interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sweeps.analyse.effects import Logs, less, logs_of, mean
from sweeps.analyse.gap import CONTROL
from sweeps.analyse.statistics import Interval, interval
from sweeps.analyse.table import Group, Row, Table
from sweeps.plan.paper_findings import DatasetResult, dataset_results, given

PAGED = "paged"


RATE, KV, KV_TIME, FLOPS = "throughput", "kv_gbps", "kv_time_share", "compute_share"
BATCH, PREFILL = "batch", "prefill_share"
"""Metrics of each policy."""


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


@dataclass(frozen=True)
class Effects:
    """Of paged over one other policy on one card; None where a run of it is missing."""

    name: str
    """The data set, and the assumption where there are several."""
    other: str
    gap: Interval
    capacity: Interval | None
    layout: Interval | None
    kv: Interval
    bandwidth: Interval | None
    """None on the first card."""
    others: dict[str, Interval]
    """Capacity under each other control that ran."""


@dataclass(frozen=True)
class OnCard:
    """What one policy does on one card."""

    policy: str
    rate: Interval | None
    """Output tokens/s."""
    analytic: float | None
    """The same on memory without banks."""
    faster: Interval | None
    """ln of the rate over that on the first card; None there."""
    means: dict[str, float]
    """By metric."""


@dataclass(frozen=True)
class CardFindings:
    """One card on one data set."""

    name: str
    """The data set, and the assumption where there are several."""
    card: str
    effects: list[Effects]
    policies: list[OnCard]


@dataclass(frozen=True)
class PaperTable:
    """What a run of the paper's table found."""

    datasets: list[DatasetResult]
    cards: list[CardFindings]
    """Where paged is beside odma; then there are no data sets."""


def paper_table(table: Table) -> PaperTable:
    """What is found on each data set, or what paged is beside odma on each card."""
    if any(row.values(f"{RATE}.{PAGED}") for group in table.groups for row in group.main()):
        return PaperTable([], cards(table))
    return PaperTable(dataset_results(table), [])


def _name(table: Table, group: Group) -> str:
    """The data set, and the assumption where there are several."""
    axes = [axis for axis in ("dataset", "assumption") if axis in group.others]
    names = [given(table, group, axis).get("name") for axis in axes]
    return ", ".join(map(str, filter(None, names))) or group.title


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


def _effects(name: str, card: Card, first: Card) -> list[Effects]:
    """Of paged over each other policy; name: of the group."""
    return [_over(name, card, first, other) for other in _policies(card) if other != PAGED]


def _over(name: str, card: Card, first: Card, other: str) -> Effects:
    gap, kv = _gap(card.main, other), _by_kv(card.main, other)
    plain = {} if card.control is None else _gap(card.control, other)
    both = {r: plain[r] for r in plain if r in gap}
    others = {
        control: found
        for control, row in card.controls.items()
        if control != CONTROL and (found := mean(_gap(row, other))) is not None
    }
    return Effects(
        name, other, interval([*gap.values()]), mean(both), mean(less(gap, plain)),
        interval([*kv.values()]),
        None if card is first else mean(less(gap, _gap(first.main, other))), others,
    )  # fmt: skip


def _gap(row: Row, other: str) -> Logs:
    """ln(paged / other) in each replication."""
    return less(*(logs_of(row, f"{RATE}.{name}") for name in (PAGED, other)))


def _by_kv(row: Row, other: str) -> Logs:
    """ln of what paged serves over what it would with its KV read at the other's bandwidth."""
    faster = less(*(logs_of(row, f"{KV}.{name}") for name in (PAGED, other)))
    times = {r: row.values(f"{KV_TIME}.{PAGED}", [r]) for r in _gap(row, other)}
    return {r: math.log(1 - time[0] + time[0] * math.exp(faster[r])) for r, time in times.items()}


def _speedup(card: Card, first: Card, policy: str) -> Interval | None:
    """ln of what a policy serves on this card over the first."""
    return mean(less(*(logs_of(each.main, f"{RATE}.{policy}") for each in (card, first))))


def cards(table: Table) -> list[CardFindings]:
    """Of all data sets, the first card of each first."""
    groups = [(_name(table, group), _cards(group)) for group in table.groups]
    return [
        CardFindings(
            name, card.title, _effects(name, card, own[0]),
            [_on_card(card, own[0], policy) for policy in _policies(card)],
        )
        for name, own in groups for card in own
    ]  # fmt: skip


def _on_card(card: Card, first: Card, policy: str) -> OnCard:
    return OnCard(
        policy, card.main.interval(f"{RATE}.{policy}"),
        card.control.mean(f"{RATE}.{policy}") if card.control else None,
        None if card is first else _speedup(card, first, policy),
        {metric: card.mean(metric, policy) for metric in (BATCH, KV, KV_TIME, FLOPS, PREFILL)},
    )  # fmt: skip
