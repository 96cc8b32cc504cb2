"""What stands beside a verdict: a waterfall of its causes, or what decides, and one table."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from sweeps.analyse.figures import KV_RATE, THROUGHPUT, limit_text
from sweeps.analyse.objective import figures_of
from sweeps.analyse.table import Group, Row, Table
from sweeps.report import explanation_page
from sweeps.report.chart import Chart
from sweeps.report.formats import NONE
from sweeps.report.gallery import reading, throughput
from sweeps.report.section import Block, Grid, Section
from sweeps.run.explanation import read

_BESIDE = 4
"""Groups that are columns of the table; more are rows."""
_MOST = 8
"""Competitors that are columns."""
_KEY = (THROUGHPUT, "ttft_s.p99", "tpot_s.mean", "utilization")
_READ = (KV_RATE, "memory.phases.attention.row_hit_rate")
"""Figures of the table, of what is served and of what is read alone."""


def compared(table: Table) -> tuple[str, ...]:
    """What a run compares, in order of appearance."""
    rows = (row for group in table.groups for row in group.rows)
    return tuple(dict.fromkeys(row.name for row in rows))


def overview(table: Table) -> list[Block]:
    """One picture and one table, beside each other. A kind with tables of its own has its own
    picture beside them, and these come first anyway."""
    blocks: list[Block] = [*pictures(table)]
    groups = _groups(table)
    if groups and not table.own_tables:
        blocks.append(_alone(table, groups[0]) if len(groups) == 1 else _policies(table, groups))
    return [Section("", blocks, beside=True)] if blocks else []


def pictures(table: Table) -> list[Chart]:
    """The picture beside the verdict: causes of the smallest gap that was explained, else the rate
    of the one group there is."""
    causes: list[Chart] = [
        explanation_page.chart(found)
        for found in sorted(read(table.path), key=lambda each: each.total.mean)
    ]
    groups = _groups(table)
    if causes or len(groups) != 1 or table.own_tables:
        return causes[:1]
    return list(islice((*throughput(groups[0]), *reading(groups[0])), 1))


def rest(table: Table, charts: Sequence[Chart]) -> list[Chart]:
    """Charts that do not stand beside the verdict."""
    shown = pictures(table)
    return [chart for chart in charts if chart not in shown]


def _groups(table: Table) -> list[Group]:
    return [group for group in table.groups if group.main()]


def _alone(table: Table, group: Group) -> Grid:
    """A row a policy, its most telling figures."""
    served = any(row.values(THROUGHPUT) for row in group.rows)
    chosen = (group.objective.metric, *_KEY) if served else _READ
    figures = [figure for figure in figures_of(group.objective) if figure.metric in chosen]
    rows = sorted(group.main(), key=lambda row: _rate(group, row), reverse=True)
    cells = {f.heading: [_cell(group, row, f.metric) for row in rows] for f in figures}
    shown = {head: texts for head, texts in cells.items() if any(text != NONE for text in texts)}
    limits = [_limit(row) for row in rows]
    if any(text != NONE for text in limits):
        shown["limit"] = limits
    lines = [[row.name, *texts] for row, *texts in zip(rows, *shown.values(), strict=True)]
    return Grid("", [table.compared, *shown], lines)


def _policies(table: Table, groups: list[Group]) -> Grid:
    """The rate of each policy in each group; few groups are columns, each with its first limit."""
    names = list(dict.fromkeys(row.name for group in groups for row in group.main()))
    found = {(row.name, i): row for i, group in enumerate(groups) for row in group.main()}
    rows = [[found.get((name, i)) for i in range(len(groups))] for name in names]
    unit = _heading(groups[0])
    if len(groups) > _BESIDE and len(names) <= _MOST:
        cells = [
            [group.title, *(_rate_text(group, row) for row in each)]
            for group, *each in zip(groups, *rows, strict=True)
        ]
        return Grid(f"{unit}, by {table.compared}", ["", *names], cells)
    limits = len(groups) == 2
    heads = [h for g in groups for h in (f"{g.title}: {unit}", *["limit"] * limits)]
    cells = [
        [
            name,
            *(
                text
                for group, row in zip(groups, each, strict=True)
                for text in (_rate_text(group, row), *[_limit(row)] * limits)
            ),
        ]
        for name, each in zip(names, rows, strict=True)
    ]
    return Grid("", [table.compared, *heads], cells)


def _heading(group: Group) -> str:
    served = (row for row in group.rows if row.values(THROUGHPUT))
    metric = _metric(group, next(served, group.rows[0]))
    return next(f.heading for f in figures_of(group.objective) if f.metric == metric)


def _metric(group: Group, row: Row) -> str:
    """The objective; KV's read where nothing is served."""
    return group.objective.metric if row.values(THROUGHPUT) else KV_RATE


def _rate_text(group: Group, row: Row | None) -> str:
    return NONE if row is None else _cell(group, row, _metric(group, row))


def _limit(row: Row | None) -> str:
    return NONE if row is None else limit_text(row.limits(), 1) or NONE


def _rate(group: Group, row: Row) -> float:
    """How good it is."""
    found = row.mean(_metric(group, row)) or 0.0
    return -found if group.objective.less else found


def _cell(group: Group, row: Row, metric: str) -> str:
    figures = figures_of(group.objective)
    place = next(i for i, figure in enumerate(figures) if figure.metric == metric)
    return row.cells(group.objective)[place]
