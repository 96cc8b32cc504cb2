"""What a study would take: its trials and its finale, and CPU time, from a few that are timed."""

from __future__ import annotations

import time
from typing import NamedTuple

from sweeps.plan.experiment import ExperimentSpec, Task, capacity_task, measure
from sweeps.run.progress import Progress
from sweeps.run.provenance import resolve
from sweeps.study.search import EVEN, on_its_memory, rehearse_study
from sweeps.study.study_spec import Study

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
    if finale is not None:  # the chosen, the base, references, the paper's and the best first trial
        tried = finale.top * (len(spec.fleet.rivals) if spec.fleet else 1)
        served = tried * finale.choose + (len(study.points) + 3) * finale.replications
    capacities_s = len(study.points) * len(study.replications) * (capacity_s or 0.0)
    whole = trials_s + (tables + served) * own_s + capacities_s
    return StudyCost(spec.trials, each, served, whole / 60)


def _seconds(experiment: ExperimentSpec, rate: float | None) -> float:
    """CPU time of a replication, the second time."""
    for _ in range(2):
        start = time.process_time()
        measure(Task(experiment, 1, rate))
    return time.process_time() - start
