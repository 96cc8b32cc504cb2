"""A study device by device: one picture and one table of what was found on each."""

from __future__ import annotations

from itertools import pairwise

from sweeps.analyse.statistics import Interval
from sweeps.report.chart import Axis, Bar, Bars, Span, Spans
from sweeps.report.formats import counted, gain
from sweeps.report.palette import COLOURS
from sweeps.report.section import Block, Grid, Say, Section
from sweeps.study.by_device import RIVALS, DeviceFound

NONE = "–"
_HEADS = [
    "device", "model", "bounds, tokens", "buckets", "pool %", "tokens/s",
    *(f"over {name}" for name in RIVALS), "found by", "what mattered", "scattered blocks cost %",
    "quantiles", "limit",
]  # fmt: skip
_WIDE = frozenset(range(len(_HEADS) - 4, len(_HEADS)))
_MATTERED = 2
"""Settings that a row names."""


def sheet(name: str, found: list[DeviceFound], refused: dict[str, str]) -> Section:
    """A line a device, what the columns are, and which devices are left out and why."""
    rows = [
        [
            f"{each.device}{'' if each.fidelity == 'sampled' else ' *'}", each.model,
            ", ".join(map(str, each.bounds or ())) or NONE,
            str(len(each.bounds)) if each.bounds else NONE,
            NONE if each.pool_share is None else f"{100 * each.pool_share:g}",
            f"{each.mean:,.4g}", *(_gain(each.over[rival]) for rival in RIVALS), _found_by(each),
            _mattered(each), NONE if each.scattered is None else f"{100 * each.scattered:.0f}",
            ", ".join(f"{level:.2f}" for level in each.levels or ()) or NONE, each.binds,
        ]
        for each in found
    ]  # fmt: skip
    blocks: list[Block] = []
    if rows:
        blocks.append(Say(sentence(found), "lead"))
        blocks += pictures(found)
        blocks.append(Grid("", _HEADS, rows, wide=_WIDE))
        blocks.append(Say(
            "over: output tokens/s of the best trial over the paper's numbers, odma-best and paged,"
            " on replications that the search never saw (95 % intervals). found by: the search, or"
            " a trial that needed none. what mattered: the settings in which the best tenth of the"
            " trials differs most from all (PED-ANOVA), with their shares. scattered blocks cost:"
            " bandwidth of reads of blocks of 16 tokens anywhere, against one run. quantiles: the"
            " shares of lengths that the bounds hold. limit: what binds the best most of the time."
        ))  # fmt: skip
    if any(each.fidelity != "sampled" for each in found):
        blocks.append(Say("*: only a bandwidth is given; memory is analytic, so that where KV lies"
                          " costs nothing."))  # fmt: skip
    blocks += [Say(f"left out: {why}") for why in refused.values()]
    return Section(f"{name}, device by device", blocks)


def sentence(found: list[DeviceFound]) -> str:
    """On how many devices the search, the safety pool and paging were of use."""
    devices = len(found)
    added = sum(each.first is None or bool(each.added and each.added.low > 0) for each in found)
    over = {
        rival: [gap for each in found if (gap := each.over[rival]) is not None] for rival in RIVALS
    }
    paper, paged = over[RIVALS[0]], over["paged"]
    pooled = [each.device for each in found if each.pool_share]
    ahead = sum(gap.high < 0 for gap in paged)
    behind = sum(gap.low > 0 for gap in paged)
    told = [
        f"the search adds something significant to what needed none on {added}",
        f"the best keeps a safety pool apart on {len(pooled)}",
        f"it serves significantly more than the paper's numbers on"
        f" {sum(gap.low > 0 for gap in paper)}",
        f"paged serves significantly more than the best on {ahead}, less on {behind}",
    ]
    return f"Of {counted(devices, 'device')}: {'; '.join(told)}."


def pictures(found: list[DeviceFound]) -> list[Block]:
    """Bounds along the lengths, and pools: a row a device, those first whose scattered blocks cost
    the most."""
    ranked = sorted(found, key=lambda each: -(each.scattered or 0.0))
    names = {
        each.device: each.device if each.scattered is None
        else f"{each.device} ({100 * each.scattered:.0f} %)"
        for each in ranked
    }  # fmt: skip
    spans, most = [], 0
    for each in ranked:
        ends = [0, *(each.bounds or ())]
        for i, (low, high) in enumerate(pairwise(ends)):
            kind = str(i % len(COLOURS) + 1)
            spans.append(Span(names[each.device], low, high, kind, f"bucket {i + 1}"))
            most = max(most, high)
    blocks: list[Block] = []
    if spans:
        kinds = {str(i + 1): colour for i, colour in enumerate(COLOURS)}
        blocks.append(Spans(
            "Best buckets, by device and what scattered blocks cost there",
            Axis("bound, output tokens", tight=True), [*names.values()], spans, kinds,
            ends=(0.0, float(most)), figure="bounds",
            note="In brackets: bandwidth that reads of blocks of 16 tokens anywhere lose.",
        ))  # fmt: skip
    pools = [
        Bar(names[each.device], Interval(100 * share, 100 * share, 100 * share, 1))
        for each in ranked if (share := each.pool_share) is not None
    ]  # fmt: skip
    drawn = Bars("Best safety pool, % of KV memory", pools, figure="pool")
    return [*blocks, *([drawn] if pools else [])]


def _mattered(each: DeviceFound) -> str:
    """The settings of most importance."""
    named = [
        f"{name.removeprefix('serving.policy.')} {100 * share:.0f} %"
        for name, share in [*each.mattered.items()][:_MATTERED]
    ]
    return ", ".join(named) or NONE


def _gain(found: Interval | None) -> str:
    return NONE if found is None else gain(found)


def _found_by(each: DeviceFound) -> str:
    """Whether the search was of use."""
    if each.first is None:
        return "search"
    if each.added is None:
        return each.first
    if each.added.low > 0:
        return f"search, {gain(each.added)} over {each.first}"
    return f"no better than {each.first}"
