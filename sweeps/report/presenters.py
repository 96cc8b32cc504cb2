"""Who shows which kind of run (`sweeps.plan.kinds.kind_of`): a line each."""

from __future__ import annotations

from sweeps.analyse.table import Table
from sweeps.plan.kinds import STUDY, kind_of
from sweeps.report.answer_page import AnswerPage
from sweeps.report.atlas_page import AtlasPage
from sweeps.report.break_even_page import BreakEvenPage
from sweeps.report.odma_paper_page import OdmaPaperPage
from sweeps.report.presenter import Presenter
from sweeps.report.sentences import conditions
from sweeps.report.study_page import StudyPage
from sweeps.report.what_if_page import WhatIfPage
from sweeps.run.reading import read_run
from sweeps.run.store import RunDirectory

PRESENTERS: dict[str, Presenter] = {
    "serving": Presenter(),
    "kv_read": Presenter(),
    "odma_paper": OdmaPaperPage(),
    "atlas": AtlasPage(),
    "break_even": BreakEvenPage(),
    "answer": AnswerPage(),
    "what_if": WhatIfPage(),
    STUDY: StudyPage(),
}
_SHAPES = {"sweep": Presenter.shape, STUDY: StudyPage.shape}
"""By the `kind` of a config."""


def presenter_of(table: Table) -> Presenter:
    """Who shows a run."""
    return PRESENTERS[kind_of(table.config)]


def read_table(directory: RunDirectory) -> Table:
    """Read a run directory, finished or not, whole or not. Raises DescriptionError where there is
    nothing to show."""
    run = read_run(directory, _SHAPES)
    presenter = PRESENTERS[kind_of(run.config)]
    table = presenter.table(run, directory)
    table.own_tables = bool(presenter.grids(table))
    return table


def sentences(table: Table) -> list[str]:
    """What a run found, in the words of its kind; the first with the conditions."""
    first, *others = presenter_of(table).sentences(table) or ["Nothing was found."]
    return [f"{first} {conditions(table)}", *others]
