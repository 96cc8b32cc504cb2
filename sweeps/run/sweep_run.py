"""A run: every point and replication of a sweep into one directory; stopped, resumed at will."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from hwmodel.description.description import DescriptionError
from hwmodel.description.files import steady
from sweeps.analyse.label import title
from sweeps.analyse.rows import Record, differences, flat
from sweeps.analyse.statistics import interval
from sweeps.analyse.unfit_point import UnfitPoint
from sweeps.plan.experiment import Task, assignments, measure, seed_of
from sweeps.plan.logs import keep, staging, stem_of
from sweeps.plan.place import shortened
from sweeps.plan.sweep import further
from sweeps.plan.sweep_spec import Point, Sweep
from sweeps.run.capacity import Capacities, calibrate, capacity_key, wanted
from sweeps.run.executor import execute
from sweeps.run.findings import keep_sweep
from sweeps.run.goodput import goodput_key, search, searched
from sweeps.run.misfits import Misfits
from sweeps.run.outcome import Outcome, attempt
from sweeps.run.preview import preview
from sweeps.run.progress import Progress
from sweeps.run.provenance import argv, provenance, refuse_changes, resolve
from sweeps.run.rehearsal import refuse_unknown, rehearse
from sweeps.run.store import CALIBRATION, RunDirectory, default_directory

Key = tuple[int, int]


@dataclass
class SweepRun:
    """What a run did: its directory, results in order, and failures with their reason."""

    directory: RunDirectory
    records: list[Record] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    at_fault: bool = False
    """Some failure is the input's fault."""
    reused: int = 0
    """Results that were there already."""
    total: int = 0
    """Results that it has when all points that are known are done."""

    def __post_init__(self) -> None:
        self.misfits = Misfits(self.directory)


class Interrupted(Exception):
    """Ctrl-C; what was finished is kept."""

    exit_code = 130

    def __init__(self, run: SweepRun, total: int, at: str = "") -> None:
        """at: what was interrupted, where that is known."""
        kept = f"{len(run.records)} of {total} results are kept in {run.directory.path}"
        nothing = "nothing was finished, nothing was written"
        again = "the same command with --resume continues"
        told = [at] if at else []
        super().__init__("; ".join([*told, *([kept, again] if run.records else [nothing])]))
        self.run, self.total = run, total


@steady
def run_sweep(
    sweep: Sweep, out: Path | None, resume: bool, jobs: int, progress: Progress,
    cluster: str | None = None,
) -> SweepRun:  # fmt: skip
    """Run what is not there yet. Nothing is written before the first result is there.

    out: `runs/NAME-N` where it is None. Raises DescriptionError where sweep, inputs or `out` are
    at fault, Interrupted on Ctrl-C.
    """
    directory = RunDirectory(out or default_directory(sweep.spec.name, resume))
    if not resume:
        directory.refuse_if_taken()
    resolved = resolve(sweep)
    if sweep.spec.resolved is not None:
        refuse_changes(sweep.spec.resolved, resolved, sweep.document.file)
    config = {**sweep.config, "resolved": resolved}
    run = SweepRun(directory)
    calibration = Capacities({})
    if resume and directory.exists:
        refuse_another(config, directory)
        run.misfits.read()
        run.records = run.misfits.results(directory.records())
        run.reused = len(run.records)
        calibration.capacities.update(directory.read_json(CALIBRATION) or {})
    elif resume:
        directory.refuse_if_taken()
    with _interruptible(run):
        rehearsed = False
        while True:
            here = _that_fit(sweep, run)
            if left := _left(here, run.records):
                if not rehearsed:
                    unfit: dict[int, str] = {}
                    metrics = rehearse(here.points, sweep.document, progress, jobs, unfit)
                    run.misfits.note(here.points, unfit, progress)
                    here = _that_fit(sweep, run)
                    refuse_unknown(sweep.spec.metrics, metrics, sweep.document)
                    rehearsed = True
                here = _calibrate(here, run, calibration, jobs, cluster, progress)
                here, refused = _search(here, run, calibration, jobs, cluster, progress)
                left = _offered(here, _left(here, run.records), refused, run)
                _run(here, run, left, calibration, config, jobs, cluster, progress)
            _that_fit(sweep, run)
            # a failure ends it, so that what is asked for never hangs on one
            if run.failures or not (more := further(sweep, run.misfits.among(run.records))):
                break
            sweep = sweep.with_points(more)
            _refuse_others(sweep, run)
        run.records = sorted(run.misfits.results(run.records), key=_key)
        if run.records:
            run.directory.settle(run.records, summarise(run.records, run.misfits.points))
            keep_sweep(run.directory)
    return run


def _that_fit(sweep: Sweep, run: SweepRun) -> Sweep:
    """The sweep without the points that do not fit. Raises DescriptionError where none is left."""
    points = run.misfits.others(sweep.points)
    run.total = sum(point.experiment.replications for point in points)
    return replace(sweep, points=points)


def _refuse_others(sweep: Sweep, run: SweepRun) -> None:
    """Raise DescriptionError where the directory holds results of other points."""
    for record in run.records:
        at = record["point"]
        if at < len(sweep.points) and record["overrides"] != sweep.points[at].overrides:
            raise DescriptionError(
                f"cannot resume: point {at} is {title(record['overrides'], '')} there and "
                f"{title(sweep.points[at].overrides, '')} here; use another --out",
                run.directory.path,
            )


@contextmanager
def _interruptible(run: SweepRun) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as error:
        if run.directory.exists:  # the disk knows best: a result may just have been written
            run.records = run.directory.records()
        raise Interrupted(run, run.total, *error.args) from None
    finally:
        run.directory.release()


def refuse_another(config: dict[str, Any], directory: RunDirectory) -> None:
    """Raise DescriptionError if the directory was made from another config."""
    for path, ours, theirs in differences(config, directory.config()):
        there, here = (repr(value) for value in (theirs, ours))
        raise DescriptionError(
            f"cannot resume: {path} is {there} there and {here} here; use another --out",
            directory.path,
        )


def _left(sweep: Sweep, records: list[Record]) -> list[tuple[Point, int]]:
    done = {_key(record) for record in records}
    found = [
        (point, replication)
        for point in sweep.points
        for replication in range(1, point.experiment.replications + 1)
        if (point.index, replication) not in done
    ]
    return sorted(found, key=lambda each: each[1])  # so that each point has its first early


def _key(record: Record) -> Key:
    return record["point"], record["replication"]


def _calibrate(
    sweep: Sweep, run: SweepRun, calibration: Capacities, jobs: int, cluster: str | None,
    progress: Progress,
) -> Sweep:  # fmt: skip
    """Measure the capacities that are not known; returns the sweep without the points of which that
    shows that they do not fit."""
    asked, known, unfit = wanted(sweep), calibration.capacities, dict[str, str]()
    after = len(_left(sweep, run.records))
    with progress.stage("capacity", len(asked.keys() - known.keys()), after=after) as done:
        for key, rate in calibrate(asked, known, jobs, cluster, unfit):
            known[key] = rate
            done()
    sweep = _without_unfit(
        sweep, run, unfit, lambda point, r: capacity_key(point.experiment, r), progress
    )
    calibration.capacities = _ordered(sweep, known)
    return sweep


def _search(
    sweep: Sweep, run: SweepRun, calibration: Capacities, jobs: int, cluster: str | None,
    progress: Progress,
) -> tuple[Sweep, dict[str, str]]:  # fmt: skip
    """Find goodputs; returns the sweep without the points of which that shows that they do not fit,
    and why points have none, by key. Raises DescriptionError where none has one."""
    points, known = searched(sweep), calibration.capacities
    refused, unfit = dict[str, str](), dict[str, str]()
    with progress.stage("goodput", len(points.keys() - known.keys())) as done:
        for key, found in search(points, known, jobs, cluster, unfit):
            if isinstance(found, str):
                refused[key] = found
                progress.say(f"failed: {shortened(found)}")
            else:
                known[key] = found
            done()
    if refused and points.keys() == refused.keys():
        raise DescriptionError(refused[next(iter(points))])
    sweep = _without_unfit(sweep, run, unfit, partial(goodput_key, sweep), progress)
    calibration.capacities = _ordered(sweep, known)
    return sweep, refused


def _without_unfit(
    sweep: Sweep, run: SweepRun, unfit: Mapping[str, str], key: Callable[[Point, int], str],
    progress: Progress,
) -> Sweep:  # fmt: skip
    """The sweep without the points of which a measured rate shows that they do not fit. unfit: why,
    by the key of a point's replication."""
    if not unfit:
        return sweep
    every = ((p, r) for p in sweep.points for r in range(1, p.experiment.replications + 1)
             if p.experiment.offered is not None)  # fmt: skip
    found = {p.index: unfit[of] for p, r in every if (of := key(p, r)) in unfit}
    run.misfits.note(sweep.points, found, progress)
    return _that_fit(sweep, run)


def _ordered(sweep: Sweep, known: dict[str, float]) -> dict[str, float]:
    """In the order of the sweep, not of the workers: the file is the same whatever their number."""
    order = dict.fromkeys([*wanted(sweep), *searched(sweep), *known])
    return {key: known[key] for key in order if key in known}


def _offered(
    sweep: Sweep, left: list[tuple[Point, int]], refused: dict[str, str], run: SweepRun
) -> list[tuple[Point, int]]:
    """Those of `left` that have a rate; the others are failures of the run."""
    offered = []
    for point, replication in left:
        if not refused or (why := refused.get(goodput_key(sweep, point, replication))) is None:
            offered.append((point, replication))
        else:
            run.failures.append(f"failed: {shortened(why)}")
            run.at_fault = True
    return offered


def _rate_per_s(
    sweep: Sweep, point: Point, replication: int, calibration: Capacities
) -> float | None:
    """The rate that `point` is offered, None where its load names none."""
    load = point.experiment.offered
    if load is not None and load.goodput is not None:
        return calibration.capacities[goodput_key(sweep, point, replication)]
    return calibration.rate_per_s(sweep, point, replication)


def _run(
    sweep: Sweep, run: SweepRun, left: list[tuple[Point, int]], calibration: Capacities,
    config: dict[str, Any], jobs: int, cluster: str | None, progress: Progress,
) -> None:  # fmt: skip
    if run.directory.is_open:
        run.directory.write_calibration(calibration.capacities)
    logged = any(getattr(point.experiment, "logs", None) for point, _ in left)
    early = sum(replication == 1 for _, replication in left)
    early *= early < len(left)
    with staging(run.directory.path, logged) as logs:
        tasks = [_task(sweep, *each, calibration, logs) for each in left]
        with (
            progress.stage("points", len(left) + len(run.records), len(run.records)) as done,
            closing(_whole(tasks, jobs, cluster)) as outcomes,
        ):
            for outcome in outcomes:
                point, replication = left[outcome.index]
                if outcome.misfit:
                    run.misfits.note([point], {point.index: outcome.error or ""}, progress)
                elif outcome.error is not None:
                    _note(run, outcome, point, replication, progress)
                else:
                    if not run.directory.is_open:
                        record = provenance(sweep, config["resolved"], argv())
                        run.directory.create(config, record, calibration.capacities)
                        run.misfits.keep()
                    if logs is not None:
                        keep(logs, stem_of(point.index, replication), run.directory.path)
                    record = _record(point, replication, tasks[outcome.index], outcome)
                    run.records.append(run.directory.append(record))
                done()
                if early and left[outcome.index][1] == 1:
                    early -= 1
                    for line in preview(run.records, config) if not early else ():
                        progress.say(line)


def _whole(tasks: list[Task], jobs: int, cluster: str | None) -> Generator[Outcome, None, None]:
    """The outcomes of tasks, of which each is done in parts where it has several. A part whose
    worker died is begun again, once."""
    apart = [task.experiment.parts(task) for task in tasks]
    flat = [(at, place, part) for at, parts in enumerate(apart) for place, part in enumerate(parts)]
    several = len(flat) > len(tasks)
    found: dict[int, dict[int, Outcome]] = {}
    with closing(
        execute(measure, [part for *_, part in flat], jobs, cluster, int(several))
    ) as outcomes:
        for outcome in outcomes:
            at, place, _ = flat[outcome.index]
            mine = found.setdefault(at, {})
            mine[place] = outcome
            if len(mine) == len(apart[at]):
                yield _one(at, tasks[at], [mine[place] for place in sorted(mine)])
                del found[at]


def _one(at: int, task: Task, parts: list[Outcome]) -> Outcome:
    """The outcome of a task of which these were done."""
    failed = [part for part in parts if part.error is not None]
    if len(parts) == 1 or failed:
        return replace((failed or parts)[0], index=at)
    merge = partial(task.experiment.merge, parts=[part.value for part in parts])
    merged = attempt(merge, at, task)
    return replace(merged, wall_s=merged.wall_s + sum(part.wall_s for part in parts))


def _task(
    sweep: Sweep, point: Point, replication: int, calibration: Capacities, logs: Path | None
) -> Task:
    stem = None if logs is None else str(logs / stem_of(point.index, replication))
    rate_per_s = _rate_per_s(sweep, point, replication, calibration)
    return Task(point.experiment, replication, rate_per_s, stem)


def _note(
    run: SweepRun, outcome: Outcome, point: Point, replication: int, progress: Progress
) -> None:
    where = f"{title(point.overrides, point.control)}, replication {replication}"
    text = f"failed: {where}: {shortened(outcome.error or '')}"
    run.failures.append(text)
    run.at_fault |= outcome.at_fault
    progress.say(text)


def _record(point: Point, replication: int, task: Task, outcome: Outcome) -> Record:
    metrics, walls = apart(outcome.value)
    return {
        "point": point.index, "control": point.control, "overrides": point.overrides,
        "replication": replication, "seed": list(seed_of(point.experiment, replication)),
        "rate_per_s": task.rate_per_s, "metrics": metrics, "wall_s": round(outcome.wall_s, 3),
        "walls": walls,
    }  # fmt: skip


def apart(metrics: dict[str, Any]) -> tuple[dict[str, Any], dict[str, float]]:
    """Metrics, which every run repeats, and wall times (`*wall_s`), which none does."""
    kept: dict[str, Any] = {}
    walls: dict[str, float] = {}
    for key, value in metrics.items():
        if isinstance(value, dict):
            kept[key], inner = apart(value)
            walls |= inner
        elif key.endswith("wall_s"):
            walls[key] = value
        else:
            kept[key] = value
    return kept, walls


def summarise(records: list[Record], misfits: Sequence[UnfitPoint] = ()) -> list[Record]:
    """A row a point: its overrides, and each number's mean and half-width over replications; or
    why it does not fit, and with what it would."""
    rows = []
    for index in sorted({record["point"] for record in records}):
        mine = [record for record in records if record["point"] == index]
        row: Record = {"point": index, "control": mine[0]["control"], **mine[0]["overrides"]}
        row["replications"] = len(mine)
        figures = [flat({"rate_per_s": r["rate_per_s"], **r["metrics"]}) for r in mine]
        for name, value in figures[0].items():
            values = [each.get(name) for each in figures]
            if isinstance(value, (int, float)) and all(isinstance(v, (int, float)) for v in values):
                found = interval([float(v) for v in values if v is not None])
                row[name] = found.mean
                row[f"{name}_half"] = found.half if found.count > 1 else None
        rows.append(row)
    for each in misfits:
        change = ", ".join(assignments(each.fits_with or {}))
        rows.append({
            "point": each.point, "control": each.control, **each.overrides, "replications": 0,
            "does_not_fit": each.why, "fits_with": change,
        })  # fmt: skip
    return sorted(rows, key=lambda row: row["point"])
