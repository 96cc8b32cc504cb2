"""What a run of the ODMA paper's table with `paged` beside it says: how much of the gap between
paged and contiguous reservation is layout, how much capacity, and what bandwidth does to it.

All effects are logarithms of ratios of output tokens/s, taken in each replication (the same
requests and arrivals), then their mean with its interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from sweeps.experiments.sweep import label
from sweeps.papers.odma.paper_verdict import given
from sweeps.render.chart import Bar, Bars, Chart
from sweeps.reports.gap import CONTROL, pairs
from sweeps.reports.table import Group, Row, Table
from sweeps.reports.verdict import listed, percent
from sweeps.results.statistics import Interval, grown, interval, log_ratios

PAGED = "paged"
RATE, KV, KV_TIME, FLOPS = "throughput", "kv_gbps", "kv_time_share", "compute_share"
SAME = 0.01
"""Peak bandwidths that differ by less than this are equal (assumed)."""
DWARFS = 5.0
"""One effect makes a gap rather than another where it is more than this many times as large
(assumed)."""
BOUND = 0.05
"""Share of step time from which FLOPs are told to bind (assumed)."""
EFFICIENCY = "_efficiency"
"""How the paths end of numbers that say which share of its FLOPs an accelerator reaches."""
DEFINITIONS = (
    "Each effect is the natural logarithm of a ratio of output tokens/s in each replication, with "
    "its mean and 95 % interval: 0.10 is 10.5 % more, -0.10 is 9.5 % less.",
    "Gap: paged over the other on simulated memory. Capacity: the same gap under the analytic "
    "control, whose memory has one bandwidth wherever KV lies; what is left is how many requests "
    "fit at once, and work that is done again. Layout: the gap less capacity, so that the two add "
    "up to it.",
    "KV bandwidth: the part of layout that is seen directly. Where paged reads KV for the share a "
    "of its step time, at c GB/s, and the other reads at b GB/s, it is ln(1 - a + a c / b). The "
    "rest of layout is what else differs: prefill, migrations, and what small delays change in who "
    "is admitted and preempted when.",
    "Bandwidth: the gap on this card less the gap on the first.",
    "odma is the paper's, with a pool for each bucket.",
)


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


def paged_sentences(table: Table) -> list[str]:
    """What all data sets say together, then each card's effects, then what bandwidth does."""
    parts = [(_name(table, group), _cards(group)) for group in table.groups]
    found = []
    for name, cards in parts:
        found += [f"{name}, {card.title}: {_card(card, cards[0])}" for card in cards]
        found += [f"{name}: {text}." for text in _bandwidth(cards, _on(table))]
        found += [f"{name}, {text}." for text in _otherwise(table, cards)]
    everything = [each for _, cards in parts for each in _all(cards)]
    return [_in_short(everything), *found] if everything else found


def effect_rows(table: Table) -> tuple[list[str], list[list[str]]]:
    """(headings, rows): the effects, logarithms of ratios."""
    heads = ["data set", "card", "paged over", "gap", "capacity", "layout", "KV bandwidth",
             "bandwidth"]  # fmt: skip
    rows = []
    for group in table.groups:
        cards = _cards(group)
        for card in cards:
            for e in _effects(card, cards[0]):
                found = [_log(each) for each in (e.gap, e.capacity, e.layout, e.kv, e.bandwidth)]
                rows.append([_name(table, group), card.title, e.other, *found])
    return heads, rows


def policy_rows(table: Table) -> tuple[list[str], list[list[str]]]:
    """(headings, rows): what each policy does on each card."""
    heads = ["data set", "card", "policy", "output tokens/s", "analytic", "over the first card",
             "batch", "KV GB/s", "time reading KV", "FLOPs bind", "prefill"]  # fmt: skip
    rows = []
    for group in table.groups:
        cards = _cards(group)
        for card in cards:
            for policy in _policies(card):
                rate = card.main.interval(f"{RATE}.{policy}")
                plain = card.control and card.control.mean(f"{RATE}.{policy}")
                faster = None if card is cards[0] else _speedup(card, cards[0], policy)
                shares = [
                    f"{100 * card.mean(m, policy):.0f} %" for m in (KV_TIME, FLOPS, "prefill_share")
                ]
                rows.append([
                    _name(table, group), card.title, policy, _rate(rate),
                    "–" if plain is None else f"{plain:,.0f}",
                    "–" if faster is None else percent(faster.mapped(grown)),
                    *(f"{card.mean(m, policy):.0f}" for m in ("batch", KV)),
                    *shares,
                ])  # fmt: skip
    return heads, rows


def paged_charts(table: Table) -> Iterator[Chart]:
    """Capacity and layout of each gap as factors, a chart a data set."""
    for group in table.groups:
        cards = _cards(group)
        bars = [
            Bar(f"{card.title}: {e.other}: {name}", effect.mapped(math.exp), name == "layout")
            for card in cards for e in _effects(card, cards[0])
            for name, effect in (("capacity", e.capacity), ("layout", e.layout))
            if effect is not None
        ]  # fmt: skip
        if bars:
            title = f"{_name(table, group)}: factors of paged's output tokens/s over another's"
            yield Bars(title, bars, "Pale: layout. The product of the two is the whole.", 3)


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


def _all(cards: list[Card]) -> list[Effects]:
    return [each for card in cards for each in _effects(card, cards[0])]


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


def _in_short(found: list[Effects]) -> str:
    """Which of capacity and layout makes the gaps, in ranges over all of them."""
    known = [(e.capacity, e.layout) for e in found if e.capacity is not None and e.layout]
    if not known:
        return f"Without the {CONTROL} control this run does not say what layout does."
    capacities, layouts = [c for c, _ in known], [part for _, part in known]
    text = (
        f"What sets paged apart from contiguous reservation is {_which(capacities, layouts)}: over "
        f"{len(known)} pairs capacity moves its throughput by {_range(capacities)}, layout by "
        f"{_range(layouts)}, of which its KV's bandwidth by itself {_range([e.kv for e in found])}"
    )
    moved = [e.bandwidth for e in found if e.bandwidth is not None]
    if moved:
        text += f". Bandwidth moves the gaps by {_range(moved)}"
    return f"{text}."


def _which(capacities: list[Interval], layouts: list[Interval]) -> str:
    """The larger of the two at its largest, among those that are told apart from none."""
    capacity, layout = (
        max((abs(each.mean) for each in effects if each.sign), default=0.0)
        for effects in (capacities, layouts)
    )
    if capacity == layout == 0:
        return "undecided between capacity and layout"
    names = ("capacity", "layout") if capacity > layout else ("layout", "capacity")
    dwarfed = min(capacity, layout) * DWARFS < max(capacity, layout)
    return f"{names[0]}, not {names[1]}" if dwarfed else f"{names[0]} more than {names[1]}"


def _range(effects: list[Interval]) -> str:
    """Means from the least to the most, and how many intervals touch zero."""
    means = [100 * grown(each.mean) for each in effects]
    text = f"{min(means):+.1f} to {max(means):+.1f} %"
    undecided = sum(each.sign == 0 for each in effects)
    return f"{text} ({undecided} of {len(effects)} undecided)" if undecided else text


def _card(card: Card, first: Card) -> str:
    return f"paged serves {'; '.join(_told(each) for each in _effects(card, first))}."


def _told(e: Effects) -> str:
    if e.gap.sign == 0:
        text = f"neither more nor less than {e.other} for certain, {_percent(e.gap)}"
    else:
        text = f"{'more' if e.gap.sign > 0 else 'less'} than {e.other}, {_percent(e.gap)}"
    if e.capacity is None or e.layout is None:
        return text
    return f"{text}: capacity {_decided(e.capacity)}, layout {_decided(e.layout)}"


def _decided(effect: Interval) -> str:
    return _percent(effect) + ("" if effect.sign else ", undecided")


def _bandwidth(cards: list[Card], on: str) -> Iterator[str]:
    """Each later card against the first, then cards of one bandwidth and different memories."""
    for i, card in enumerate(cards[1:], 1):
        yield f"{card.title}, instead of {cards[0].title}: {_moved(card, cards[0], on)}"
        for other in cards[1:i]:
            if abs(card.gbps / other.gbps - 1) < SAME and card.memory != other.memory:
                yield (
                    f"{card.memory} instead of {other.memory}, both at {card.gbps:.0f} GB/s: "
                    f"{_moved(card, other, on)}"
                )


def _otherwise(table: Table, cards: list[Card]) -> Iterator[str]:
    """What capacity is under each control but the analytic one, against the best other policy; with
    another sign the answer hangs on what that control changes."""
    controls = table.config.get("controls") or {}
    base = controls.get(CONTROL, {})
    for name in (each for each in controls if each != CONTROL):
        told, turned = [], False
        for card in cards:
            if (found := _both_ways(card, name)) is not None:
                other, here, there = found
                turned |= here.sign != there.sign
                told.append(
                    f"{_decided(there)} over {other} on {card.title} (rather than {_decided(here)})"
                )
        if told:
            changed = listed(
                f"{path}={label(value)}"
                for path, value in controls[name].items()
                if base.get(path) != value
            )
            answer = "undecided: the answer changes with it; " if turned else ""
            yield f"{name} ({changed}): {answer}capacity is {listed(told)}"


def _both_ways(card: Card, name: str) -> tuple[str, Interval, Interval] | None:
    """(other, here, there): capacity over the best other policy, under the analytic control and
    under the one named."""
    if card.control is None or (there := card.controls.get(name)) is None:
        return None
    if not (among := _shared(card.control, there)):
        return None
    other = max((p for p in _policies(card) if p != PAGED), key=lambda p: card.mean(RATE, p))
    here = interval(_gaps(card.control, other, among))
    return other, here, interval(_gaps(there, other, among))


def _moved(card: Card, first: Card, on: str) -> str:
    """What the policies serve on one card rather than another, and what that does to the gaps."""
    faster = listed(f"{name} {_percent(_speedup(card, first, name))}" for name in _policies(card))
    gaps = listed(
        f"over {e.other} by {_decided(e.bandwidth)}"
        for e in _effects(card, first)
        if e.bandwidth is not None
    )
    text = f"throughput moves by {faster}, so that paged's gap moves {gaps}"
    bound = [name for name in _policies(card) if card.mean(FLOPS, name) >= BOUND]
    if not bound:
        return text
    flops = listed(f"{100 * card.mean(FLOPS, name):.0f} % of {name}'s" for name in bound)
    return f"{text}. FLOPs take longer than bytes for {flops} step time there{on}"


def _on(table: Table) -> str:
    """The assumed numbers that say how fast FLOPs are, on which the effect of bandwidth hangs."""
    names = {path for items in table.assumed.values() for path in items if EFFICIENCY in path}
    return f" (assumed: {listed(sorted(names))})" if names else ""


def _percent(found: Interval) -> str:
    sign = "+" if found.mean > 0 else ""
    return sign + percent(found.mapped(grown))


def _log(found: Interval | None) -> str:
    if found is None:
        return "–"
    if found.count < 2:
        return f"{found.mean:+.3f}"
    return f"{found.mean:+.3f} ({found.low:+.3f} to {found.high:+.3f})"


def _rate(found: Interval | None) -> str:
    if found is None:
        return "–"
    return f"{found.mean:,.0f}" + (f" ± {found.half:,.0f}" if found.count > 1 else "")
