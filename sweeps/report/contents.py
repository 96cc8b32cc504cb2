"""The report of a run: the account of its kind in a frame, as the section that all printers print.

Each is made once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from sweeps.analyse.facts import Verdict
from sweeps.analyse.objective import figures_of
from sweeps.analyse.table import Group, Table
from sweeps.report import misfit_sheet, next_page, software_sheet
from sweeps.report.conditions import conditions
from sweeps.report.footnotes import footnotes
from sweeps.report.inputs import configuration, origin
from sweeps.report.kinds import account_of, find
from sweeps.report.overview import compared, overview
from sweeps.report.run_length import at_capacity, too_short
from sweeps.run.findings import Findings, as_data
from sweeps.run.store import RunDirectory
from sweeps.sections.chart import Chart
from sweeps.sections.section import Block, Grid, Say, Section, as_json, is_chart


class Report:
    """Of one run, finished or not."""

    def __init__(self, findings: Findings[Any]) -> None:
        self.findings = findings
        self._account = account_of(findings)

    @property
    def table(self) -> Table:
        return self.findings.table

    @cached_property
    def sentences(self) -> list[str]:
        """What the run found, in the words of its kind; the first with the conditions, and with
        how far it reaches where that was asked."""
        said = self._account.sentences or [_nothing(self.table)]
        reach = "".join(f" {next_page.sentence(each)}" for each in self.findings.next_answers[:1])
        more = [next_page.sentence(each) for each in self.findings.next_answers[1:]]
        more += misfit_sheet.sentences(self.table)
        return [f"{said[0]} {conditions(self.table)}{reach}", *more, *said[1:]]

    @property
    def grids(self) -> Sequence[Grid]:
        """The tables that answer, where its kind has other ones than those of groups."""
        return self._account.grids

    @cached_property
    def problems(self) -> list[str]:
        """What is missing or cannot be shown, a sentence each."""
        lacking = self._account.lacking
        return [*self.table.problems, *lacking, *too_short(self.table), *at_capacity(self.table)]

    @cached_property
    def section(self) -> Section:
        """All of it: the question, the answer, what shows it, what it rests on."""
        first = overview(self.findings, bool(self.grids))
        shown = [_untitled(block) for each in first for block in each.walk() if is_chart(block)]
        results = _without(self._account.sections, shown)
        inputs = configuration(self.table, self._account.inputs, self._account.points)
        rest = [replace(each, folded=True) for each in [inputs, *origin(self.table)]]
        software = software_sheet.sections(self.table)
        unfit = misfit_sheet.sections(self.table)
        blocks: list[Block] = [*self.answer, *first, *self._others(), *unfit, *results, *software]
        every = [*blocks, *self._foot(blocks), *rest]
        return Section(self.table.name, every, compared=compared(self.table))

    @property
    def answer(self) -> list[Block]:
        """The question, what is missing, and the first finding."""
        question = self.table.question or str(self.table.config.get("summary", ""))
        return [
            Say(question, "question"), *(Say(f"{text}.", "problem") for text in self.problems),
            Say(self.sentences[0], "lead"),
        ]  # fmt: skip

    @property
    def tables(self) -> Sequence[Block]:
        """The sections of results, as they are without a picture above them."""
        return self._account.sections

    def _others(self) -> list[Block]:
        others = self.sentences[1:]
        title = f"{len(others)} more finding{'s' * (len(others) > 1)}"
        more = Section(title, [Say(text, "verdict") for text in others], folded=True)
        return [*([more] if others else []), Say(f"{self.table.state}.", "state")]

    def _foot(self, shown: list[Block]) -> list[Block]:
        assumed = sum(len(items) for items in self.table.assumed.values())
        notes = footnotes(self.table, shown)
        return [
            *([Say(notes, "foot")] if notes else []),
            Say(
                f"Of the numbers behind this {assumed} {'is' if assumed == 1 else 'are'} assumed;"
                " the report lists them.",
                "foot",
            ),
        ]

    def record(self) -> dict[str, Any]:
        """Verdicts, figures and all findings in JSON's types, beside the section."""
        table = self.table
        return {
            "run": str(table.path), "name": table.name, "question": table.question,
            "done": table.done, "total": table.total, "problems": self.problems,
            "sentences": self.sentences,
            "groups": [*map(_record, table.groups, self.findings.verdicts)],
            "findings": as_data(self.findings), "assumed": table.assumed, **as_json(self.section),
        }  # fmt: skip


def read_report(path: Path) -> Report:
    """The report of a run directory. Raises DescriptionError where there is nothing to show."""
    return Report(find(RunDirectory(path)))


def _nothing(table: Table) -> str:
    """Said where a kind has no sentence."""
    if table.done:
        return "What is there does not answer this yet; the tables have each result."
    return "There is no result yet."


def _without(blocks: Sequence[Block], shown: Sequence[Chart]) -> list[Block]:
    """Blocks at any depth, less the charts that stand above already, by whatever title."""
    return [
        replace(block, blocks=_without(block.blocks, shown)) if isinstance(block, Section)
        else block
        for block in blocks
        if not is_chart(block) or _untitled(block) not in shown
    ]  # fmt: skip


def _untitled(chart: Chart) -> Chart:
    return replace(chart, title="")


def _record(group: Group, verdict: Verdict) -> dict[str, Any]:
    return {
        "title": group.title,
        "points": group.others,
        "outcome": verdict.outcome,
        "objective": verdict.objective.metric,
        "best": verdict.best or None,
        "keep": verdict.ties[0] if verdict.outcome == "close" else None,
        "within": verdict.within if math.isfinite(verdict.within) else None,
        "kv_memory_binds": verdict.bound,
        "decided_by": verdict.decided_by if verdict.best else [],
        "rows": [
            {
                "name": row.name,
                "control": row.control,
                "replications": len(row.replications),
                "overloaded": row.overloaded,
                "metrics": {
                    figure.metric: {"mean": found.mean, "low": found.low, "high": found.high}
                    for figure in figures_of(group.objective)
                    if (found := row.interval(figure.metric)) is not None
                },
            }
            for row in group.ordered()
        ],
    }
