"""Who shows which kind of run (`sweeps.plan.rules.kind_of`), where that is not as by default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweeps.plan.lazy_registry import Registry
from sweeps.plan.rules import STUDY, kind_of
from sweeps.report.presenter import Presenter
from sweeps.run.findings import Findings
from sweeps.run.reading import RunShape, read_run
from sweeps.run.store import RunDirectory

PRESENTERS: Registry[type[Presenter]] = Registry({
    "odma_paper": "sweeps.report.odma_paper_page:OdmaPaperPage",
    "effects": "sweeps.report.what_if_page:WhatIfPage",
    "crossing": "sweeps.report.crossing_page:CrossingPage",
    "least": "sweeps.report.least_page:LeastPage",
    STUDY: "sweeps.report.study_page:StudyPage",
})  # fmt: skip
_SHAPES: Registry[RunShape] = Registry(
    {"sweep": "sweeps.run.reading:SWEEP", STUDY: "sweeps.study.study_findings:STUDY"}
)
"""By the `kind` of a config."""


def presenter_of(config: Mapping[str, Any]) -> Presenter:
    """Who shows a run, by its config."""
    return PRESENTERS.get(kind_of(config), Presenter)()


def find(directory: RunDirectory) -> Findings[Any]:
    """What is found in a run directory, finished or not, whole or not. Raises DescriptionError
    where there is nothing to show."""
    run = read_run(directory, _SHAPES)
    return presenter_of(run.config).find(run, directory)
