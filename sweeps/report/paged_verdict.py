"""A run of the ODMA paper's table with `paged` beside it: how much of the gap between paged and
contiguous reservation is layout, how much capacity, and what bandwidth does to it.

All effects are logarithms of ratios of output tokens/s, taken in each replication (the same
requests and arrivals), then their mean with its interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from sweeps.analyse.figures import Figure
from sweeps.analyse.statistics import Interval
from sweeps.plan.paged_findings import BATCH, FLOPS, KV, KV_TIME, PREFILL, CardFindings
from sweeps.report.chart import Bar, Bars, Chart
from sweeps.report.formats import NONE, between, effect, mean_text, share
from sweeps.report.section import Grid

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


def effects_grid(found: list[CardFindings]) -> Grid:
    """The effects, logarithms of ratios."""
    heads = ["data set", "card", "paged over", "gap", "capacity", "layout", "KV bandwidth",
             "bandwidth"]  # fmt: skip
    controls = list(dict.fromkeys(name for c in found for e in c.effects for name in e.others))
    rows = [
        [card.name, card.card, e.other,
         *map(_log, (e.gap, e.capacity, e.layout, e.kv, e.bandwidth)),
         *(_log(e.others.get(name)) for name in controls)]
        for card in found for e in card.effects
    ]  # fmt: skip
    return Grid("Effects", [*heads, *(f"capacity, {name}" for name in controls)], rows)


def policies_grid(found: list[CardFindings]) -> Grid:
    """What each policy does on each card."""
    heads = ["data set", "card", "policy", "output tokens/s", "analytic", "over the first card",
             "batch", "KV GB/s", "time reading KV", "FLOPs bind", "prefill"]  # fmt: skip
    rows = [
        [card.name, card.card, each.policy, _rate(each.rate), mean_text(each.analytic, 0),
         effect(each.faster), *(f"{each.means[metric]:.0f}" for metric in (BATCH, KV)),
         *(share(each.means[metric]) for metric in (KV_TIME, FLOPS, PREFILL))]
        for card in found for each in card.policies
    ]  # fmt: skip
    return Grid("Policies", heads, rows)


def paged_charts(found: list[CardFindings]) -> Iterator[Chart]:
    """Capacity and layout of each gap as factors, a chart a data set."""
    for name in dict.fromkeys(card.name for card in found):
        bars = [
            Bar(f"{card.card}: {e.other}: {part}", effect.mapped(math.exp), part == "layout")
            for card in found if card.name == name for e in card.effects
            for part, effect in (("capacity", e.capacity), ("layout", e.layout))
            if effect is not None
        ]  # fmt: skip
        if bars:
            title = f"{name}: factors of paged's output tokens/s over another's"
            yield Bars(title, bars, "Pale: layout. The product of the two is the whole.", 3)


def _log(found: Interval | None) -> str:
    if found is None:
        return NONE
    return between(found, "{:+.3f}".format)


def _rate(found: Interval | None) -> str:
    if found is None:
        return NONE
    return Figure("", "", 0).interval_text(found)
