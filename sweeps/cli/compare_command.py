"""`bankwise compare`. Imports stay inside, as in `main`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sweeps.cli.options import RUNS, Html, Json, Markdown, wrote


def command(
    run_a: Annotated[Path, typer.Argument(metavar="RUN_A", help=RUNS)],
    run_b: Annotated[Path, typer.Argument(metavar="RUN_B", help=RUNS)],
    html: Html = None,
    markdown: Markdown = None,
    json: Json = False,
) -> None:
    """Say what differs between two runs, with intervals."""
    from sweeps.cli.reporting import compare

    wrote(compare(run_a, run_b, html, markdown, json), json)
