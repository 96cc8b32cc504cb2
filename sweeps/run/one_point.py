"""One replication of one point of a sweep, here and now: nothing is written."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from hwmodel.description.description import DescriptionError
from hwmodel.description.files import steady
from sweeps.analyse.label import named
from sweeps.analyse.rows import Record
from sweeps.plan.experiment import Described, Task, measure, seed_of
from sweeps.plan.sweep import Given, load_sweep
from sweeps.plan.sweep_spec import Point, Sweep
from sweeps.run.capacity import Capacities, calibrate, rivals, wanted
from sweeps.run.goodput import goodput_key, search, searched
from sweeps.run.provenance import refuse_changes, resolve
from sweeps.run.store import CALIBRATION, CONFIG, RunDirectory


@steady
def simulate(
    given: Given, overrides: Iterable[str] = (), point: int | None = None, replication: int = 1,
    jobs: int = 1,
) -> Record:  # fmt: skip
    """A line of `results.jsonl` without its wall times; wall times are among the metrics.

    given: a sweep, or a run directory with its measured capacities. point: by number; may be left
    out where there is one. jobs: processes that measure a capacity or seek a goodput, where the
    load asks for one. Raises DescriptionError.
    """
    sweep, known = opened(given, overrides)
    chosen = point_of(sweep, point)
    refuse_replication(chosen.experiment, replication)
    rate = rate_of(sweep, chosen, replication, known, jobs)
    return {
        "point": chosen.index, "control": chosen.control, "overrides": chosen.overrides,
        "replication": replication, "seed": list(seed_of(chosen.experiment, replication)),
        "rate_per_s": rate, "metrics": measure(Task(chosen.experiment, replication, rate)),
    }  # fmt: skip


def opened(given: Given, overrides: Iterable[str]) -> tuple[Sweep, dict[str, float]]:
    """A sweep, or that of a run directory; and the capacities that are known of it. Raises
    DescriptionError."""
    if not isinstance(given, (str, Path)) or not Path(given).is_dir():
        return load_sweep(given, overrides), {}
    directory = RunDirectory(Path(given))
    directory.config()  # says what is missing
    sweep = load_sweep(directory.path / CONFIG, overrides)
    if sweep.spec.resolved is not None:
        refuse_changes(sweep.spec.resolved, resolve(sweep), sweep.document.file)
    return sweep, directory.read_json(CALIBRATION) or {}


def point_of(sweep: Sweep, index: int | None) -> Point:
    """A point by its number, or the only one. Raises DescriptionError, which lists them."""
    if index is None and len(sweep.points) == 1:
        return sweep.points[0]
    if isinstance(index, int) and 0 <= index < len(sweep.points):
        return sweep.points[index]
    listed = "; ".join(
        f"{point.index} is {' '.join(named(*item) for item in point.overrides.items())}"
        + (f" ({point.control})" if point.control else "")
        for point in sweep.points[:12]
    )
    more = f"; and so on to {len(sweep.points) - 1}" if len(sweep.points) > 12 else ""
    raise DescriptionError(f"expected one of the points: {listed}{more}", "--point")


def refuse_replication(experiment: Described, replication: int) -> None:
    """Raise DescriptionError for a replication that the experiment does not have."""
    if not 1 <= replication <= experiment.replications:
        why = f"expected 1 to {experiment.replications}; got {replication}"
        raise DescriptionError(why, "--replication")


def rate_of(
    sweep: Sweep, point: Point, replication: int, known: dict[str, float], jobs: int
) -> float | None:
    """Requests a second that the run offers the point in a replication, measured as the run does
    where they are not known; None where its load names none. Raises DescriptionError."""
    capacities, load = dict(known), point.experiment.offered
    if load is not None and load.goodput is not None:
        key = goodput_key(sweep, point, replication)
        for _, rate in search({key: searched(sweep)[key]}, capacities, jobs):
            if isinstance(rate, str):
                raise DescriptionError(rate)
            capacities[key] = rate
        return capacities[key]
    if load is not None and load.relative is not None:
        group = rivals(sweep, point, replication)
        asked = {key: each for key, each in wanted(sweep).items() if key in group}
        capacities.update(calibrate(asked, capacities, jobs))
    return Capacities(capacities).rate_per_s(sweep, point, replication)
