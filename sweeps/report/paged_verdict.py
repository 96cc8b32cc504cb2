"""A run of the ODMA paper's table with `paged` beside it: how much of the gap between paged and
contiguous reservation is layout, how much capacity, and what bandwidth does to it.

All effects are logarithms of ratios of output tokens/s, taken in each replication (the same
requests and arrivals), then their mean with its interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from sweeps.analyse.figures import Figure
from sweeps.analyse.statistics import Interval, grown
from sweeps.analyse.table import Table
from sweeps.plan.paged_findings import (
    FLOPS,
    KV,
    KV_TIME,
    RATE,
    _cards,
    _effects,
    _name,
    _policies,
    _speedup,
    effects,
)
from sweeps.report.chart import Bar, Bars, Chart
from sweeps.report.formats import NONE, between, gain, mean_text, share

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
    "Bandwidth: the gap on this card less the gap on the first. Capacity under another control has"
    " a column of its own.",
)


def effect_rows(table: Table) -> tuple[list[str], list[list[str]]]:
    """(headings, rows): the effects, logarithms of ratios."""
    heads = ["data set", "card", "paged over", "gap", "capacity", "layout", "KV bandwidth",
             "bandwidth"]  # fmt: skip
    controls = list(dict.fromkeys(name for each in effects(table) for name in each.others))
    rows = []
    for group in table.groups:
        cards = _cards(group)
        for card in cards:
            for e in _effects(_name(table, group), card, cards[0]):
                found = [_log(each) for each in (e.gap, e.capacity, e.layout, e.kv, e.bandwidth)]
                found += [_log(e.others.get(name)) for name in controls]
                rows.append([_name(table, group), card.title, e.other, *found])
    return [*heads, *(f"capacity, {name}" for name in controls)], rows


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
                plain = card.control.mean(f"{RATE}.{policy}") if card.control else None
                faster = None if card is cards[0] else _speedup(card, cards[0], policy)
                shares = [share(card.mean(m, policy)) for m in (KV_TIME, FLOPS, "prefill_share")]
                rows.append([
                    _name(table, group), card.title, policy, _rate(rate),
                    mean_text(plain, 0),
                    NONE if faster is None else gain(faster.mapped(grown)),
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
            for card in cards for e in _effects(_name(table, group), card, cards[0])
            for name, effect in (("capacity", e.capacity), ("layout", e.layout))
            if effect is not None
        ]  # fmt: skip
        if bars:
            title = f"{_name(table, group)}: factors of paged's output tokens/s over another's"
            yield Bars(title, bars, "Pale: layout. The product of the two is the whole.", 3)


def _log(found: Interval | None) -> str:
    if found is None:
        return NONE
    return between(found, "{:+.3f}".format)


def _rate(found: Interval | None) -> str:
    if found is None:
        return NONE
    return Figure("", "", 0).interval_text(found)
