"""The sections of groups of competitors: their charts and tables, and those of all together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from hwmodel.measure.student import LEVEL
from sweeps.analyse.facts import Reference, Verdict
from sweeps.analyse.figures import REFERENCE, THROUGHPUT
from sweeps.analyse.gap import CONTROL
from sweeps.analyse.objective import figures_of
from sweeps.analyse.table import Group, Row, Table, headings
from sweeps.report.gallery import RATES, charts
from sweeps.report.memory_map import memory_map
from sweeps.report.overview import OPEN
from sweeps.report.trend import trends
from sweeps.run.findings import Findings
from sweeps.sections.formats import NONE, effect, gain, listed, points, share
from sweeps.sections.section import MOST_COLUMNS, Block, Grid, Say, Section

_MAPS = 6
"""Maps of memory in a page, a few hundred KB each."""
_REST = 4
"""Charts from which on those that show no reason are folded."""
_OPEN = ("limits", "slots", "phases")
"""Figures that stand first where nothing decides."""
_SHOWS = {
    "capacity": ("slots", "limits"), "layout": ("bandwidth", "banks"), "step time": ("phases",),
    "the offered load": ("limits", "over_time"),
}  # fmt: skip
"""What decides, and the figures that show it."""
_NEWER = {"latency distributions": ("quantiles",), "curves over time": ("over_time",)}
"""What a page shows, and the metrics it needs, which runs of older versions do not have."""
_LATER = {"by layout, points", "decided by", "over the leader", "other limits"}
"""Columns that stand behind the others, beside such figures."""


def along(table: Table) -> list[Block]:
    """Charts along the axes of numbers, where there are any."""
    found = trends(table)
    return [Section("Along the axes", list(found))] if found else []


def group_sections(
    findings: Findings[Any], groups: Sequence[Group], folded: bool = False
) -> list[Block]:  # fmt: skip
    """A section a group: its table, and what shows it; many are folded."""
    many = len(groups) > OPEN
    return [
        Section(
            group.title,
            [
                grid(findings, group), *_notes(group), *drawn(findings, group),
                *every_pair(findings, group),
            ],
            folded or (many and i >= OPEN),
        )
        for i, group in enumerate(groups)
    ]  # fmt: skip


def drawn(findings: Findings[Any], group: Group) -> list[Block]:
    """Its charts: its rates and what shows why the best leads; the others folded, where these are
    many."""
    every = charts(group)
    verdict, _ = findings.of(group)
    reasons = [figure for word in verdict.decided_by for figure in _SHOWS.get(word, ())]
    if not verdict.objective.is_rate:
        reasons = ["latencies", *reasons]
    order = dict.fromkeys([*RATES, *(reasons or _OPEN)])
    first = [chart for name in order for chart in every if chart.figure == name]
    rest: list[Block] = [chart for chart in every if chart.figure not in order]
    if len(rest) < _REST:
        return [*first, *rest]
    return [*first, Section(f"{len(rest)} more charts", rest, folded=True, rest=True)]


def every_pair(findings: Findings[Any], group: Group) -> list[Block]:
    """How far any two are apart, where there are three or more: a row over a column."""
    at = next(i for i, each in enumerate(findings.table.groups) if each is group)
    pairs = findings.pairs[at] if findings.pairs else []
    names = list(dict.fromkeys(name for pair in pairs for name in (pair.first, pair.second)))
    if len(names) < 3:
        return []
    cells = {(pair.first, pair.second): effect(pair.lead) if pair.sign else
             f"{effect(pair.lead)}, not significant" for pair in pairs}  # fmt: skip
    rows = [[name, *(cells.get((name, other), NONE) for other in names[1:])] for name in names[:-1]]
    note = (
        f"How much better a row is than a column, with its own {100 * LEVEL:.0f} % interval."
        f" Significant: among all {len(pairs)} pairs together (Holm's correction)."
    )
    return [Section("Every pair", [Grid("", ["", *names[1:]], rows, terminal=False), Say(note)],
                    folded=True)]  # fmt: skip


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


def grid(findings: Findings[Any], group: Group, title: str = "") -> Grid:
    """The figures of a group, a row a competitor; columns without a value are left out."""
    rows = findings.table.shown(group)
    cells = [row.cells(group.objective) for row in rows]
    heads = headings(group.objective)
    rate, *figures = zip(heads, zip(*cells, strict=True), strict=True)
    columns = dict([rate, *_gaps(*findings.of(group), rows).items(), *figures])
    shown = {head: texts for head, texts in columns.items() if any(text != NONE for text in texts)}
    figures_ = figures_of(group.objective)
    later = {figure.heading for figure in figures_ if not figure.first} | _LATER
    order = [head for head in shown if head not in later]
    if "limit" in order[MOST_COLUMNS - 1 :]:  # what binds is read first, however much else there is
        later |= set(order[MOST_COLUMNS - 2 : -1])
    return Grid(
        title, [findings.table.compared, *shown],
        [[row.title, *texts] for row, *texts in zip(rows, *shown.values(), strict=True)],
        frozenset(i for i, row in enumerate(rows) if row.control),
        later=frozenset(i for i, head in enumerate(shown, 1) if head in later),
    )  # fmt: skip


def _gaps(verdict: Verdict, references: list[Reference], rows: list[Row]) -> dict[str, list[str]]:
    """Heading -> a cell a row: how far each is from the leader, and why."""
    held = {each.name: each for each in references}
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


def _notes(group: Group) -> Iterator[Say]:
    """What the table's rows are, where that is not plain."""
    text = "" if not group.control(CONTROL) else (
        f"({CONTROL}): the same point with memory of a fixed efficiency and no banks."
    )  # fmt: skip
    if text := f"{text}{_load(group)}".strip():
        yield Say(text)


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
