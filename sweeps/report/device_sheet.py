"""A study device by device: one picture and one table of what was found on each."""

from __future__ import annotations

from itertools import pairwise

from sweeps.analyse.statistics import Interval
from sweeps.report.palette import COLOURS
from sweeps.sections.chart import Axis, Bar, Bars, RowSpan, Spans
from sweeps.sections.formats import counted, gain
from sweeps.sections.section import Block, Grid, Say, Section
from sweeps.study.by_device import RIVALS, DeviceFound, counts
from sweeps.study.first import PAPER

NONE = "–"
_HEADS = [
    "device", "model", "bounds, tokens", "buckets", "pool %", "tokens/s",
    *(f"over {name}" for name in RIVALS), "proposed by", "a pool", "own quantiles",
    "what mattered", "scattered blocks cost %", "quantiles", "limit",
]  # fmt: skip
_LATER = frozenset(range(len(_HEADS) - 7, len(_HEADS)))
_FAMILIES = ("a pool", "own quantiles")
"""Families that have a column."""


def sheet(name: str, devices: list[DeviceFound], refused: dict[str, str]) -> Section:
    """A line a device, what the columns are, and which devices are left out and why."""
    rows = [
        [
            f"{each.device}{'' if each.fidelity == 'sampled' else ' *'}", each.model,
            ", ".join(map(str, each.bounds or ())) or NONE,
            str(len(each.bounds)) if each.bounds else NONE,
            NONE if each.pool_share is None else f"{100 * each.pool_share:g}",
            f"{each.mean:,.4g}", *(_gain(each.over.get(rival)) for rival in RIVALS),
            _proposed(each), *(_family(each, name) for name in _FAMILIES), _mattered(each),
            NONE if each.scattered is None else f"{100 * each.scattered:.0f}",
            ", ".join(f"{level:.2f}" for level in each.levels or ()) or NONE, each.binds,
        ]
        for each in devices
    ]  # fmt: skip
    blocks: list[Block] = []
    if rows:
        blocks.append(Say(sentence(devices), "lead"))
        blocks += pictures(devices)
        blocks.append(Grid("", _HEADS, rows, later=_LATER))
        blocks.append(Say(
            "over: output tokens/s of the best trial over the paper's numbers, odma-best and the"
            " others, on replications that the search never saw (95 % intervals). proposed by:"
            " arithmetic before the search, its space-filling draws, or TPE. a pool, own quantiles:"
            " the best such trial over the best without. what mattered: settings of the best that"
            " change something when they alone are set back to the base's. scattered blocks cost:"
            " bandwidth of reads of blocks of 16 tokens anywhere, against one run. quantiles: the"
            " shares of lengths that the bounds hold. limit: what binds the best most of the time."
        ))  # fmt: skip
    if not all(each.simulated for each in devices):
        blocks.append(Say("*: only a bandwidth is given; memory is analytic, so that where KV lies"
                          " costs nothing. It is counted apart."))  # fmt: skip
    blocks += [Say(f"left out: {why}") for why in refused.values()]
    return Section(f"{name}, device by device", blocks)


def sentence(devices: list[DeviceFound]) -> str:
    """On how many devices the search, the safety pool and each rival were of use, in both
    directions; of those whose memory is given apart."""
    told = []
    for simulated in (True, False):
        some = [each for each in devices if each.simulated is simulated]
        if some:
            where = "whose memory is simulated" if simulated else "of which a bandwidth is given"
            told.append(f"Of {counted(len(some), 'device')} {where}: {_counts(some)}.")
    return " ".join([*told, "Counts are of differences that are significant over these devices"
                     " together (Holm) and above 1 %."])  # fmt: skip


def _counts(found: list[DeviceFound]) -> str:
    told = []
    for name, words in (
        ("paged", "paged"), ("static", "static reservation"), (PAPER, "the paper's numbers"),
        ("odma-best", "odma-best as it ships"),
    ):  # fmt: skip
        over = counts((each.device, each.over.get(name)) for each in found)
        if over.devices:
            told.append(f"the best serves more than {words} on {over.more} and less on {over.less}")
    pool = counts((each.device, _gap(each, "a pool")) for each in found)
    if pool.devices:
        told.append(f"a pool helps on {pool.more} and costs on {pool.less}")
    kept = sum(bool(each.pool_share) for each in found)
    search = sum(each.phase in ("random", "tpe") for each in found)
    told += [
        f"the best keeps a pool on {kept}",
        f"the search proposed the best on {search}, arithmetic on {len(found) - search}",
    ]
    return "; ".join(told)


def _gap(each: DeviceFound, family: str) -> Interval | None:
    """The best of a family over the best outside of it."""
    gap = each.families.get(family, {}).get("gain")
    return Interval(**gap) if gap else None


def _family(each: DeviceFound, name: str) -> str:
    return _gain(_gap(each, name))


def pictures(devices: list[DeviceFound]) -> list[Block]:
    """Bounds along the lengths, and pools: a row a device, those first whose scattered blocks cost
    the most."""
    ranked = sorted(devices, key=lambda each: -(each.scattered or 0.0))
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
            spans.append(RowSpan(names[each.device], low, high, kind, f"bucket {i + 1}"))
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
    """What the settings of the best change when they are set back."""
    return ", ".join(f"{name} {gain(gap)}" for name, gap in each.mattered.items()) or NONE


def _gain(found: Interval | None) -> str:
    return NONE if found is None else gain(found)


def _proposed(each: DeviceFound) -> str:
    """Who proposed the best, and what that adds to what needed no search."""
    phase = {"first": "arithmetic", "random": "random draws", "tpe": "TPE"}.get(each.phase or "")
    if each.phase == "first" or each.first is None or each.added is None:
        return f"{phase or NONE}: {each.first}" if each.phase == "first" else phase or NONE
    return f"{phase or NONE}, {gain(each.added)} over {each.first}"
