"""Goodput: the largest load at which enough requests attain a service-level objective.

Found by bisection for each point, over the requests of all its replications and with its own memory
fidelity, and kept beside the capacities. Where it is the sweep's objective each replication has its
own, so that differences have an interval. None is above the capacity. Attainment is a step function
of the rate that need not fall everywhere; where it does not, the bisection finds one of the rates
at which it crosses.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import NamedTuple

from hwmodel.description.description import DescriptionError
from sweeps.analyse.label import label
from sweeps.plan.bisection import NoRate, largest, settled
from sweeps.plan.experiment import (
    CALIBRATION,
    ExperimentSpec,
    Task,
    capacity_task,
    run_task,
    workload_of,
)
from sweeps.plan.sweep_spec import Point, Sweep
from sweeps.run.capacity import CapacityFailed
from sweeps.run.executor import execute

LASTS = 2.0
"""Times as long as an answer takes that requests must arrive for: in less the card does not fill,
so that a short run attains more than a long one (assumed)."""
TOLERANCE = 0.01
"""The rate found attains the objective, and one so much larger does not."""
_ROUNDING = 1e-9
_DOUBLINGS = 10
"""How often the first guess, the capacity, is doubled or halved before giving up."""


class SoughtGoodput(NamedTuple):
    """A goodput to find: a point's, over the requests of some of its replications."""

    point: Point
    replications: tuple[int, ...]


def goodput_key(sweep: Sweep, point: Point, replication: int) -> str:
    """What decides the goodput of a replication, as text."""
    data = point.experiment.model_dump(mode="json", exclude={"logs"})
    if sweep.spec.objective == "goodput":
        data["replication"] = replication
    return json.dumps(data, sort_keys=True)


def searched(sweep: Sweep) -> dict[str, SoughtGoodput]:
    """The goodputs that the sweep needs, by key."""
    found: dict[str, SoughtGoodput] = {}
    for point in sweep.points:
        load = point.experiment.offered
        for r in range(1, point.experiment.replications + 1):
            if load is not None and load.goodput is not None:
                key = goodput_key(sweep, point, r)
                so_far = found.get(key, SoughtGoodput(point, ())).replications
                found[key] = SoughtGoodput(point, tuple(dict.fromkeys([*so_far, r])))
    return found


def search(
    points: dict[str, SoughtGoodput], known: dict[str, float], jobs: int,
    cluster: str | None = None, unfit: dict[str, str] | None = None,
) -> Iterator[tuple[str, float | str]]:  # fmt: skip
    """Find what is not known yet and yield it: (key, requests a second), or why there is no such
    rate where the point or its objective is at fault. unfit: takes why, by key, where a device has
    no room. Raises CapacityFailed."""
    missing = {key: sought for key, sought in points.items() if key not in known}
    keys = list(missing)
    tasks = [(each.point.experiment, each.replications) for each in missing.values()]
    with closing(execute(goodput_task, tasks, jobs, cluster)) as outcomes:
        for outcome in outcomes:
            if outcome.misfit and unfit is not None:
                unfit[keys[outcome.index]] = outcome.error or ""
            elif outcome.error is not None:
                where = ", ".join(map(label, missing[keys[outcome.index]].point.overrides.values()))
                text = f"goodput of {where}: {outcome.error}"
                if not outcome.at_fault:
                    raise CapacityFailed(text)
                yield keys[outcome.index], text
            else:
                yield keys[outcome.index], float(outcome.value)


def goodput_task(task: tuple[ExperimentSpec, Sequence[int]]) -> float:
    """Requests a second, over the requests of these replications. Raises DescriptionError."""
    experiment, replications = task
    assert experiment.load is not None and experiment.load.goodput is not None
    slo = experiment.load.goodput
    process = workload_of(experiment).arrivals.process
    if process in ("all_at_once", "closed"):
        raise DescriptionError(f"goodput needs arrivals that have a rate; got {process}")

    capacity = capacity_task(Task(experiment, CALIBRATION, None))
    answers_s: dict[float, float] = {}

    def attains(rate_per_s: float) -> bool:
        if rate_per_s > capacity:  # what waits would grow, and in a longer run nobody attains it
            return False
        spare = len(replications) * (1 - slo.attainment) + _ROUNDING
        for replication in replications:
            metrics = run_task(Task(experiment, replication, rate_per_s))
            spare -= 1 - metrics["slo"]["attainment"]
            if spare < 0:
                return False
        answers_s[rate_per_s] = metrics["latency_s"]["mean"]
        return True

    try:
        found = largest_rate(attains, capacity)
    except NoRate as error:
        raise DescriptionError(str(error)) from None
    least = math.ceil(LASTS * answers_s[found] * found)
    if experiment.requests < least:
        raise DescriptionError(
            f"{experiment.requests:,} requests arrive within {experiment.requests / found:.2g} s at"
            f" {found:.3g} a second, and an answer takes {answers_s[found]:.2g} s: so few do not"
            f" fill the card; expected {least:,} requests or more",
            path="requests",
        )
    return found


def largest_rate(
    attains: Callable[[float], bool], guess: float, tolerance: float = TOLERANCE
) -> float:
    """The largest rate that attains, found from a guess within the relative tolerance. Raises
    NoRate."""
    return settled(largest(guess, tolerance, _DOUBLINGS), attains)[0]
