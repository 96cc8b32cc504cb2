"""The sentences on the ODMA paper's table."""

from __future__ import annotations

from collections.abc import Iterator

from sweeps.analyse.statistics import Interval, grown
from sweeps.plan.odma_paper import ODMA
from sweeps.plan.paged_findings import Effects
from sweeps.plan.paper_findings import DatasetResult
from sweeps.report.formats import (
    counted,
    effect,
    hundred,
    listed,
    percent,
)  # fmt: skip

_DWARFS = 5.0
"""One effect makes a gap rather than another where it is more than this many times as large
(assumed)."""


def paper(found: list[DatasetResult]) -> Iterator[str]:
    """How many of the ODMA paper's figures follow from its baselines, and the gain."""
    gains = [
        f"{percent(centre, True, 1, named=each is found[0])} on {each.name}"
        f" (paper: {hundred(each.gain, 0)} %)"
        for each in found
        if (centre := each.placements[-1].centre) is not None
    ]
    if gains:
        yield f"At the centre odma changes the throughput of static by {listed(gains)}."
    cells = [cell.meets(each.paper) for each in found for cell in each.cells]
    if cells and not any(cell.told for each in found for cell in each.cells):
        yield "One replication cannot tell which of the paper's figures are met: run three or more."
    elif cells:
        met = sum(len(names) == len(found[0].paper) for names in cells)
        yield f"All figures together are met at {met} of {len(cells)} length shapes and limits."
    if gains:
        last = [each.placements[-1] for each in found]
        low, high = min(each.low for each in last), max(each.high for each in last)
        wide = ": too wide to test the paper" if high - low > found[0].gain else ""
        ends = f"{hundred(low, 0)} to {hundred(high, 0)} %"
        yield f"Over the assumptions the mean gain is {ends}{wide}."


def paged(found: list[Effects]) -> Iterator[str]:
    """Which of capacity and layout makes paged's gaps, in ranges over all of them."""
    capacities = [each.capacity for each in found if each.capacity is not None]
    layouts = [each.layout for each in found if each.layout is not None]
    if not capacities or not layouts:
        yield "The effect of layout is not known without the analytic control."
        return
    first = [each for each in found if each.other == ODMA and each.bandwidth is None]
    leads = [f"{effect(each.gap, named=each is first[0])} on {each.name}" for each in first]
    if leads:
        yield f"As described paged changes the throughput of odma by {listed(leads)}."
    makes, count = _larger(capacities, layouts), counted(len(layouts), "comparison")
    yield (
        f"The gap of paged to contiguous reservation is {makes}. Over {count} capacity changes"
        f" throughput by {_range(capacities)}, layout by {_range(layouts)}."
    )
    if moved := [e.bandwidth for e in found if e.bandwidth is not None]:
        yield f"Other bandwidth changes the gaps of paged by {_range(moved)}."


def _larger(capacities: list[Interval], layouts: list[Interval]) -> str:
    """The larger of the two at its largest, among those that are significant."""
    sizes = {
        name: max((abs(each.mean) for each in effects if each.sign), default=0.0)
        for name, effects in (("layout", layouts), ("capacity", capacities))
    }
    less, most = sorted(sizes, key=sizes.__getitem__)
    if not sizes[most]:
        return "significant neither in capacity nor in layout"
    return f"{most}{', not' if sizes[less] * _DWARFS < sizes[most] else ' more than'} {less}"


def _range(effects: list[Interval]) -> str:
    """Means from the least to the most, and how many are not significant."""
    ends = [hundred(grown(end(each.mean for each in effects)), 1) for end in (min, max)]
    idle = sum(each.sign == 0 for each in effects)
    return f"{' to '.join(ends)} %" + (f" ({idle} not significant)" if idle else "")
