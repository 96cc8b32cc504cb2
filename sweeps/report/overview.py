"""What stands beside a verdict: a waterfall of its causes, or what decides, and one table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sweeps.analyse.figures import KV_RATE, THROUGHPUT, limit_texts
from sweeps.analyse.objective import figures_of
from sweeps.analyse.table import Group, Row, Table
from sweeps.report import explanation_page
from sweeps.report.gallery import RATES, charts
from sweeps.run.findings import Findings
from sweeps.sections.chart import Chart
from sweeps.sections.formats import NONE
from sweeps.sections.section import Grid, Section

_BESIDE = 4
"""Groups that are columns of the table; more are rows."""
_DRAWN = 2
"""Groups whose rates are drawn beside the verdict."""
_MOST = 7
"""Competitors that are columns."""
OPEN = 6
"""Groups that a page shows unfolded, and a terminal at all."""
_KEY = (THROUGHPUT, "ttft_s.p99", "tpot_s.mean", "utilization")
_READ = (KV_RATE, "memory.phases.attention.row_hit_rate")
"""Figures of the table, of what is served and of what is read alone."""


def compared(table: Table) -> tuple[str, ...]:
    """What a run compares, in order of appearance."""
    rows = (row for group in table.groups for row in group.rows)
    return tuple(dict.fromkeys(row.name for row in rows))


def overview(findings: Findings[Any], own_tables: bool) -> list[Section]:
    """Picture and table beside each other. A run with tables of its own has its own picture beside
    them, and these come first anyway."""
    groups = [group for group in findings.table.shown_groups() if group.main()]
    few = not own_tables and len(groups) <= _DRAWN
    rates = [chart for each in groups for chart in _rates(each, len(groups))] if few else []
    causes, grid = _causes(findings), []
    if groups and not own_tables:
        one = len(groups) == 1
        grid = [_alone(findings.table, groups[0]) if one else _policies(findings.table, groups)]
    # why before how much, where that is known: both are on the first screen
    beside, below = ([*causes, *grid], rates) if causes else ([*rates, *grid], [])
    return [
        *([Section("", [*beside], beside=True)] if beside else []),
        *([Section("", [*below])] if below else []),
    ]


def _causes(found: Findings[Any]) -> list[Chart]:
    """The causes of the gap that the report begins with, where they are known."""
    if found.leading_gap is None:
        return []
    group, gap = found.leading_gap
    names = (group.title, gap.best, gap.other)
    return [
        explanation_page.chart(each)
        for each in found.explanations
        if (each.group, each.winner, each.loser) == names
    ]


def _rates(group: Group, many: int) -> list[Chart]:
    """The rate of each competitor; named by the group where there are several."""
    found = [chart for chart in charts(group) if chart.figure in RATES][:1]
    return (
        [replace(each, title=f"{group.title}: {each.title}") for each in found]
        if many > 1
        else found
    )


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
    return Grid("", [table.compared, *shown], lines, terminal=False)


def _policies(table: Table, groups: list[Group]) -> Grid:
    """The rate of each policy in each group; few groups are columns, each with its first limit."""
    names = list(dict.fromkeys(row.name for group in groups for row in group.main()))
    found = {(row.name, i): row for i, group in enumerate(groups) for row in group.main()}
    rows = [[found.get((name, i)) for i in range(len(groups))] for name in names]
    unit = _heading(next(group for group in groups if group.rows[0].replications))
    if len(groups) > _BESIDE and len(names) <= _MOST:
        cells = [
            [group.title, *(_rate_text(group, row) for row in each)]
            for group, *each in zip(groups, *rows, strict=True)
        ]
        many = len(groups) > OPEN
        return Grid(f"{unit}, by {table.compared}", ["", *names], cells, terminal=many)
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
    return Grid("", [table.compared, *heads], cells, terminal=len(groups) > OPEN)


def _heading(group: Group) -> str:
    served = (row for row in group.rows if row.values(THROUGHPUT))
    metric = _metric(group, next(served, group.rows[0]))
    return next(f.heading for f in figures_of(group.objective) if f.metric == metric)


def _metric(group: Group, row: Row) -> str:
    """The objective; KV's read where nothing is served."""
    served = row.values(THROUGHPUT) or not row.replications
    return group.objective.metric if served else KV_RATE


def _rate_text(group: Group, row: Row | None) -> str:
    return NONE if row is None else _cell(group, row, _metric(group, row))


def _limit(row: Row | None) -> str:
    return next(iter(() if row is None else limit_texts(row.limits())), NONE)


def _rate(group: Group, row: Row) -> float:
    """How good it is."""
    found = row.mean(_metric(group, row)) or 0.0
    return -found if group.objective.less else found


def _cell(group: Group, row: Row, metric: str) -> str:
    figures = figures_of(group.objective)
    place = next(i for i, figure in enumerate(figures) if figure.metric == metric)
    return row.cells(group.objective)[place]
