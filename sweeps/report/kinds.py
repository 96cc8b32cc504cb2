"""From a run directory to its findings, and from these to the page of their kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hwmodel.description.description import DescriptionError
from sweeps.plan.lazy_registry import Registry
from sweeps.plan.measures import MEASURES
from sweeps.plan.rules import RULES, STUDY, page_of
from sweeps.report.account import Account, page_at
from sweeps.run.findings import Findings
from sweeps.run.reading import RunParts, RunShape, read_run
from sweeps.run.store import RunDirectory

_SHAPES: Registry[RunShape] = Registry(
    {"sweep": "sweeps.run.reading:SWEEP", STUDY: "sweeps.study.study_findings:STUDY"}
)
"""By the `kind` of a config."""
_FOUND: Registry[Callable[[RunParts, RunDirectory], Findings[Any]]] = Registry(
    {"sweep": "sweeps.run.findings:find_sweep", STUDY: "sweeps.study.study_findings:find_study"}
)
_OF_STUDY = "sweeps.report.study_page:account"


def find(directory: RunDirectory) -> Findings[Any]:
    """What is found in a run directory, finished or not, whole or not. Raises DescriptionError
    where there is nothing to show."""
    run = read_run(directory, _SHAPES)
    for key, known in (("rule", RULES), ("measure", MEASURES)):
        if (name := run.config.get(key)) is not None and name not in known:
            why = f"made with {key} {name!r} of a plug-in: name its file with --plugin"
            raise DescriptionError(why, directory.path)
    return _FOUND[STUDY if run.config.get("kind") == STUDY else "sweep"](run, directory)


def account_of(findings: Findings[Any]) -> Account:
    """What a run has to say, by its kind."""
    config = findings.table.config
    page = _OF_STUDY if config.get("kind") == STUDY else page_of(config)
    return page_at(page)(findings)
