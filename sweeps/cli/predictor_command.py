"""The commands about output-length predictors. Imports stay inside, as in `cli`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sweeps.cli.options import Json

app = typer.Typer(
    help="Output-length predictors: train makes one.", no_args_is_help=True, add_completion=False
)


@app.callback()
def _predictor() -> None:
    """Output-length predictors: train makes one."""


@app.command()
def train(
    file: Annotated[
        Path,
        typer.Argument(help="JSON lines: prompt (or instruction, input) and output_tokens; .gz."),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="MODEL", help="Write the model here (.json).")
    ] = None,
    json: Json = False,
) -> None:
    """Train an output-length predictor and evaluate it on held-out prompts."""
    from hwmodel.description.description import DescriptionError
    from policies.predictors.training import train as learn
    from policies.predictors.training import write
    from sweeps.cli.training_table import show_training
    from sweeps.report.screen import print_json

    if out is not None and out.suffix != ".json":
        raise DescriptionError("expected a name that ends in .json", out)
    found = learn(file)
    (print_json if json else show_training)(found["report"])
    if out is not None:
        write(found, out)
        if not json:
            print(f"wrote {out}; in an experiment: predictor: {{kind: trained, model: {out}}}")
