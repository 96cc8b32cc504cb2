"""`bankwise run`. Imports stay inside, as in `main`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sweeps.cli.options import (
    AT_FAULT,
    FOUND,
    Cluster,
    Jobs,
    Out,
    Plugin,
    Set,
    failure,
    refuse,
    shipped,
    wrote,
)

if TYPE_CHECKING:
    from sweeps.plan.sweep_spec import Sweep


def command(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A shipped sweep or study, or a YAML file (also a run's config.yaml).",
            autocompletion=shipped("sweeps", "studies"),
        ),
    ],
    out: Out = None,
    jobs: Jobs = None,
    cluster: Cluster = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Continue what was interrupted, or a study with more --trials."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say how many points there are, and CPU minutes.")
    ] = False,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...", help="Of a sweep: only these values of axes: mlu370-x4,paged,odma."
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option("--trials", help="Of a study: how many; the study's own by default."),
    ] = None,
    sampler: Annotated[
        str | None, typer.Option("--sampler", help="Of a study: tpe, or random as a baseline.")
    ] = None,
    overrides: Set = None,
    plugin: Plugin = None,
) -> None:
    """Run a sweep or a study, and say what it shows and why.

    Results go to a run directory. A study searches its space and compares the best trial with its
    references; a trial that fails is reported and the study continues.

    Exit code 0: all done; 1: a point failed; 2: invalid input; 130: interrupted (--resume
    continues).
    """
    from sweeps.plan.sweep import planned_kind
    from sweeps.run.executor import worker_count

    workers = worker_count(jobs, cluster)
    if planned_kind(name) == "study":
        refuse("goes with sweeps; this is a study", {"--only": only, "--dry-run": dry_run})
        _study(name, overrides or [], (trials, sampler), out, resume, workers, cluster)
        return
    refuse("goes with studies; this is a sweep", {"--trials": trials, "--sampler": sampler})
    from sweeps.plan.narrowed import load_narrowed
    from sweeps.plan.young_sessions import young_sessions

    loaded = load_narrowed(name, overrides or [], only.split(",") if only else ())
    if told := young_sessions(point.experiment for point in loaded.points):
        print(f"note: {told}", file=sys.stderr)
    if dry_run:
        from sweeps.run.dry_run import dry_run as estimate

        found = estimate(loaded)
        print(f"{found.points} points, {found.results} results, about {found.minutes:.1f} CPU"
              f" minutes, by {found.timed} of them in one replication")  # fmt: skip
        return
    _sweep(loaded, out, resume, workers, cluster)


def _sweep(
    loaded: Sweep, out: Path | None, resume: bool, workers: int, cluster: str | None
) -> None:
    from sweeps.report.contents import read_report
    from sweeps.report.screen import print_report
    from sweeps.run.progress import Progress
    from sweeps.run.sweep_run import run_sweep

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
        print(f"causes of the largest gap are not known: {failure(error)}", file=sys.stderr)


def _study(
    name: str, overrides: list[str], how: tuple[int | None, str | None], out: Path | None,
    resume: bool, workers: int, cluster: str | None,
) -> None:  # fmt: skip
    from sweeps.cli.reporting import report
    from sweeps.run.progress import Progress
    from sweeps.study.search import run_study
    from sweeps.study.study_run import Workers
    from sweeps.study.study_spec import load_study

    loaded = load_study(name, overrides, *how)
    done = run_study(loaded, out, resume, Workers(workers, cluster), Progress())
    wrote(report([done.directory.path]), False)
