"""`bankwise new predictor`. Imports stay inside: `--help` loads nothing heavy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sweeps.cli.options import Json, wrote


def predictor(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="JSON lines: prompt (or instruction, input) and output_tokens; .gz.",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the model here (.json).")
    ] = None,
    json: Json = False,
) -> None:
    """Train a predictor of output lengths.

    It is evaluated on held-out prompts.
    """
    from bankwise_trained_predictor.training import train, write
    from bankwise_trained_predictor.training_table import sheet
    from hwmodel.description.description import DescriptionError
    from sweeps.report.screen import print_json, print_section

    if out is not None and out.suffix != ".json":
        raise DescriptionError("expected a name that ends in .json", out)
    found = train(file)
    report = found["report"]
    print_json(report) if json else print_section(sheet(report))
    if out is not None:
        write(found, out)
        wrote([out], json)
        if not json:
            print(f"in an experiment: predictor: {{kind: trained, model: {out}}}")
