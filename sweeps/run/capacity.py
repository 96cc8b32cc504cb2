"""Offered load as a multiple of capacity: what each point could serve, measured once and kept.

A point's capacity is its rate with every request there from the start, with `analytic` memory
(cheap, and the same for all controls): of each replication on requests of its own, which are not
those that it is measured on, or of all on the same. The best of the compared axis sets the load of
its whole group.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from hwmodel.description.description import DescriptionError
from sweeps.analyse.figures import REFERENCE
from sweeps.analyse.label import label
from sweeps.plan.experiment import CALIBRATION, Described, Task, capacity_task
from sweeps.plan.sweep_spec import Point, Sweep
from sweeps.run.executor import execute
from sweeps.run.outcome import Outcome, Work

_NOT_PART = {"load", "replications", "logs", "latency_at", "calibration"}


class CapacityFailed(Exception):
    """A capacity could not be measured, through no fault of the input."""

    exit_code = 1


@dataclass
class Capacities:
    """Capacities in requests a second, by a key that says what was served on what."""

    capacities: dict[str, float]

    def rate_per_s(self, sweep: Sweep, point: Point, replication: int) -> float | None:
        """The rate that `point` is offered, None where its load names none."""
        load = point.experiment.offered
        if load is None or load.relative is None:
            return None if load is None else load.rate_per_s
        keys = rivals(sweep, point, replication)
        return load.relative * max(self.capacities[key] for key in keys)


@dataclass(frozen=True)
class WantedCapacity:
    """A capacity to measure: a point's, on what one of its replications is calibrated on."""

    point: Point
    replication: int

    @property
    def key(self) -> str:
        """What decides it, as text."""
        return capacity_key(self.point.experiment, self.replication)

    @property
    def task(self) -> Task:
        """What measures it."""
        experiment = self.point.experiment
        return Task(experiment, experiment.calibrated_on(self.replication), None)


def capacity_key(experiment: Described, replication: int) -> str:
    """What decides the capacity of a replication, as text: the experiment without its load and
    memory fidelity, and what the replication is calibrated on."""
    data = experiment.model_dump(mode="json", exclude=_NOT_PART)
    data["serving"].pop("memory", None)
    if (on := experiment.calibrated_on(replication)) != CALIBRATION:
        data["calibration"] = -on
    return json.dumps(data, sort_keys=True)


def wanted(sweep: Sweep) -> dict[str, WantedCapacity]:
    """The capacities that the sweep needs, by key."""
    found = (
        WantedCapacity(point, replication)
        for point in sweep.points
        if (load := point.experiment.offered) is not None
        and load.relative is not None
        and (point.control != REFERENCE or load.of == "own")
        for replication in range(1, point.experiment.replications + 1)
    )
    return {each.key: each for each in found}


def calibrate(
    wanted: dict[str, WantedCapacity], known: dict[str, float], jobs: int,
    cluster: str | None = None, unfit: dict[str, str] | None = None,
) -> Iterator[tuple[str, float]]:  # fmt: skip
    """Measure what is not known yet and yield it. unfit: takes why there is none, by key, where a
    device has no room. Raises DescriptionError."""
    missing = {key: each for key, each in wanted.items() if key not in known}
    keys = list(missing)
    tasks = [each.task for each in missing.values()]
    with closing(execute(capacity_task, tasks, jobs, cluster)) as outcomes:
        for outcome in outcomes:
            if outcome.misfit and unfit is not None:
                unfit[keys[outcome.index]] = outcome.error or ""
                continue
            if outcome.error is not None:
                _refuse(missing[keys[outcome.index]].point, outcome)
            yield keys[outcome.index], float(outcome.value)


def answered(work: Work, tasks: Sequence[Any], jobs: int) -> Iterator[tuple[int, Any]]:
    """(index, value) of each task, or in words why there is none. Raises CapacityFailed."""
    with closing(execute(work, tasks, jobs)) as outcomes:
        for outcome in outcomes:
            if outcome.error is not None and not outcome.at_fault:
                raise CapacityFailed(f"failed: {outcome.error}")
            yield outcome.index, outcome.error if outcome.at_fault else outcome.value


def _refuse(point: Point, outcome: Outcome) -> None:
    if outcome.at_fault:
        raise DescriptionError(outcome.error or "")
    where = ", ".join(label(value) for value in point.overrides.values())
    raise CapacityFailed(f"failed: capacity of {where}: {outcome.error}")


def rivals(sweep: Sweep, point: Point, replication: int) -> set[str]:
    """Keys of the capacities that set this one's load: its group's within its control, or its
    own."""
    load = point.experiment.offered
    if load is not None and load.of == "own":
        return {capacity_key(point.experiment, replication)}
    group = _others(sweep, point)
    return {
        capacity_key(other.experiment, replication)
        for other in sweep.points
        if other.control == (point.control if point.control != REFERENCE else "")
        and _others(sweep, other) == group
    }


def _others(sweep: Sweep, point: Point) -> str:
    rest = {path: value for path, value in point.overrides.items() if path != sweep.spec.compare}
    return json.dumps(rest, sort_keys=True, default=str)
