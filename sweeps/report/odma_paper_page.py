"""A run of the ODMA paper's table, with `paged` beside it or without."""

from __future__ import annotations

from sweeps.plan.paged_findings import PaperTable
from sweeps.report import paper_sentences as sentences
from sweeps.report.paged_verdict import DEFINITIONS, effects_grid, paged_charts, policies_grid
from sweeps.report.paper_verdict import cases_grid, map_grid, paper_charts, placement_grid
from sweeps.report.presenter import Presenter
from sweeps.report.section import Block, Grid, Say, Section
from sweeps.run.findings import Findings


class OdmaPaperPage(Presenter):
    """The paper's figures beside what is simulated under each set of assumptions."""

    def sentences(self, found: Findings[PaperTable]) -> list[str]:
        if cards := found.own.cards:
            return list(sentences.paged([each for card in cards for each in card.effects]))
        return list(sentences.paper(found.own.datasets))

    def grids(self, found: Findings[PaperTable]) -> list[Grid]:
        datasets, cards = found.own.datasets, found.own.cards
        if cards:
            return [effects_grid(cards), policies_grid(cards)]
        grids = [placement_grid(datasets), map_grid(datasets), cases_grid(datasets)]
        return [grid for grid in grids if grid.rows]

    def sections(self, found: Findings[PaperTable], grids: list[Grid]) -> list[Block]:
        own = found.own
        charts = paged_charts(own.cards) if own.cards else paper_charts(own.datasets)
        notes = [Say(text) for text in DEFINITIONS] if own.cards else []
        return [Section("Results", [*grids, *notes, *charts])]
