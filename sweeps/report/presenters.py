"""Who shows which kind of run (`sweeps.plan.rules.kind_of`), where that is not as by default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweeps.plan.rules import STUDY, kind_of
from sweeps.report.atlas_page import AtlasPage
from sweeps.report.crossing_page import CrossingPage
from sweeps.report.least_page import LeastPage
from sweeps.report.odma_paper_page import OdmaPaperPage
from sweeps.report.presenter import Presenter
from sweeps.report.study_page import StudyPage
from sweeps.report.what_if_page import WhatIfPage
from sweeps.run.findings import Findings
from sweeps.run.reading import read_run
from sweeps.run.store import RunDirectory

PRESENTERS: dict[str, Presenter] = {
    "odma_paper": OdmaPaperPage(),
    "atlas": AtlasPage(),
    "effects": WhatIfPage(),
    "crossing": CrossingPage(),
    "least": LeastPage(),
    STUDY: StudyPage(),
}
_DEFAULT = Presenter()
_SHAPES = {"sweep": Presenter.shape, STUDY: StudyPage.shape}
"""By the `kind` of a config."""


def presenter_of(config: Mapping[str, Any]) -> Presenter:
    """Who shows a run, by its config."""
    return PRESENTERS.get(kind_of(config), _DEFAULT)


def find(directory: RunDirectory) -> Findings[Any]:
    """What is found in a run directory, finished or not, whole or not. Raises DescriptionError
    where there is nothing to show."""
    run = read_run(directory, _SHAPES)
    return presenter_of(run.config).find(run, directory)
