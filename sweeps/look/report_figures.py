"""A chart of a run's report as a picture, and a page on which to choose among what runs varied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from sweeps.ask.question import Question, RunName, Several, Text, Typed
from sweeps.report.contents import Report, read_report
from sweeps.report.explorer import explored
from sweeps.report.page import page
from sweeps.report.picture import Picture, picture, pictures
from sweeps.run.store import last_run, write_atomically
from sweeps.sections.section import Block, Grid, Say, Section, as_json


@dataclass(frozen=True)
class Figures:
    """`named`: titles of a report's figures; `picture`: the one that is asked for."""

    named: dict[str, str]
    picture: Picture | None

    def record(self) -> dict[str, Any]:
        """In JSON's types: what is drawn, or the names."""
        if self.picture is None:
            return {"figures": self.named}
        return {"figure": self.picture.name, "rows": self.picture.rows}


class ReportFigureQuestion(Question):
    """Draw one chart of a run's report as a picture, for a slide or a paper.

    Without NAME the figures of the report are listed.
    """

    sets: ClassVar[bool] = False
    plugs: ClassVar[bool] = True

    run: RunName
    """A run directory, or NAME for the last runs/NAME-N."""
    name: Annotated[Text, Typed("NAME", argument=True)] = ""
    """Figure to draw (default: none, all are listed)."""
    out: Annotated[Path, Typed("FILE")] | None = None
    """File of the picture: .svg, .png or .pdf (default: NAME.svg)."""
    dark: bool = False
    """Draws light on dark paper."""

    def answer(self) -> Figures:
        report = read_report(last_run(Path(self.run)))
        named = {name: each.charts[0].chart.title for name, each in pictures(report).items()}
        return Figures(named, picture(report, self.name) if self.name else None)

    def section(self, findings: Figures) -> Section:
        if findings.picture is None:
            rows = [[name, title] for name, title in findings.named.items()]
            return Section("Figures", [Grid("", ["figure", "shows"], rows, text=True)])
        charts: list[Block] = [each.chart for each in findings.picture.charts]
        return Section(findings.picture.name, charts, compared=findings.picture.compared)

    def write_files(self, findings: Figures) -> list[Path]:
        if findings.picture is None:
            return []
        return [findings.picture.save(self.out or f"{self.name}.svg", self.dark)]


@dataclass(frozen=True)
class ExploredRuns:
    """Runs among whose varied values one chooses on a page."""

    reports: Sequence[Report]

    def record(self) -> dict[str, Any]:
        """In JSON's types, as the page has them."""
        return {"runs": [as_json(explored(report)) for report in self.reports]}


class ReportExploreQuestion(Question):
    """Write a page on which to choose among what runs have varied."""

    sets: ClassVar[bool] = False
    plugs: ClassVar[bool] = True

    runs: Annotated[
        tuple[Text, ...], Several, Field(min_length=1), Typed("RUN", argument=True)
    ]  # fmt: skip
    """Run directories, or NAME for the last runs/NAME-N."""
    out: Annotated[Path, Typed("FILE")] = Path("explore.html")
    """File of the page."""

    def answer(self) -> ExploredRuns:
        return ExploredRuns([read_report(last_run(Path(run))) for run in self.runs])

    def section(self, findings: ExploredRuns) -> Section:
        said = [f"{each.table.name}: {each.sentences[0]}" for each in findings.reports]
        return Section("Runs to explore", [Say(text) for text in said])

    def write_files(self, findings: ExploredRuns) -> list[Path]:
        self.out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.out, page([explored(report) for report in findings.reports]))
        return [self.out]
