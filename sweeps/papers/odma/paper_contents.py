"""The sections of a run of the ODMA paper's table, with `paged` beside it or without."""

from __future__ import annotations

from sweeps.papers.odma.paged_verdict import (
    DEFINITIONS,
    effect_rows,
    is_paged,
    paged_charts,
    policy_rows,
)
from sweeps.papers.odma.paper_verdict import paper_charts, paper_rows
from sweeps.render.section import Block, Grid, Say, Section
from sweeps.reports.table import Table


def paper_grids(table: Table) -> list[Grid]:
    """Its tables."""
    if is_paged(table):
        return [Grid("Effects", *effect_rows(table)), Grid("Policies", *policy_rows(table))]
    return [Grid("", *paper_rows(table))]


def paper_blocks(table: Table) -> list[Block]:
    """Tables, what stands in them, and charts."""
    paged = is_paged(table)
    charts = paged_charts(table) if paged else paper_charts(table)
    notes = [Say(text) for text in DEFINITIONS] if paged else []
    return [Section("Results", [*paper_grids(table), *notes, Say(table.note), *charts])]
