"""A run of the ODMA paper's table, with `paged` beside it or without."""

from __future__ import annotations

from sweeps.analyse.table import Table
from sweeps.plan.paged_findings import effects, is_paged
from sweeps.plan.paper_findings import dataset_results
from sweeps.report import sentences
from sweeps.report.paged_verdict import (
    DEFINITIONS,
    effect_rows,
    paged_charts,
    policy_rows,
)
from sweeps.report.paper_verdict import map_grid, paper_charts, paper_rows, placement_grid
from sweeps.report.presenter import Presenter
from sweeps.report.section import Block, Grid, Say, Section


class OdmaPaperPage(Presenter):
    """The paper's figures beside what is simulated under each set of assumptions."""

    def sentences(self, table: Table) -> list[str]:
        if is_paged(table):
            return list(sentences.paged(effects(table)))
        return list(sentences.paper(dataset_results(table)))

    def sections(self, table: Table) -> list[Block]:
        paged = is_paged(table)
        charts = paged_charts(table) if paged else paper_charts(table)
        notes = [Say(text) for text in DEFINITIONS] if paged else []
        return [Section("Results", [*self.grids(table), *notes, Say(table.note), *charts])]

    def grids(self, table: Table) -> list[Grid]:
        if is_paged(table):
            return [Grid("Effects", *effect_rows(table)), Grid("Policies", *policy_rows(table))]
        grids = [
            placement_grid(table),
            map_grid(table),
            Grid("All assumptions", *paper_rows(table)),
        ]
        return [grid for grid in grids if grid.rows]
