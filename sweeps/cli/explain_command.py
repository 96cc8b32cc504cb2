"""`bankwise explain`: from a gap of a run down to its causes. Imports stay inside, as in `main`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sweeps.cli.options import FOUND, RUNS, Jobs, Json, Plugin, wrote

if TYPE_CHECKING:
    from sweeps.sections.section import Section


def command(
    run: Annotated[
        str,
        typer.Argument(metavar="RUN", help=RUNS),
    ],
    point: Annotated[
        str,
        typer.Argument(
            metavar="POINT",
            help="Which gaps: values of axes, one competitor or two, between commas: "
            "mlu370-x4,odma. Default: the best over each other, everywhere.",
        ),
    ] = "",
    following: Annotated[
        str | None,
        typer.Option(
            "--next",
            metavar="QUESTIONS",
            help="Instead put the next question to the largest gap, or to those of POINT: all, or "
            "some between commas (limit, workload, chunk, kv, cap, clients, seed, weights, router, "
            "load, predictor, layout, answer).",
        ),
    ] = None,
    jobs: Jobs = None,
    json: Json = False,
    plugin: Plugin = None,
) -> None:
    """Say why the best of a run serves more.

    It is simulated without each cause: reservation, holes, head-of-line blocking, preemption,
    copies and KV layout are removed one after another, in two orders. The run's report gets a
    waterfall. What is simulated is kept in the run directory: a second call continues.

    With --next it is said how far a gap reaches: both sides are simulated again with what the run
    holds fixed changed, one thing after another.

    Exit code 0: done; 1: a simulation failed; 2: invalid input; 130: interrupted.
    """
    from sweeps.cli.reporting import write
    from sweeps.report.contents import read_report
    from sweeps.report.screen import print_json, print_section
    from sweeps.run.executor import worker_count
    from sweeps.run.store import last_run

    path = last_run(Path(run))
    done = _causes if following is None else _next
    record, failures, shown = done(path, point, following or "", worker_count(jobs))
    if json:
        print_json(record)
    else:
        for section in shown:
            print_section(section)
            print()
        wrote(write([read_report(path).section], path / "report.html", path / "report.md"), json)
    if failures:
        raise typer.Exit(FOUND)


Done = tuple[dict[str, Any], list[str], list["Section"]]
"""What was found as JSON, what failed, and what is shown."""


def _causes(path: Path, point: str, _: str, jobs: int) -> Done:
    from sweeps.report.conditions import conditions
    from sweeps.report.contents import read_report
    from sweeps.report.explanation_page import sections
    from sweeps.run.explained_run import explain_run
    from sweeps.run.explanation import record
    from sweeps.run.progress import Progress

    done = explain_run(path, point, jobs, Progress())
    table = read_report(path).table
    shown = sections(done.found, "" if table is None else conditions(table))
    return record(done.found, {"failures": done.failures}), done.failures, shown


def _next(path: Path, point: str, following: str, jobs: int) -> Done:
    from sweeps.plan.next_question import chosen
    from sweeps.report.next_page import sections
    from sweeps.run.next_answer import record
    from sweeps.run.next_run import ask_next
    from sweeps.run.progress import Progress

    done = ask_next(path, point, chosen(following), jobs, Progress())
    return record(done.found, {"failures": done.failures}), done.failures, sections(done.found)
