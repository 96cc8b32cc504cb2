"""What a run would take: its points, and CPU time, from a few replications that are timed."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, NamedTuple

from hwmodel.description.description import DescriptionError
from sweeps.plan.experiment import ExperimentSpec, Task, measure
from sweeps.plan.sweep_spec import BEST, Point, Sweep
from sweeps.run.capacity import rivals, wanted
from sweeps.run.one_point import rate_of
from sweeps.run.progress import LATE_S, Progress
from sweeps.run.provenance import resolve
from sweeps.run.rehearsal import refuse_unknown, rehearse

TIMED = 5
"""Points that are timed, spread over the sweep, each in one replication (assumed)."""
ENOUGH_S = 40.0
"""CPU time after which no other point is timed (assumed)."""
AGAIN_S = 5.0
"""CPU time of a first point that is measured again (assumed)."""


class DryRun(NamedTuple):
    """unfit: points beside them that do not fit; results: points times their replications; timed:
    points that were timed; minutes: CPU time of all, about, if they are like those, and of what the
    command did before them (imports, a rehearsal), as a run does; explained: whether the causes of
    the leading gap may be simulated after them, which takes no more results than the run; lengths:
    of the timed points whose rates are asked for, requests with the warm-up, and how many ran at
    once."""

    points: int
    unfit: int
    results: int
    timed: int
    minutes: float
    explained: bool
    lengths: list[tuple[int, float]]


def dry_run(sweep: Sweep, began_s: float | None = None) -> DryRun:
    """What a run takes; began_s: the process's CPU time when its command began, now by default.

    Points that are found on the way (break-evens, ties) are not counted, nor is a timed one
    that cannot be measured. The first is measured twice where it is short, as what a process does
    once is not part of every result. Raises DescriptionError where a run would, or none of these
    can be measured."""
    began_s = time.process_time() if began_s is None else began_s
    resolve(sweep)
    unfit: dict[int, str] = {}
    known = rehearse(sweep.points, sweep.document, Progress(), unfit=unfit)
    sweep = replace(sweep, points=[each for each in sweep.points if each.index not in unfit])
    refuse_unknown(sweep.spec.metrics, known, sweep.document)
    places = {i * (len(sweep.points) - 1) // (TIMED - 1) for i in range(TIMED)}
    middle = len(sweep.points) // 2  # the first, as one point may be all that there is time for
    chosen = [sweep.points[place] for place in sorted(places, key=lambda at: abs(at - middle))]
    results = sum(point.experiment.replications for point in sweep.points)
    relative = len(wanted(sweep))
    seconds, refused, start = list[float](), list[DescriptionError](), time.process_time()
    lengths = list[tuple[int, float]]()
    with Progress().stage("timed", len(chosen), late_s=LATE_S) as step:
        for point in chosen:
            if seconds and time.process_time() - start > ENOUGH_S:
                break
            try:
                (once, metrics), began = _cost(sweep, point, relative, results), time.process_time()
                if not seconds and began - start < AGAIN_S:
                    once, metrics = _cost(sweep, point, relative, results)
                seconds.append(once)
                lengths += _length(point, metrics)
            except DescriptionError as error:  # such as a batch that this card cannot hold
                refused.append(error)
            step()
    if not seconds:
        raise refused[0]
    mean = sum(seconds) / len(seconds)
    spec = sweep.spec
    explained = (
        spec.rule == BEST
        and issubclass(spec.experiment, ExperimentSpec)
        and spec.objective in (None, "throughput")
        and len(spec.competitors) > 1
    )
    return DryRun(
        len(sweep.points),
        len(unfit),
        results,
        len(seconds),
        (start - began_s + mean) / 60,
        explained,
        lengths if spec.objective in (None, "throughput") else [],
    )


def _length(point: Point, metrics: dict[str, Any]) -> list[tuple[int, float]]:
    """Requests of a point and how many ran at once, where both are known."""
    spec, batch = point.experiment, metrics.get("batch")
    if not isinstance(spec, ExperimentSpec) or not isinstance(batch, float) or not batch:
        return []
    return [(spec.requests + spec.warmup_requests, batch)]


def _cost(
    sweep: Sweep, point: Point, relative: int, results: int
) -> tuple[float, dict[str, Any]]:  # fmt: skip
    """CPU seconds of the sweep if all its points are like this one, and the metrics of this one.
    Raises DescriptionError."""
    start = time.process_time()
    rate = rate_of(sweep, point, 1, {}, jobs=1)
    load = point.experiment.offered
    shared = load is not None and load.relative is not None
    each = (time.process_time() - start) / (len(rivals(sweep, point, 1)) if shared else 1)
    start = time.process_time()
    metrics = measure(Task(point.experiment, 1, rate))
    return each * (relative or results) + (time.process_time() - start) * results, metrics
