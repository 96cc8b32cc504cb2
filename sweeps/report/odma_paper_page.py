"""A run of the ODMA paper's table."""

from __future__ import annotations

from sweeps.plan.paper_findings import DatasetResult
from sweeps.report import paper_sentences as sentences
from sweeps.report.paper_verdict import (
    cases_grid,
    map_grid,
    others_grid,
    paper_charts,
    placement_grid,
)
from sweeps.report.presenter import Presenter
from sweeps.run.findings import Findings
from sweeps.sections.section import Block, Grid, Section


class OdmaPaperPage(Presenter):
    """The paper's figures beside what is simulated under each set of assumptions."""

    def sentences(self, found: Findings[list[DatasetResult]]) -> list[str]:
        return list(sentences.paper(found.own))

    def grids(self, found: Findings[list[DatasetResult]]) -> list[Grid]:
        forms = (placement_grid, map_grid, others_grid, cases_grid)
        return [grid for form in forms if (grid := form(found.own)).rows]

    def sections(self, found: Findings[list[DatasetResult]], grids: list[Grid]) -> list[Block]:
        return [Section("Results", [*grids, *paper_charts(found.own)])]
