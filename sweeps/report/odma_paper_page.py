"""A run of the ODMA paper's table."""

from __future__ import annotations

from sweeps.plan.paper_findings import DatasetResult
from sweeps.report import paper_sentences as sentences
from sweeps.report.account import Account
from sweeps.report.group_sections import lacking
from sweeps.report.paper_verdict import (
    cases_grid,
    map_grid,
    others_grid,
    paper_charts,
    placement_grid,
)
from sweeps.report.sweep_page import inputs
from sweeps.run.findings import Findings
from sweeps.sections.section import Section


def account(findings: Findings[list[DatasetResult]]) -> Account:
    """The paper's figures beside what is simulated under each set of assumptions."""
    forms = (placement_grid, map_grid, others_grid, cases_grid)
    grids = [grid for form in forms if (grid := form(findings.own)).rows]
    results = Section("Results", [*grids, *paper_charts(findings.own)])
    table = findings.table
    said = list(sentences.paper(findings.own))
    return Account(said, [results], grids, inputs(table), list(lacking(table)))
