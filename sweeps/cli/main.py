"""The command line. Imports stay inside the commands: `bankwise --help` loads nothing heavy."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from sweeps.cli.calibrate_command import calibrate
from sweeps.cli.device_command import app as device_app
from sweeps.cli.explain_command import explain
from sweeps.cli.export_command import export
from sweeps.cli.fit_command import fit
from sweeps.cli.groups import ASK, DESCRIBE, LOOK, RUN, TRUST, Grouped
from sweeps.cli.measure_command import measure
from sweeps.cli.memory_commands import audit, bandwidth, devices, kv_read, replay
from sweeps.cli.model_commands import app as model_app
from sweeps.cli.model_commands import kv_formats, models
from sweeps.cli.options import (
    AT_FAULT,
    FOUND,
    INTERRUPTED,
    RUNS,
    Cluster,
    Html,
    Jobs,
    Json,
    Markdown,
    Out,
    Plugin,
    Set,
    shipped,
)
from sweeps.cli.pause_command import pause
from sweeps.cli.predictor_command import app as predictor_app
from sweeps.cli.restore_command import restore
from sweeps.cli.schedule_command import schedule_check
from sweeps.cli.site_command import site
from sweeps.cli.size_command import size
from sweeps.cli.states_command import states
from sweeps.cli.transfer_command import transfer
from sweeps.cli.tune_command import tune
from sweeps.cli.validate_command import validate

app = typer.Typer(
    name="bankwise",
    cls=Grouped,
    help="Which KV-cache layout serves the most tokens on a memory device, and why.",
    epilog="Begin with: bankwise fit, then bankwise run quickstart",
    no_args_is_help=True,
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


def _add(panel: str, *commands: Callable[..., None]) -> None:
    for command in commands:
        app.command(rich_help_panel=panel)(command)


_add(ASK, fit, size, tune, transfer, restore, pause, states, devices, models, kv_formats)
app.add_typer(device_app, name="device", rich_help_panel=DESCRIBE)
app.add_typer(model_app, name="model", rich_help_panel=DESCRIBE)
app.add_typer(predictor_app, name="predictor", rich_help_panel=DESCRIBE)


@app.command(rich_help_panel=DESCRIBE)
def check(
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Files, folders or shipped names; everything shipped by default."),
    ] = None,
    assumed: Annotated[
        bool, typer.Option("--assumed", help="Also list values without a public source.")
    ] = False,
    overrides: Set = None,
    plugin: Plugin = None,
) -> None:
    """Check descriptions; report each mistake with its file and line."""
    from sweeps.cli.inspection import inspect

    mistakes = inspect(files or [], overrides or [], assumed)
    if mistakes:
        raise typer.Exit(AT_FAULT)


@app.command(rich_help_panel=DESCRIBE)
def schema(
    kind: Annotated[
        str | None, typer.Argument(help="memory, sweep, ...; one schema for all kinds by default.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write KIND.json there.")
    ] = None,
    plugin: Plugin = None,
) -> None:
    """Write JSON Schemas of the descriptions, for editors."""
    from sweeps.cli.schema import schema as described
    from sweeps.cli.schema import write
    from sweeps.report.screen import print_json

    if out is None:
        print_json(described(kind))
    else:
        _wrote(write(kind, out), False)


@app.command(rich_help_panel=RUN)
def run(
    sweep: Annotated[
        str,
        typer.Argument(
            help="A shipped sweep, or a YAML file (also a run's config.yaml).",
            autocompletion=shipped("sweeps"),
        ),
    ],
    out: Out = None,
    jobs: Jobs = None,
    cluster: Cluster = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue an interrupted run; finished points are kept."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say how many points there are, and CPU minutes.")
    ] = False,
    only: Annotated[
        str | None,
        typer.Option(metavar="NAME,...", help="Only these values of axes: mlu370-x4,paged,odma."),
    ] = None,
    overrides: Set = None,
    plugin: Plugin = None,
) -> None:
    """Run a sweep, write its results to a run directory, and say what they show and why.

    Exit code 0: all done; 1: a point failed; 2: invalid input; 130: interrupted (--resume
    continues).
    """
    from sweeps.plan.narrowed import load_narrowed
    from sweeps.plan.young_sessions import young_sessions
    from sweeps.report.contents import read_report
    from sweeps.report.screen import print_report
    from sweeps.run.executor import worker_count
    from sweeps.run.progress import Progress
    from sweeps.run.sweep_run import run_sweep

    workers = worker_count(jobs, cluster)
    loaded = load_narrowed(sweep, overrides or [], only.split(",") if only else ())
    if told := young_sessions(point.experiment for point in loaded.points):
        print(f"note: {told}", file=sys.stderr)
    if dry_run:
        from sweeps.run.dry_run import dry_run as estimate

        found = estimate(loaded)
        print(f"{found.points} points, {found.results} results, about {found.minutes:.1f} CPU"
              f" minutes, by {found.timed} of them in one replication")  # fmt: skip
        return
    done = run_sweep(loaded, out, resume, workers, Progress(), cluster)
    path = done.directory.path
    if done.records and not done.failures and cluster is None:
        _explain_largest(path, workers)
    if done.records:
        print_report(read_report(path).section)
        print(f"{len(done.records)} results in {path}; a page of it: bankwise report {path}")
    if done.failures:
        many = len(done.failures)
        missing = "1 result is missing" if many == 1 else f"{many} results are missing"
        print(f"{missing}; --resume tries again", file=sys.stderr)
        raise typer.Exit(AT_FAULT if done.at_fault else FOUND)


def _explain_largest(path: Path, jobs: int) -> None:
    """Add to a run why its largest gap is there, where that is cheap; say why not where it could
    not be."""
    from hwmodel.description.description import DescriptionError
    from sweeps.run.explained_run import Stopped, explain_largest
    from sweeps.run.progress import Progress

    try:
        explain_largest(path, jobs, Progress())
    except Stopped as stopped:
        print(f"causes of the largest gap: {stopped.kept}; bankwise explain {path} continues",
              file=sys.stderr)  # fmt: skip
    except DescriptionError as error:
        print(f"causes of the largest gap are not known: {_failure(error)}", file=sys.stderr)


@app.command(rich_help_panel=RUN)
def study(
    study: Annotated[
        str,
        typer.Argument(
            help="A shipped study, or a YAML file (also a study's config.yaml).",
            autocompletion=shipped("studies"),
        ),
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
    plugin: Plugin = None,
) -> None:
    """Search the space of a study and compare the best trial with its references.

    Exit code 0: done; 1: machine failure; 2: invalid input; 130: interrupted. A trial that fails
    is reported and the study continues.
    """
    from sweeps.cli.reporting import report as write
    from sweeps.run.executor import worker_count
    from sweeps.run.progress import Progress
    from sweeps.study.search import run_study
    from sweeps.study.study_run import Workers
    from sweeps.study.study_spec import load_study

    workers = Workers(worker_count(jobs, cluster), cluster)
    loaded = load_study(study, overrides or [], trials, sampler)
    done = run_study(loaded, out, resume, workers, Progress())
    for path in write([done.directory.path]):
        print(f"wrote {path}")


_add(RUN, bandwidth, replay, kv_read, export)


@app.command(rich_help_panel=LOOK)
def report(
    run_dirs: Annotated[list[Path], typer.Argument(metavar="RUN...", help=RUNS)],
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


@app.command(rich_help_panel=LOOK)
def compare(
    run_a: Annotated[Path, typer.Argument(metavar="RUN_A", help=RUNS)],
    run_b: Annotated[Path, typer.Argument(metavar="RUN_B", help=RUNS)],
    html: Html = None,
    markdown: Markdown = None,
    json: Json = False,
) -> None:
    """Compare two runs: differences with confidence intervals."""
    from sweeps.cli.reporting import compare as write

    _wrote(write(run_a, run_b, html, markdown, json), json)


@app.command(rich_help_panel=LOOK)
def figure(
    run: Annotated[Path, typer.Argument(metavar="RUN", help=RUNS)],
    name: Annotated[str | None, typer.Argument(help="Which; lists them by default.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="SVG, PNG, PDF; NAME.svg.")
    ] = None,
    dark: Annotated[bool, typer.Option("--dark", help="Light on dark paper.")] = False,
) -> None:
    """Write a chart of a run's report as a picture, for a slide or a paper."""
    from sweeps.report.contents import read_report
    from sweeps.report.picture import picture, pictures
    from sweeps.run.store import last_run

    report = read_report(last_run(run))
    if name is None:
        for each, found in pictures(report).items():
            print(f"{each:20} {found.charts[0].chart.title}")
        return
    _wrote([picture(report, name).save(out or f"{name}.svg", dark)], False)


@app.command(rich_help_panel=LOOK)
def explore(
    run_dirs: Annotated[list[Path], typer.Argument(metavar="RUN...", help=RUNS)],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The page.")] = Path(
        "explore.html"
    ),
) -> None:
    """Write one page with sliders over what runs have varied."""
    from sweeps.report.contents import read_report
    from sweeps.report.explorer import explorer
    from sweeps.run.store import last_run, write_atomically

    reports = [read_report(last_run(each)) for each in run_dirs]
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, explorer(reports))
    _wrote([out], False)


_add(LOOK, explain, site)
_add(TRUST, audit, validate, calibrate, measure, schedule_check)


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


class _Pipe(io.FileIO):
    """Standard output that outlasts its reader, as `head`, and its disk: what was asked for is
    finished, and its files are written. `failed`: why it takes no more, but for its reader."""

    failed: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or 0
        except OSError as error:
            if not isinstance(error, BrokenPipeError):
                self.failed = error
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            return len(data)


def main(arguments: list[str] | None = None) -> Any:
    """Entry point of `bankwise`; always leaves by SystemExit."""
    pipe = None
    if (out := sys.__stdout__) is not None and sys.stdout is out and not out.isatty():
        pipe = _Pipe(out.fileno(), "w", closefd=False)
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(pipe), out.encoding, out.errors)
    try:
        _run(arguments)
    finally:
        sys.stdout.flush()
        if pipe is not None and pipe.failed is not None:
            print(f"standard output: {pipe.failed.strerror}", file=sys.stderr)
            sys.exit(AT_FAULT)


def _run(arguments: list[str] | None) -> None:
    """The command; leaves by SystemExit."""
    try:
        app(args=arguments)
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
