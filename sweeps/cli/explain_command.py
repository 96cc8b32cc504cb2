"""`bankwise explain`: from a gap of a run down to its causes. Imports stay inside, as in `main`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sweeps.cli.options import FOUND, RUNS, Jobs, Json, Plugin, wrote


def command(
    run: Annotated[
        str,
        typer.Argument(metavar="RUN", help=RUNS),
    ],
    point: Annotated[
        str,
        typer.Argument(
            metavar="[POINT]",
            help="Which gaps: values of axes, one competitor or two, between commas: "
            "mlu370-x4,odma. Default: the best over each other, everywhere.",
        ),
    ] = "",
    jobs: Jobs = None,
    json: Json = False,
    plugin: Plugin = None,
) -> None:
    """Say why the best of a run serves more.

    It is simulated without each cause: reservation, holes, head-of-line blocking, preemption,
    copies and KV layout are removed one after another, in two orders. The run's report gets a
    waterfall. What is simulated is kept in the run directory: a second call continues.

    Exit code 0: done; 1: a simulation failed; 2: invalid input; 130: interrupted.
    """
    from sweeps.cli.reporting import write
    from sweeps.report import explanation_page
    from sweeps.report.contents import read_report
    from sweeps.report.screen import print_json, print_table
    from sweeps.run.executor import worker_count
    from sweeps.run.explained_run import explain_run
    from sweeps.run.explanation import record
    from sweeps.run.progress import Progress
    from sweeps.run.store import last_run

    path = last_run(Path(run))
    done = explain_run(path, point, worker_count(jobs), Progress())
    if json:
        print_json(record(done.found, {"failures": done.failures}))
    else:
        for found in done.found:
            for grid in explanation_page.grids(found):
                print_table(grid.columns, grid.rows)
                print()
            print(f"{explanation_page.sentence(found)}\n\n{explanation_page.note(found)}\n")
        wrote(write([read_report(path).section], path / "report.html", path / "report.md"), json)
    if done.failures:
        raise typer.Exit(FOUND)
