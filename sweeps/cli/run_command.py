"""`bankwise run`. Imports stay inside, as in `main`."""

from __future__ import annotations

import os
import sys
from functools import partial
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
    from sweeps.study.study_run import Workers

    How = tuple[Workers, tuple[int | None, str | None], bool, str | None]
    """Who works, trials and sampler where they are given, whether to go on, and the storage that
    trials are copied to."""

_FEW_DEVICES = 4
"""Up to so many nothing is timed before they begin (assumed)."""
EXPLAIN = "BANKWISE_EXPLAIN"
"""0: the causes of the leading gap are not looked for, which takes up to as long as the run."""
_SHORT = 60
"""Characters of an assignment that is said where a device begins."""


def command(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A shipped sweep or study, or a YAML file (also a run's config.yaml).",
            autocompletion=shipped("sweeps", "studies"),
        ),
    ],
    devices: Annotated[
        list[str] | None,
        typer.Option(
            "--device",
            metavar="DEVICE",
            help="On this device; repeatable, or all. A study runs on each in turn.",
            autocompletion=shipped("accelerators"),
        ),
    ] = None,
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
            metavar="NAME,...",
            help="Only these values of a sweep's axes, or cases: mlu370-x4,paged,odma.",
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option("--trials", help="How many trials of a study (default: its own)."),
    ] = None,
    sampler: Annotated[
        str | None,
        typer.Option("--sampler", help="Sampler of a study: tpe, or random as a baseline."),
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Copy a study's trials to this Optuna storage, when done."
        ),
    ] = None,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            "-v",
            help="Say how many simulations the compiled core served, and why it did not serve the"
            " others.",
        ),
    ] = False,
    time_limit: Annotated[
        str | None,
        typer.Option(
            "--time-limit", metavar="TIME", help="End a simulation that takes longer, such as 600s."
        ),
    ] = None,
    memory_limit: Annotated[
        str | None,
        typer.Option(
            "--memory-limit",
            metavar="SIZE",
            help="End a simulation whose process takes more memory, such as 4GiB.",
        ),
    ] = None,
    overrides: Set = None,
    plugin: Plugin = None,
) -> None:
    """Run a sweep or a study, and say what it shows and why.

    Results go to a run directory. A study searches its space and compares the best trial with its
    references; of several devices it searches each, with a model that fits, and ends in one table.
    A trial that fails is reported and the study continues; a point of a sweep that does not fit its
    device is reported as one, and the others run.

    Exit code 0: all done; 1: a point failed; 2: invalid input; 130: interrupted, by SIGTERM 143
    (--resume continues).
    """
    import time

    began_s = time.process_time()
    from sweeps.plan.sweep import planned_kind
    from sweeps.run.executor import worker_count
    from sweeps.run.task_limits import put_in_force, read_limits

    workers = worker_count(jobs, cluster)
    put_in_force(read_limits(time_limit, memory_limit, cluster))
    if planned_kind(name) == "study":
        refuse("goes with sweeps; this is a study", {"--only": only})
        from sweeps.cli.reporting import report
        from sweeps.study.study_run import Workers

        how = Workers(workers, cluster), (trials, sampler), resume, storage
        own = own_devices(name, overrides or [], how[1])
        where = _named(devices) if devices else own
        if dry_run:
            _study_cost(name, where, overrides or [], how[1])
        elif where:
            _on_devices(name, where, overrides or [], out, how)
        else:
            wrote(report([_study(name, overrides or [], out, how)]), False)
        _say_plain(verbose)
        return
    searched = {"--trials": trials, "--sampler": sampler, "--storage": storage}
    refuse("goes with studies; this is a sweep", searched)
    from sweeps.plan.narrowed import load_narrowed
    from sweeps.plan.young_sessions import young_sessions

    sets = [*_axis(_named(devices)), *(overrides or [])] if devices else overrides or []
    loaded = load_narrowed(name, sets, only.split(",") if only else ())
    if told := young_sessions(point.experiment for point in loaded.points):
        print(f"note: {told}", file=sys.stderr)
    if dry_run:
        from sweeps.report.run_length import will_be_short
        from sweeps.run.dry_run import dry_run as estimate
        from sweeps.run.store import RunDirectory
        from sweeps.sections.formats import cpu_text

        if out is not None and not resume:
            RunDirectory(out).refuse_if_taken()
        found = estimate(loaded, began_s)
        why = "; explaining its leading gap takes at most as much again" if found.explained else ""
        beside = f", and {found.unfit} that do not fit" if found.unfit else ""
        print(
            f"{found.points} points{beside}, {found.results} results, {cpu_text(found.minutes)},"
            f" by {found.timed} of them in one replication{why}"
        )
        if short := will_be_short(found.lengths):
            print(f"note: {short}", file=sys.stderr)
        return
    try:
        _sweep(loaded, out, resume, workers, cluster)
    finally:
        _say_plain(verbose)


def _say_plain(verbose: bool) -> None:
    """Say how many simulations were plain."""
    if not verbose:
        return
    from policies.serving.counted_runs import summary

    print(summary(), file=sys.stderr)


def _sweep(
    loaded: Sweep, out: Path | None, resume: bool, workers: int, cluster: str | None
) -> None:
    from sweeps.report.contents import read_report
    from sweeps.report.screen import print_report
    from sweeps.run.progress import Progress
    from sweeps.run.sweep_run import run_sweep

    done = run_sweep(loaded, out, resume, workers, Progress(), cluster)
    path = done.directory.path
    asked = os.environ.get(EXPLAIN) != "0"
    if done.records and not done.failures and cluster is None and asked:
        _explain_leading(path, workers)
    if done.records:
        print_report(read_report(path).section)
        print(f"{len(done.records)} results in {path}; a page of it: bankwise report {path}")
    if done.failures:
        many = len(done.failures)
        missing = "1 result is missing" if many == 1 else f"{many} results are missing"
        print(f"{missing}; --resume tries again", file=sys.stderr)
        raise typer.Exit(AT_FAULT if done.at_fault else FOUND)


def _explain_leading(path: Path, jobs: int) -> None:
    """Add to a run what makes the gap that its report begins with, where that is cheap; say why not
    where it could not be."""
    from hwmodel.description.description import DescriptionError
    from sweeps.run.explained_run import explain_leading
    from sweeps.run.kept_simulations import Stopped
    from sweeps.run.progress import Progress

    try:
        explain_leading(path, jobs, Progress())
    except Stopped as stopped:
        print(f"causes of the leading gap: {stopped.kept}; bankwise explain {path} continues",
              file=sys.stderr)  # fmt: skip
    except DescriptionError as error:
        print(f"causes of the leading gap are not known: {failure(error)}", file=sys.stderr)


def _named(devices: list[str]) -> list[str]:
    """Each once; `all`: every accelerator that ships. Raises DescriptionError for no device."""
    from hwmodel.description.description import DescriptionError, nearest
    from hwmodel.description.library import elsewhere, names
    from hwmodel.specs.device import device_names

    if "all" in devices:
        refuse("stands alone", {"--device all": len(devices) > 1})
        return names("accelerators")
    known = device_names()
    for device in devices:
        if device not in known and not device.endswith((".yaml", ".yml")):
            hint = elsewhere(device) or nearest(device, ["all", *known])
            raise DescriptionError(f"no shipped device {device!r}; {hint}")
    return list(dict.fromkeys(devices))


def own_devices(
    name: str, overrides: list[str], wanted: tuple[int | None, str | None]
) -> list[str]:
    """Those that a study lists, unless a device is set. Raises DescriptionError."""
    from sweeps.study.study_spec import load_study

    given = [text.partition("=")[0].removeprefix("base.") for text in overrides]
    found = load_study(name, overrides, *wanted).spec.devices
    return [] if "device" in given else found


def _axis(devices: list[str]) -> list[str]:
    """What `--set` makes of a sweep one of these devices."""
    if len(devices) == 1:
        return [f"device={devices[0]}"]
    return [f"axes.device=[{', '.join(devices)}]"]


def _study(name: str, overrides: list[str], out: Path | None, how: How, within: str = "") -> Path:
    """Search, or go on, and copy the trials where that is wanted, under the directory's name behind
    what it is `within`; returns the run directory."""
    from sweeps.run.progress import Progress
    from sweeps.run.store import default_directory
    from sweeps.study.search import run_study
    from sweeps.study.storage_copy import copy_journal, refuse_storage
    from sweeps.study.study_spec import load_study

    workers, asked, resume, storage = how
    loaded = load_study(name, overrides, *asked)
    path = out or default_directory(loaded.spec.name, resume)
    if storage is not None:
        refuse_storage(storage, within + path.name, resume)
    done = run_study(loaded, path, resume, workers, Progress()).directory.path
    if storage is not None:
        count = copy_journal(done, loaded.spec.name, storage, within + path.name)
        print(f"copied {count} trials to {storage}, study {within + path.name}", file=sys.stderr)
    return done


def _study_cost(
    name: str, devices: list[str], overrides: list[str], asked: tuple[int | None, str | None]
) -> None:
    """Say what a study takes; of several devices all together."""
    from sweeps.sections.formats import counted, cpu_text
    from sweeps.study.by_device import assignments
    from sweeps.study.study_cost import study_cost
    from sweeps.study.study_spec import load_study

    if len(devices) > 1:
        print(_devices_cost(name, devices, overrides, asked))
        return
    made = assignments(name, devices[0], overrides) if devices else []
    found = study_cost(load_study(name, [*made, *overrides], *asked))
    where = f"{devices[0]}: " if devices else ""
    print(
        f"{where}{found.trials} trials of {counted(found.each, 'replication')}, a finale of"
        f" {found.finale} results, {cpu_text(found.minutes)}, if trials are like the base"
    )


def _devices_cost(
    name: str, devices: list[str], overrides: list[str], asked: tuple[int | None, str | None]
) -> str:
    """What a study on these devices takes in all, and on which it does not run."""
    from sweeps.sections.formats import cpu_text
    from sweeps.study.by_device import assignments
    from sweeps.study.study_cost import devices_cost
    from sweeps.study.study_spec import Study, load_study

    def made(device: str) -> Study:
        return load_study(name, [*assignments(name, device, overrides), *overrides], *asked)

    found = devices_cost((device, partial(made, device)) for device in devices)
    lines = [f"left out: {device}: {why.removeprefix(f'{device}: ')}"
             for device, why in found.refused.items()]  # fmt: skip
    fitting = len(devices) - len(found.refused)
    lines.append(f"{fitting} devices, {cpu_text(found.minutes)} in all, by {found.timed} of them"
                 " that were timed on a trial's first rung")  # fmt: skip
    return "\n".join(lines)


def _on_devices(
    name: str, devices: list[str], overrides: list[str], out: Path | None, how: How
) -> None:
    """A study on one device after the other, each in a directory of its own and begun with what won
    on the most similar one before it; then one table. A device that it does not fit is left out,
    and said."""
    import json

    from hwmodel.description.description import DescriptionError
    from hwmodel.description.yaml_writer import plain
    from sweeps.report.contents import read_report
    from sweeps.report.device_sheet import sheet
    from sweeps.report.screen import print_section
    from sweeps.report.shown import write_reports
    from sweeps.run.store import default_directory, write_atomically
    from sweeps.study.by_device import Winner, assignments, read_device, started, winner
    from sweeps.study.study_run import StudyFailed
    from sweeps.study.study_spec import load_study

    stem = Path(name).stem
    folder = out or default_directory(f"{stem}-devices", how[2])
    if len(devices) > _FEW_DEVICES:
        print(_devices_cost(name, devices, overrides, how[1]), file=sys.stderr)
    found, refused, winners = [], dict[str, str](), list[Winner]()
    for nth, device in enumerate(devices, 1):
        try:
            sets = assignments(name, device, overrides)
            path = folder / Path(device).stem
            begun = started(winners, load_study(name, [*sets, *overrides], *how[1]), path)
            said = [text for text in sets[1:] if len(text) < _SHORT]
            at = f"[{nth}/{len(devices)}] " if len(devices) > 1 else ""
            print(f"{at}{device}: {', '.join(said) or 'as described'}", file=sys.stderr)
            done = _study(name, [*sets, *overrides, *begun], path, how, f"{folder.name}/")
            found.append(read_device(done))
            winners += [won] if (won := winner(found[-1], done)) else []
            write_reports([read_report(path).section], path / "report.html", path / "report.md")
        except (DescriptionError, StudyFailed) as error:
            text = failure(error) or str(error)
            refused[device] = f"{device}: {text.removeprefix(f'{device}: ')}"
            if len(devices) == 1:
                raise
            print(f"left out: {refused[device]}", file=sys.stderr)
    if not found:
        raise typer.Exit(AT_FAULT)
    section = sheet(stem, found, refused)
    print_section(section)
    table = folder / "devices.json"
    write_atomically(table, json.dumps(plain([each.record for each in found]), indent=2) + "\n")
    wrote([table, *write_reports([section], folder / "devices.html", None)], False)
