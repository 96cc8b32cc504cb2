"""The sections of groups of competitors: their charts and tables, and those of all together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from sweeps.analyse.figures import REFERENCE, THROUGHPUT
from sweeps.analyse.gap import CONTROL, references
from sweeps.analyse.table import Group, Row, Table, headings
from sweeps.analyse.verdict import judge
from sweeps.report.formats import NONE, gain, listed, points, share
from sweeps.report.gallery import charts
from sweeps.report.memory_map import memory_map
from sweeps.report.overview import rest
from sweeps.report.section import Block, Grid, Say, Section
from sweeps.report.trend import trends

_OPEN = 6
"""Groups a page shows unfolded."""
_MAPS = 6
"""Maps of memory in a page, a few hundred KB each."""
_NEWER = {"latency distributions": ("quantiles",), "curves over time": ("over_time",)}
"""What a page shows, and the metrics it needs, which runs of older versions do not have."""


def along(table: Table) -> list[Block]:
    """Charts along the axes of numbers, where there are any."""
    found = trends(table)
    return [Section("Along the axes", list(found))] if found else []


def group_sections(table: Table, groups: Sequence[Group], folded: bool = False) -> list[Block]:
    """A section a group: its charts, its table, and what the intervals are; many are folded."""
    many, note = len(groups) > _OPEN, table.note + _control(table)
    return [
        Section(
            group.title,
            [*rest(table, charts(group)), grid(table, group), Say(note + _load(group))],
            folded or (many and i >= _OPEN),
        )
        for i, group in enumerate(groups)
    ]


def maps(table: Table) -> list[Block]:
    """Maps of the points whose memory was recorded (`logs: [memory]`)."""
    found = list(islice(_maps(table), _MAPS))
    return [Section("Physical memory", found)] if found else []


def _maps(table: Table) -> Iterator[Block]:
    """Maps of the points whose memory was recorded (`logs: [memory]`)."""
    for group in table.groups:
        for row in group.main():
            name = f"{group.title}, {row.name}"
            chart = memory_map(table.path, name, row.point, min(row.replications))
            if chart is not None:
                yield chart


def lacking(table: Table) -> Iterator[str]:
    """Charts that these results cannot show, as older versions recorded less."""
    found = [
        metrics for group in table.groups for row in group.main() if row.values(THROUGHPUT)
        for metrics in row.raw.values()
    ]  # fmt: skip
    version = table.provenance.get("version", "of unknown number")
    for what, keys in _NEWER.items():
        if found and not any(key in metrics for metrics in found for key in keys):
            yield f"no {what}: version {version} did not record them"


def grid(table: Table, group: Group, title: str = "") -> Grid:
    """The figures of a group, a row a competitor; columns without a value are left out."""
    rows = group.ordered()
    cells = [row.cells(group.objective) for row in rows]
    heads = headings(group.objective)
    rate, *figures = zip(heads, zip(*cells, strict=True), strict=True)
    columns = dict([rate, *_gaps(group, rows).items(), *figures])
    shown = {head: found for head, found in columns.items() if any(text != NONE for text in found)}
    return Grid(
        title, [table.compared, *shown],
        [[row.title, *found] for row, *found in zip(rows, *shown.values(), strict=True)],
        frozenset(i for i, row in enumerate(rows) if row.control),
    )  # fmt: skip


def _gaps(group: Group, rows: list[Row]) -> dict[str, list[str]]:
    """Heading -> a cell a row: how far each is from the leader, and why."""
    verdict, held = judge(group), {each.name: each for each in references(group)}
    gaps = {gap.other: gap for gap in verdict.gaps}
    found: dict[str, list[str]] = {
        "leader over it": [], "by layout, points": [], "decided by": [], "over the leader": []
    }  # fmt: skip
    for row in rows:
        gap = None if row.control else gaps.get(row.name)
        beside = held.get(row.name) if row.control == REFERENCE else None
        over = beside.gains.get(verdict.leader) if beside else None
        decided = gap.deciders if gap and gap.total.sign > 0 else []
        cells = (
            gain(gap.total) if gap else NONE,
            points(gap.layout) if gap and gap.layout else NONE,
            ", ".join(dict.fromkeys(decided)) or NONE,
            gain(over) if over else NONE,
        )
        for column, text in zip(found.values(), cells, strict=True):
            column.append(text)
    return found


def _load(group: Group) -> str:
    """Whose latencies are not shown, and at which load those of a second pass are."""
    names = [row.name for row in group.main() if row.overloaded]
    text = ""
    if names:
        text = (
            f" The load is above the capacity of {listed(names)}: time to first token and latency"
            " grow with the run and are not shown."
        )
    shares = {found for row in group.main() if (found := row.mean("at_share.share"))}
    if shares:
        text += f" Below capacity: at {share(max(shares))} of each one's own rate at saturation."
    return text


def _control(table: Table) -> str:
    if all(row.control != CONTROL for group in table.groups for row in group.rows):
        return ""
    return f" ({CONTROL}): the same point with memory of a fixed efficiency and no banks."
