"""A run of the ODMA paper's table, with `paged` beside it or without."""

from __future__ import annotations

from sweeps.analyse.table import Table
from sweeps.plan.paged_findings import is_paged
from sweeps.report.paged_verdict import (
    DEFINITIONS,
    effect_rows,
    paged_charts,
    paged_sentences,
    policy_rows,
)
from sweeps.report.paper_verdict import paper_charts, paper_rows, paper_sentences
from sweeps.report.presenter import Presenter
from sweeps.report.section import Block, Grid, Say, Section


class OdmaPaperPage(Presenter):
    """The paper's figures beside what is simulated under each set of assumptions."""

    def sentences(self, table: Table) -> list[str]:
        return paged_sentences(table) if is_paged(table) else paper_sentences(table)

    def sections(self, table: Table) -> list[Block]:
        paged = is_paged(table)
        charts = paged_charts(table) if paged else paper_charts(table)
        notes = [Say(text) for text in DEFINITIONS] if paged else []
        return [Section("Results", [*self.grids(table), *notes, Say(table.note), *charts])]

    def grids(self, table: Table) -> list[Grid]:
        if is_paged(table):
            return [Grid("Effects", *effect_rows(table)), Grid("Policies", *policy_rows(table))]
        return [Grid("", *paper_rows(table))]
