"""From a gap of a run down to its causes, and how far it reaches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

from sweeps.ask.question import Count, Question, RunName, Text, Typed
from sweeps.plan.next_question import chosen
from sweeps.report import explanation_page, next_page
from sweeps.report.conditions import conditions
from sweeps.report.contents import read_report
from sweeps.report.shown import write_reports
from sweeps.run import explanation, next_answer
from sweeps.run.executor import worker_count
from sweeps.run.explained_run import explain_run
from sweeps.run.next_run import ask_next
from sweeps.run.progress import Progress
from sweeps.run.store import last_run
from sweeps.sections.section import Section


@dataclass(frozen=True)
class GapFindings:
    """`plain`: in JSON's types; `sections`: one a gap; `failures`: of simulations."""

    plain: dict[str, Any]
    sections: list[Section]
    failures: list[str]

    def record(self) -> dict[str, Any]:
        """In JSON's types."""
        return self.plain


class GapQuestion(Question):
    """A question about gaps of a run."""

    sets: ClassVar[bool] = False
    plugs: ClassVar[bool] = True

    run: RunName
    """A run directory, or NAME for the last runs/NAME-N."""
    point: Annotated[Text, Typed("POINT", argument=True)] = ""
    """Which gaps: values of axes, one competitor or two, between commas, as mlu370-x4,odma
    (default: the best over each other, everywhere)."""
    jobs: Count | None = None
    """Worker processes (default: one a core)."""

    @property
    def path(self) -> Path:
        """The run's directory. Raises DescriptionError."""
        return last_run(Path(self.run))

    def write_files(self, findings: GapFindings) -> list[Path]:
        """The run's report is made anew."""
        path = self.path
        return write_reports([read_report(path).section], path / "report.html", path / "report.md")

    def failed(self, findings: GapFindings) -> bool:
        return bool(findings.failures)


class ExplainQuestion(GapQuestion):
    """Say why the best of a run serves more.

    It is simulated without each cause: reservation, holes, head-of-line blocking, preemption,
    copies and KV layout are removed one after another, in two orders. The run's report gets a
    waterfall. What is simulated is kept in the run directory: a second call continues.

    Exit code 0: done; 1: a simulation failed; 2: invalid input; 130: interrupted.
    """

    former: ClassVar[Mapping[str, str]] = {"--next": "a verb: `bankwise explain next RUN`"}

    def answer(self) -> GapFindings:
        """Raises DescriptionError, and Stopped on Ctrl-C."""
        done = explain_run(self.path, self.point, worker_count(self.jobs), Progress())
        table = read_report(self.path).table
        shown = explanation_page.sections(done.explanations, conditions(table))
        plain = explanation.record(done.explanations, {"failures": done.failures})
        return GapFindings(plain, shown, done.failures)

    def section(self, findings: GapFindings) -> Section:
        return Section(f"Why, in {self.path.name}", _open(findings.sections))


class ExplainNextQuestion(GapQuestion):
    """Say how far a gap of a run reaches.

    Both sides are simulated again with what the run holds fixed changed, one thing after another.
    Without POINT it is the largest gap.
    """

    questions: Text = "all"
    """What is changed: all, or some between commas (limit, workload, chunk, kv, cap, clients, seed,
    weights, router, load, predictor, layout, answer)."""

    def answer(self) -> GapFindings:
        """Raises DescriptionError, and Stopped on Ctrl-C."""
        questions, workers = chosen(self.questions), worker_count(self.jobs)
        done = ask_next(self.path, self.point, questions, workers, Progress())
        plain = next_answer.record(done.answers, {"failures": done.failures})
        return GapFindings(plain, next_page.sections(done.answers), done.failures)

    def section(self, findings: GapFindings) -> Section:
        return Section(f"The next question, in {self.path.name}", _open(findings.sections))


def _open(sections: list[Section]) -> list[Any]:
    """Sections that a page shows unfolded."""
    return [replace(each, folded=False) for each in sections]
