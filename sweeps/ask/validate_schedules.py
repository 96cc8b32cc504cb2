"""Our v1 engine beside schedules of the real vLLM, step for step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from policies.engines.schedule_cases import read_cases
from policies.engines.schedule_check import Agreement, check
from sweeps.ask.question import Question, Several, Typed
from sweeps.run.progress import Progress
from sweeps.sections.section import Grid, Say, Section


class SchedulesQuestion(Question):
    """Compare our v1 engine with schedules of the real vLLM, step for step.

    Exit code 1: a schedule differs.
    """

    sets: ClassVar[bool] = False

    files: Annotated[tuple[Path, ...], Several, Field(min_length=1), Typed("FILE", argument=True)]
    """Schedules, as JSON or gzip (docs/engines.md)."""

    def answer(self) -> list[Agreement]:
        cases = [case for file in self.files for case in read_cases(file)]
        return [check(case) for case in Progress().through("cases")(cases, len(cases))]

    def failed(self, findings: list[Agreement]) -> bool:
        return any(case.difference is not None for case in findings)

    def section(self, findings: list[Agreement]) -> Section:
        rows = [
            [case.name, case.vllm, f"{case.steps:,}", f"{case.agreeing:,}",
             str(case.difference or "none")[:120]]
            for case in findings
        ]  # fmt: skip
        heads = ["case", "vLLM", "steps", "agreeing steps", "first difference"]
        alike = sum(case.difference is None for case in findings)
        text = f"{alike} of {len(rows)} cases agree in every step"
        return Section("Schedules", [Grid("", heads, rows), Say(text)])
