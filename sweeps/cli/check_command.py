"""`bankwise check`. Imports stay inside, as in `main`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sweeps.cli.options import AT_FAULT, Plugin, Set, wrote


def command(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE", help="Files, folders or shipped names; all that ships by default."
        ),
    ] = None,
    assumed: Annotated[
        bool, typer.Option("--assumed", help="Also list values without a public source.")
    ] = False,
    schema: Annotated[
        Path | None,
        typer.Option(
            "--schema", metavar="DIR", help="Write JSON Schemas there, for editors: one a kind."
        ),
    ] = None,
    overrides: Set = None,
    plugin: Plugin = None,
) -> None:
    """Check descriptions: each mistake with its file and line.

    Exit code 0: no mistake; 2: a mistake. Where --schema is given and no FILE, nothing is checked.
    """
    if schema is not None:
        from sweeps.cli.schema import write

        wrote(write(schema), False)
        if not files:
            return
    from sweeps.cli.inspection import inspect

    if inspect(files or [], overrides or [], assumed):
        raise typer.Exit(AT_FAULT)
