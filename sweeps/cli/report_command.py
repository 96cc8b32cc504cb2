"""`bankwise report`. Imports stay inside, as in `main`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sweeps.cli.options import RUNS, Html, Json, Markdown, mistake, refuse, wrote

LIST = "list"
"""The name that lists figures."""


def command(
    run_dirs: Annotated[list[Path], typer.Argument(metavar="RUN", help=RUNS)],
    html: Html = None,
    markdown: Markdown = None,
    figure: Annotated[
        str | None,
        typer.Option(
            "--figure", metavar="NAME",
            help=f"Instead: one chart as a picture, for a slide or a paper; {LIST} names them.",
        ),
    ] = None,
    explore: Annotated[
        bool,
        typer.Option("--explore", help="Instead: a page with sliders over what runs have varied."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE",
            help="Of --figure (SVG, PNG, PDF; NAME.svg) or --explore (explore.html).",
        ),
    ] = None,
    dark: Annotated[
        bool, typer.Option("--dark", help="With --figure: light on dark paper.")
    ] = False,
    json: Json = False,
) -> None:  # fmt: skip
    """Print the findings of runs, and write their reports.

    Each run directory gets a report.html and a report.md, unless --html or --markdown names one
    file for all, which then also compares the first run with the others. With --json only the files
    that are named are written.
    """
    pages = {"--html": html, "--markdown": markdown, "--json": json}
    if figure is not None:
        refuse("does not go with --figure", {**pages, "--explore": explore})
        if len(run_dirs) > 1:
            raise mistake("takes one run", "--figure")
        _figure(run_dirs[0], figure, out, dark)
        return
    refuse("needs --figure", {"--dark": dark})
    if explore:
        refuse("does not go with --explore", pages)
        _explore(run_dirs, out or Path("explore.html"))
        return
    refuse("needs --figure or --explore", {"--out": out})
    from sweeps.cli.reporting import report

    wrote(report(run_dirs, html, markdown, json), json)


def _figure(run: Path, name: str, out: Path | None, dark: bool) -> None:
    """Write a chart of a run's report, or list them."""
    from sweeps.report.contents import read_report
    from sweeps.report.picture import picture, pictures
    from sweeps.run.store import last_run

    report = read_report(last_run(run))
    if name == LIST:
        for each, found in pictures(report).items():
            print(f"{each:20} {found.charts[0].chart.title}")
        return
    wrote([picture(report, name).save(out or f"{name}.svg", dark)], False)


def _explore(run_dirs: list[Path], out: Path) -> None:
    """Write one page with sliders over what runs have varied."""
    from sweeps.report.contents import read_report
    from sweeps.report.explorer import explorer
    from sweeps.run.store import last_run, write_atomically

    reports = [read_report(last_run(each)) for each in run_dirs]
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, explorer(reports))
    wrote([out], False)
