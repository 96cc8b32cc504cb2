"""`bankwise report`. Imports stay inside, as in `main`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sweeps.cli.options import RUNS, Html, Json, Markdown, Plugin, wrote
from sweeps.cli.packaged import formerly


@formerly({
    "--figure": "a verb: `bankwise report figure RUN NAME`",
    "--explore": "a verb: `bankwise report explore RUN...`",
    "--dark": "of `bankwise report figure RUN NAME`",
})  # fmt: skip
def command(
    run_dirs: Annotated[list[Path], typer.Argument(metavar="RUN", help=RUNS)],
    html: Html = None,
    markdown: Markdown = None,
    json: Json = False,
    plugin: Plugin = None,
) -> None:
    """Print the findings of runs, and write their reports.

    Each run directory gets a report.html and a report.md, unless --html or --markdown names one
    file for all, which then also compares the first run with the others. Only the files that are
    named are written where JSON is printed.

    bankwise report figure: Draw one chart of a run's report as a picture.

    bankwise report explore: Write a page on which to choose among what runs have varied.
    """
    from sweeps.cli.reporting import report

    wrote(report(run_dirs, html, markdown, json), json)
