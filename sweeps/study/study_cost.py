"""What a study would take: its trials and its finale, and CPU time, from a few that are timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from hwmodel.description.description import DescriptionError
from sweeps.plan.experiment import ExperimentSpec, Task, capacity_task, measure
from sweeps.run.progress import Progress
from sweeps.run.provenance import resolve
from sweeps.study.search import EVEN, on_its_memory, rehearse_study
from sweeps.study.study_spec import Study

ENOUGH_S = 12.0
"""CPU time after which no other device is timed (assumed)."""
SIZES = 6
"""Fleets that are served until the fewest cards of a trial are known (assumed: a bisection)."""


class StudyCost(NamedTuple):
    """trials: that are asked for, of `each` replications; finale: results of it; minutes: CPU time
    of all, about, if trials are like the base."""

    trials: int
    each: int
    finale: int
    minutes: float


def study_cost(study: Study) -> StudyCost:
    """Time the base, on the memory of a trial and on that of the finale. Raises DescriptionError
    where the study would."""
    resolve(study)
    rehearse_study(study, Progress())
    spec, base = study.spec, study.base
    relative = base.load is not None and base.load.relative is not None
    capacity_s = rate = None
    if relative:
        assert base.load is not None and base.load.relative is not None
        start = time.process_time()
        rate = base.load.relative * capacity_task(Task(base, 1, None))
        capacity_s = time.process_time() - start
    elif base.load is not None:
        rate = base.load.rate_per_s
    trial_s = _seconds(on_its_memory(study, base, EVEN), rate)
    own_s = _seconds(base, rate) if spec.memory == "table" else trial_s
    each = base.replications
    trials_s, going, whole_runs = 0.0, float(spec.trials), each
    for rung in spec.halving:
        cheap = study.served(rung.set, 1)
        trials_s += going * _seconds(on_its_memory(study, cheap, EVEN), rate)
        going *= rung.keep
        whole_runs = each if rung.set else each - 1
    trials_s += going * whole_runs * trial_s * (1 if spec.fleet is None else SIZES)
    tables = -(-spec.trials // spec.batch) if spec.memory == "table" else 0
    finale = spec.finale
    served = 0
    if finale is not None:  # the chosen, the base, references, families, the best first trial
        tried = finale.top * (len(spec.fleet.rivals) if spec.fleet else 1)
        beside = len(study.points) + len(spec.families) + 2
        served = tried * finale.choose + beside * finale.replications
    capacities_s = len(study.points) * len(study.replications) * (capacity_s or 0.0)
    whole = trials_s + (tables + served) * own_s + capacities_s
    return StudyCost(spec.trials, each, served, whole / 60)


class DevicesCost(NamedTuple):
    """What a study takes on several devices: CPU minutes of all, about, by the `timed` ones; those
    that it does not fit, and why."""

    minutes: float
    timed: int
    refused: dict[str, str]


def devices_cost(
    studies: Iterable[tuple[str, Callable[[], Study]]], first: StudyCost | None = None
) -> DevicesCost:
    """Of studies by device, each made when it is needed: the first is timed as a study is, others
    in one run of a trial's first rung each until `ENOUGH_S` are over, and the rest is taken to be
    like these. Raises DescriptionError where the first cannot be."""
    seconds, refused, count, start = list[float](), dict[str, str](), 0, time.process_time()
    for device, make in studies:
        try:
            study = make()
            count += 1
            if first is None:
                first = study_cost(study)
                start = time.process_time()
            elif seconds and time.process_time() - start > ENOUGH_S:
                continue
            seconds.append(_rung_seconds(study))
        except DescriptionError as error:
            refused[device] = str(error)
    if first is None or not seconds:
        return DevicesCost(0.0, 0, refused)
    mean = sum(seconds) / len(seconds)
    return DevicesCost(first.minutes * count * mean / seconds[0], len(seconds), refused)


def _rung_seconds(study: Study) -> float:
    """CPU time of the base as a trial is served on its first rung, all of it there at once."""
    cheap = next((rung.set for rung in study.spec.halving if rung.set), {})
    task = Task(on_its_memory(study, study.served(cheap, 1), EVEN), 1, None)
    start = time.process_time()
    capacity_task(task)
    return time.process_time() - start


def _seconds(experiment: ExperimentSpec, rate: float | None) -> float:
    """CPU time of a replication, the second time."""
    for _ in range(2):
        start = time.process_time()
        measure(Task(experiment, 1, rate))
    return time.process_time() - start
