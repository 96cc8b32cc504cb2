"""What differs between two runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from sweeps.analyse.comparison import Comparison
from sweeps.ask.question import Question, Text, Typed
from sweeps.report import comparison_page
from sweeps.report.contents import read_report
from sweeps.run.store import last_run
from sweeps.sections.section import Section


@dataclass(frozen=True)
class ComparedRuns:
    """Inputs, results and verdicts of two runs beside each other."""

    comparison: Comparison

    def record(self) -> dict[str, Any]:
        """In JSON's types."""
        return comparison_page.record(self.comparison)


class CompareQuestion(Question):
    """Say what differs between two runs, with intervals."""

    sets: ClassVar[bool] = False
    plugs: ClassVar[bool] = True
    former: ClassVar[Mapping[str, str]] = {"--html": "`--save`", "--markdown": "`--save`"}

    run_a: Annotated[Text, Typed("RUN_A", argument=True)]
    """First run: a directory, or NAME for the last runs/NAME-N."""
    run_b: Annotated[Text, Typed("RUN_B", argument=True)]
    """Second run, likewise a directory or a NAME."""

    def answer(self) -> ComparedRuns:
        """Raises DescriptionError where a run cannot be read."""
        a, b = (read_report(last_run(Path(run))).findings for run in (self.run_a, self.run_b))
        return ComparedRuns(comparison_page.compare(a, b))

    def section(self, findings: ComparedRuns) -> Section:
        return comparison_page.section(findings.comparison)
