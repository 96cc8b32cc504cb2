"""A study device by device: one table of what was found on each."""

from __future__ import annotations

from sweeps.analyse.statistics import Interval
from sweeps.report.formats import gain
from sweeps.report.section import Block, Grid, Say, Section
from sweeps.study.by_device import RIVALS, DeviceFound

NONE = "–"
_HEADS = [
    "device", "model", "bounds, tokens", "buckets", "pool %", "tokens/s",
    *(f"over {name}" for name in RIVALS), "found by", "limit",
]  # fmt: skip


def sheet(name: str, found: list[DeviceFound], refused: dict[str, str]) -> Section:
    """A line a device, what the columns are, and which devices are left out and why."""
    rows = [
        [
            f"{each.device}{'' if each.fidelity == 'sampled' else ' *'}", each.model,
            ", ".join(map(str, each.bounds or ())) or NONE,
            str(len(each.bounds)) if each.bounds else NONE,
            NONE if each.pool_share is None else f"{100 * each.pool_share:g}",
            f"{each.mean:,.4g}", *(_gain(each.over[rival]) for rival in RIVALS), _found_by(each),
            each.binds,
        ]
        for each in found
    ]  # fmt: skip
    blocks: list[Block] = []
    if rows:
        blocks.append(Grid("", _HEADS, rows, sides="<<<>>>>>><<"))
        blocks.append(Say(
            "over: output tokens/s of the best trial over the paper's numbers, odma-best and paged,"
            " on replications that the search never saw (95 % intervals). found by: the search, or"
            " a trial that needed none. limit: what binds the best most of the time."
        ))  # fmt: skip
    if any(each.fidelity != "sampled" for each in found):
        blocks.append(Say("*: only a bandwidth is given; memory is analytic, so that where KV lies"
                          " costs nothing."))  # fmt: skip
    blocks += [Say(f"left out: {why}") for why in refused.values()]
    return Section(f"{name}, device by device", blocks)


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
