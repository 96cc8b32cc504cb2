"""What each setting of the best is worth: it is varied alone, with all else as the best has it.

Along each of the study's `profiles`, such as the pool's size and the number of buckets, and back to
what the base has. Served on the finale's replications as trials are on the first rung, so that a
point costs little; all are paired by replication.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.description.yaml_writer import plain, to_yaml_flow
from sweeps.analyse.rows import at, flat
from sweeps.plan.experiment import ExperimentSpec, Task
from sweeps.run.store import write_atomically
from sweeps.run.sweep_run import apart
from sweeps.study.contenders import Contender
from sweeps.study.first import counts_of
from sweeps.study.space import QUARTER, Overrides, ParameterSpec
from sweeps.study.study_run import StudyRun
from sweeps.study.study_spec import Study
from sweeps.study.trial_batch import efficiency_of_last, on_its_memory
from sweeps.study.trials import PROFILE

_POINTS = 4
"""Along a range, beside what stands beside it (assumed)."""


class Varied(NamedTuple):
    """One setting changed. `x`: the number that it is drawn at; None where it is a word."""

    path: str
    label: str
    x: float | None
    back: bool
    """Whether it is what the base has."""
    overrides: Overrides


def write_profile(run: StudyRun, chosen: Contender, among: range) -> None:
    """Serve what is not served yet, and write a line a point: its objective by replication, beside
    what the best has as it is."""
    study = run.study
    if study.spec.fleet is not None or not study.spec.profiles:
        return
    points = [Varied("", "as chosen", None, False, chosen.overrides)]
    points += varied(study, chosen.overrides)
    served = _serve(run, points, among)
    lines = [
        {"path": each.path, "label": each.label, "x": each.x, "back": each.back,
         "value": at_path(study, each.overrides, each.path), "values": values}
        for each, values in zip(points, served, strict=True) if len(values) == len(among)
    ]  # fmt: skip
    text = "".join(json.dumps(plain(line), allow_nan=False) + "\n" for line in lines)
    write_atomically(run.directory.path / PROFILE, text)


def varied(study: Study, chosen: Overrides) -> list[Varied]:
    """The points, each of which is an experiment."""
    found = []
    for path in study.spec.profiles:
        for label, x, change in _along(study, path, study.spec.space[path]):
            found.append(Varied(path, label, x, False, _changed(study, chosen, change)))
    for path in study.spec.space:
        own, base = at_path(study, chosen, path), at_path(study, {}, path)
        if own != base:
            change = _of_base(study, path)
            label = _words(change, path)
            found.append(Varied(path, label, None, True, _changed(study, chosen, change)))
    return [each for each in found if _is_experiment(study, each.overrides)]


def at_path(study: Study, overrides: Overrides, path: str) -> Any:
    """What an experiment has there; of levels that a balance sets, that balance and their
    number."""
    data = study.experiment(overrides).model_dump()
    value = at(data, *path.split("."))
    if path not in study.spec.space or not study.spec.space[path].quantiles:
        return value
    policy = at(data, *path.split(".")[:-1])
    return [policy["buckets"], value or policy["balance"]]


def _along(
    study: Study, path: str, spec: ParameterSpec
) -> list[tuple[str, float | None, Overrides]]:
    """(label, x, overrides) of the points along a parameter."""
    if spec.quantiles:
        head = path.rpartition(".")[0]
        balance = "least_unused" if "least_unused" in spec.balance else (*spec.balance, None)[0]
        change = {} if balance is None else {f"{head}.balance": balance}
        return [
            (f"{n}", float(n), {f"{head}.buckets": n, path: [], **change})
            for n in counts_of(*spec.quantiles)
        ]
    if spec.choice:
        numbers = all(isinstance(each, int | float) for each in spec.choice)
        return [
            (to_yaml_flow(each), float(each) if numbers else None, {path: each})
            for each in spec.choice
        ]
    beside = [(f"{each:g}", float(each), {path: spec.value(each)}) for each in spec.also]
    if spec.step == QUARTER:
        low, high = study.space.quarters(spec)
        counts = np.unique(np.geomspace(low, high, _POINTS).round().astype(int))
        shares = {round(int(n) * study.quarter, 7): int(n) for n in counts}
        return [*beside, *((f"{share:.3g}", share, {path: share}) for share in shares)]
    low_end, high_end = spec.range
    spaced = np.geomspace if spec.log else np.linspace
    ends = spaced(low_end, high_end, _POINTS)
    drawn = np.unique(ends.round().astype(int)) if spec.whole else ends
    return [*beside, *((f"{n:.3g}", float(n), {path: spec.value(n.item())}) for n in drawn)]


def _of_base(study: Study, path: str) -> Overrides:
    """What makes a parameter what the base has."""
    value = at_path(study, {}, path)
    if study.spec.space[path].quantiles:
        head = path.rpartition(".")[0]
        policy = at(study.base.model_dump(), *head.split("."))
        keys = ("buckets", "balance", "levels")
        return {f"{head}.{key}": policy[key] for key in keys}
    return {path: value}


def _changed(study: Study, chosen: Overrides, change: Overrides) -> Overrides:
    """The best with a change, without what has no meaning beside that."""
    return study.space.meant({**chosen, **change})


def _words(change: Overrides, path: str) -> str:
    head = path.rpartition(".")[0]
    if f"{head}.balance" in change and not change[path]:
        return f"{change[f'{head}.buckets']} by {change[f'{head}.balance']}"
    return to_yaml_flow(change[path])


def _is_experiment(study: Study, overrides: Overrides) -> bool:
    try:
        study.experiment(overrides)
    except DescriptionError:
        return False
    return True


def _serve(run: StudyRun, points: list[Varied], among: range) -> list[list[float]]:
    """Of each point the objective by replication; fewer where it cannot be served."""
    study, metric = run.study, run.study.spec.objectives[0].metric
    cheap = next((rung.set for rung in study.spec.halving if rung.set), {})
    efficiency = efficiency_of_last(run)
    known: dict[tuple[int, int], float | None] = {}
    missing = []
    experiments = [study.experiment(each.overrides) for each in points]
    as_place = [experiments.index(each) for each in experiments]  # of several alike the first
    for i, each in enumerate(points):
        for replication in among if as_place[i] == i else ():
            noted = run.journal.note(_note(each, replication))
            if noted is None:
                missing.append((i, replication))
            else:
                known[i, replication] = noted["value"]
    tasks = [
        Task(_experiment(study, points[i], cheap, r, efficiency), r, run.rates[r])
        for i, r in missing
    ]
    with run.progress.stage("settings alone", len(known) + len(missing), len(known)) as done:
        for outcome in run.workers.outcomes(tasks):
            i, replication = missing[outcome.index]
            value = None
            if outcome.error is None:
                found = flat(apart(outcome.value)[0]) | study.cost(points[i].overrides)
                value = found.get(metric)
            run.journal.write_note(_note(points[i], replication), {"value": value})
            known[i, replication] = value
            done()
    return [[value for r in among if (value := known[i, r]) is not None] for i in as_place]


def _experiment(
    study: Study, point: Varied, cheap: Overrides, replication: int, efficiency: dict[str, float]
) -> ExperimentSpec:
    served = study.served({**point.overrides, **cheap}, replication)
    return on_its_memory(study, served, efficiency)


def _note(point: Varied, replication: int) -> str:
    return f"profile, {point.path} {point.label} {point.back}, replication {replication}"
