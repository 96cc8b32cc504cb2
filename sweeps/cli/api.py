"""What the command line does, from Python: the same names, the same files, the same mistakes.

Options are those of the commands; `set` takes the assignments of `--set` as a mapping of dotted
paths to values. A mistake raises `hwmodel.description.description.DescriptionError` with the
command line's message. Imports stay inside: importing this loads nothing heavy.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sweeps.cli.result import Compared, Result
    from sweeps.plan.sweep import Given
    from sweeps.report.frame import Frame

Set = Mapping[str, Any] | Iterable[str] | None
"""Dotted path -> value, or texts `dotted.path=value`."""


def run(
    sweep: Given, *, set: Set = None, out: str | Path | None = None, jobs: int | None = None,
    cluster: str | None = None, resume: bool = False,
) -> Result:  # fmt: skip
    """Run a sweep into a run directory (`out`, else `runs/NAME-N`), as `bankwise run` does.

    jobs: worker processes, a core each by default; cluster: a Dask scheduler's address instead.
    Points that fail are told on stderr and in `Result.failures`. Raises DescriptionError,
    `sweep_run.Interrupted` on Ctrl-C (what was finished is kept), `capacity.CapacityFailed`.
    """
    from sweeps.cli.result import Result
    from sweeps.plan.sweep import load_sweep
    from sweeps.run.progress import Progress
    from sweeps.run.store import default_directory
    from sweeps.run.sweep_run import run_sweep

    workers = worker_count(jobs, cluster)
    loaded = load_sweep(sweep, assignments(set))
    directory = default_directory(loaded.spec.name, resume) if out is None else Path(out)
    done = run_sweep(loaded, directory, resume, workers, Progress(), cluster)
    return Result(directory, done.failures, done.at_fault)


def study(
    study: Given, *, set: Set = None, out: str | Path | None = None, jobs: int | None = None,
    cluster: str | None = None, trials: int | None = None, sampler: str | None = None,
    resume: bool = False,
) -> Result:  # fmt: skip
    """Search the space of a study, as `bankwise study` does; the result's table is its finale.

    Raises DescriptionError, `study_run.StudyInterrupted` on Ctrl-C, `study_run.StudyFailed` and
    `capacity.CapacityFailed`.
    """
    from sweeps.cli.result import Result
    from sweeps.run.progress import Progress
    from sweeps.run.store import default_directory
    from sweeps.study.search import run_study
    from sweeps.study.study_run import Workers
    from sweeps.study.study_spec import load_study

    workers = Workers(worker_count(jobs, cluster), cluster)
    given = {"trials": trials, "sampler.name": sampler}
    more = {path: value for path, value in given.items() if value is not None}
    loaded = load_study(study, [*assignments(set), *assignments(more)])
    directory = default_directory(loaded.spec.name, resume) if out is None else Path(out)
    done = run_study(loaded, directory, resume, workers, Progress())
    return Result(done.directory.path, done.failures)


def report(run_dir: str | Path) -> Result:
    """A run or a study that is there already, finished or not. Raises DescriptionError where
    nothing can be shown."""
    from sweeps.cli.result import Result

    found = Result(Path(run_dir))
    found.read()
    return found


def compare(run_a: str | Path, run_b: str | Path) -> Compared:
    """What differs between two runs, as `bankwise compare`. Raises DescriptionError."""
    from sweeps.cli.result import Compared
    from sweeps.report.comparison_page import compare as differences

    return Compared(differences(Path(run_a), Path(run_b)))


def bandwidth(device: str | Path, pattern: str | Iterable[str] = (), *, set: Set = None) -> Frame:
    """What a device reaches on access patterns (all by default), a row a pattern with the keys of
    `bankwise bandwidth --json`. Raises DescriptionError."""
    from hwmodel.measure.bandwidth import measure_patterns
    from hwmodel.specs.device import load_device
    from sweeps.report.frame import Frame
    from sweeps.report.screen import bandwidth_grid

    loaded = load_device(str(device), assignments(set))
    asked = [pattern] if isinstance(pattern, str) else list(pattern)
    found = measure_patterns(loaded, asked)
    return Frame(loaded.name, found, [bandwidth_grid(found)])


def assignments(set: Set) -> list[str]:
    """`set` as the command line's texts."""
    from hwmodel.description.yaml_writer import plain, to_yaml_flow

    if isinstance(set, Mapping):
        return [f"{path}={to_yaml_flow(plain(value))}" for path, value in set.items()]
    return list(set or ())


def worker_count(jobs: int | None, cluster: str | None) -> int:
    """How many processes work here. Raises DescriptionError."""
    from hwmodel.description.description import DescriptionError

    if jobs is not None and cluster is not None:
        raise DescriptionError("does not go with --cluster", "--jobs")
    if jobs is not None and jobs < 1:
        raise DescriptionError(f"expected 1 or more; got {jobs}", "--jobs")
    return jobs or _cores()


def _cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
