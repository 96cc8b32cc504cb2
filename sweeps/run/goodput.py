"""Goodput: the largest load at which enough requests attain a service-level objective.

Found by bisection for each point, over the requests of all its replications and with its own memory
fidelity, and kept beside the capacities. Attainment is a step function of the rate that need not
fall everywhere; where it does not, the bisection finds one of the rates at which it crosses.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing

from hwmodel.description.description import DescriptionError
from sweeps.analyse.label import label
from sweeps.plan.bisection import NoRate, largest, settled
from sweeps.plan.experiment import (
    CALIBRATION,
    Described,
    ExperimentSpec,
    Task,
    capacity_task,
    run_task,
    workload_of,
)
from sweeps.plan.sweep_spec import Point, Sweep
from sweeps.run.capacity import CapacityFailed
from sweeps.run.executor import execute

TOLERANCE = 0.01
"""The rate found attains the objective, and one so much larger does not."""
_ROUNDING = 1e-9
_DOUBLINGS = 10
"""How often the first guess, the capacity, is doubled or halved before giving up."""


def goodput_key(experiment: Described) -> str:
    """What decides a goodput, as text."""
    return json.dumps(experiment.model_dump(mode="json", exclude={"logs"}), sort_keys=True)


def searched(sweep: Sweep) -> dict[str, Point]:
    """The points whose goodput the sweep needs, by key."""
    return {
        goodput_key(point.experiment): point
        for point in sweep.points
        if (load := point.experiment.offered) is not None and load.goodput is not None
    }


def search(
    points: dict[str, Point], known: dict[str, float], jobs: int, cluster: str | None = None
) -> Iterator[tuple[str, float | str]]:
    """Find what is not known yet and yield it: (key, requests a second), or why there is no such
    rate where the point or its objective is at fault. Raises CapacityFailed."""
    missing = {key: point for key, point in points.items() if key not in known}
    keys = list(missing)
    experiments = [missing[key].experiment for key in keys]
    with closing(execute(goodput_task, experiments, jobs, cluster)) as outcomes:
        for outcome in outcomes:
            if outcome.error is not None:
                where = ", ".join(map(label, missing[keys[outcome.index]].overrides.values()))
                text = f"goodput of {where}: {outcome.error}"
                if not outcome.at_fault:
                    raise CapacityFailed(text)
                yield keys[outcome.index], text
            else:
                yield keys[outcome.index], float(outcome.value)


def goodput_task(experiment: ExperimentSpec) -> float:
    """Requests a second. Raises DescriptionError."""
    assert experiment.load is not None and experiment.load.goodput is not None
    slo = experiment.load.goodput
    process = workload_of(experiment).arrivals.process
    if process in ("all_at_once", "closed"):
        raise DescriptionError(f"goodput needs arrivals that have a rate; got {process}")

    def attains(rate_per_s: float) -> bool:
        spare = experiment.replications * (1 - slo.attainment) + _ROUNDING
        for replication in range(1, experiment.replications + 1):
            metrics = run_task(Task(experiment, replication, rate_per_s))
            spare -= 1 - metrics["slo"]["attainment"]
            if spare < 0:
                return False
        return True

    try:
        guess = capacity_task(Task(experiment, CALIBRATION, None))
        return largest_rate(attains, guess)
    except NoRate as error:
        raise DescriptionError(str(error)) from None


def largest_rate(
    attains: Callable[[float], bool], guess: float, tolerance: float = TOLERANCE
) -> float:
    """The largest rate that attains, found from a guess within the relative tolerance. Raises
    NoRate."""
    return settled(largest(guess, tolerance, _DOUBLINGS), attains)[0]
