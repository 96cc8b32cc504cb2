"""The command line. Imports stay inside the commands: `bankwise --help` loads nothing heavy."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from sweeps.cli import device_command, memory_commands, model_commands
from sweeps.cli.explain_command import explain
from sweeps.cli.export_command import export
from sweeps.cli.fit_command import fit
from sweeps.cli.options import (
    AT_FAULT,
    DONE,
    FOUND,
    INTERRUPTED,
    Cluster,
    Html,
    Jobs,
    Json,
    Markdown,
    Out,
    Set,
)
from sweeps.cli.schedule_command import schedule_check
from sweeps.cli.size_command import size
from sweeps.cli.validate_command import validate

app = typer.Typer(
    name="bankwise",
    help="Which KV-cache layout serves the most tokens on a memory device, and why.",
    epilog="Begin with: bankwise fit, then bankwise run quickstart",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        from sweeps.run.version import version

        print(f"bankwise {version()}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


app.command()(fit)
app.command()(size)
for _name, _command in memory_commands.COMMANDS.items():
    app.command(_name)(_command)
app.command("models")(model_commands.models)
app.command("kv-formats")(model_commands.kv_formats)
app.add_typer(model_commands.app, name="model")
app.add_typer(device_command.app, name="device")
app.command()(explain)
app.command()(export)
app.command()(validate)
app.command()(schedule_check)


@app.command()
def check(
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Files, folders or shipped names; everything shipped by default."),
    ] = None,
    assumed: Annotated[
        bool, typer.Option("--assumed", help="Also list values without a public source.")
    ] = False,
    overrides: Set = None,
) -> None:
    """Check descriptions; report each mistake with its file and line."""
    from sweeps.cli.inspection import inspect

    mistakes = inspect(files or [], overrides or [], assumed)
    if mistakes:
        raise typer.Exit(AT_FAULT)


@app.command()
def schema(
    kind: Annotated[
        str | None, typer.Argument(help="memory, sweep, ...; one schema for all kinds by default.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write KIND.json there.")
    ] = None,
) -> None:
    """Write JSON Schemas of the descriptions, for editors."""
    from sweeps.cli.schema import schema as described
    from sweeps.cli.schema import write
    from sweeps.report.screen import print_json

    if out is None:
        print_json(described(kind))
    else:
        _wrote(write(kind, out), False)


@app.command()
def run(
    sweep: Annotated[
        str, typer.Argument(help="A shipped sweep, or a YAML file (also a run's config.yaml).")
    ],
    out: Out = None,
    jobs: Jobs = None,
    cluster: Cluster = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue an interrupted run; finished points are kept."),
    ] = False,
    overrides: Set = None,
) -> None:
    """Run a sweep and write its results to a run directory.

    Exit code 0: all done; 1: a point failed; 2: invalid input; 130: interrupted (--resume
    continues).
    """
    from sweeps.cli.api import run as perform

    done = perform(sweep, set=overrides, out=out, jobs=jobs, cluster=cluster, resume=resume)
    if done.records:
        for sentence in done.sentences:
            print(sentence)
        print(f"{len(done.records)} results in {done.path}; the table: bankwise report {done.path}")
    if done.failures:
        many = len(done.failures)
        missing = "1 result is missing" if many == 1 else f"{many} results are missing"
        print(f"{missing}; --resume tries again", file=sys.stderr)
        raise typer.Exit(AT_FAULT if done.at_fault else FOUND)


@app.command()
def study(
    study: Annotated[
        str, typer.Argument(help="A shipped study, or a YAML file (also a study's config.yaml).")
    ],
    out: Out = None,
    jobs: Jobs = None,
    cluster: Cluster = None,
    trials: Annotated[
        int | None, typer.Option("--trials", help="Number of trials; the study's own by default.")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Continue an interrupted study, or extend one with more --trials."
        ),
    ] = False,
    sampler: Annotated[
        str | None, typer.Option("--sampler", help="tpe, or random as a baseline.")
    ] = None,
    overrides: Set = None,
) -> None:
    """Search the space of a study and compare the best trial with its references.

    Exit code 0: done; 1: machine failure; 2: invalid input; 130: interrupted. A trial that fails
    is reported and the study continues.
    """
    from sweeps.cli.api import study as perform
    from sweeps.cli.reporting import report as write

    done = perform(
        study, set=overrides, out=out, jobs=jobs, cluster=cluster, trials=trials,
        sampler=sampler, resume=resume,
    )  # fmt: skip
    for path in write([done.path]):
        print(f"wrote {path}")


predictor = typer.Typer(
    help="Output-length predictors.", no_args_is_help=True, add_completion=False
)
app.add_typer(predictor, name="predictor")


@predictor.callback()
def _predictor() -> None:
    """Output-length predictors."""


@predictor.command()
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
    if json:
        print_json(found["report"])
    else:
        show_training(found["report"])
    if out is not None:
        write(found, out)
        if not json:
            print(f"wrote {out}; in an experiment: predictor: {{kind: trained, model: {out}}}")


@app.command()
def report(
    run_dirs: Annotated[list[Path], typer.Argument(metavar="RUN_DIR...")],
    html: Html = None,
    markdown: Markdown = None,
    json: Json = False,
) -> None:
    """Print the findings of runs and write their reports.

    Each run directory gets a report.html and a report.md, unless --html or --markdown names one
    file for all, which then also compares the first run with the others. With --json only the files
    that are named are written.
    """
    from sweeps.cli.reporting import report as write

    _wrote(write(run_dirs, html, markdown, json), json)


@app.command()
def compare(
    run_a: Annotated[Path, typer.Argument(metavar="RUN_A")],
    run_b: Annotated[Path, typer.Argument(metavar="RUN_B")],
    html: Html = None,
    markdown: Markdown = None,
    json: Json = False,
) -> None:
    """Compare two runs: differences with confidence intervals."""
    from sweeps.cli.reporting import compare as write

    _wrote(write(run_a, run_b, html, markdown, json), json)


def _wrote(files: list[Path], json: bool) -> None:
    for path in files:
        print(f"wrote {path}", file=sys.stderr if json else sys.stdout)


def _failure(error: Exception) -> str | None:
    """The line for an error that is the input's or the machine's, None where it is ours."""
    description = sys.modules.get("hwmodel.description.description")
    if description is not None and isinstance(error, description.DescriptionError):
        from sweeps.plan.place import shortened

        return shortened(str(error))
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return None


def main(arguments: list[str] | None = None) -> Any:
    """Entry point of `bankwise`; always leaves by SystemExit."""
    try:
        app(args=arguments)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(DONE)
    except KeyboardInterrupt:
        print("stopped by Ctrl-C", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except Exception as error:
        if (code := getattr(error, "exit_code", None)) is not None:
            print("stopped by Ctrl-C; " * (code == INTERRUPTED) + str(error), file=sys.stderr)
            sys.exit(code)
        text = _failure(error)
        if text is None:
            raise
        print(text, file=sys.stderr)
        sys.exit(AT_FAULT)


if __name__ == "__main__":
    main()
