"""Simulations beside those of a run: kept in its directory `explain`, a result a line, and found
again by what decides them. What the run itself has simulated is not simulated again."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from hwmodel.description.yaml_writer import plain
from sweeps.analyse.figures import BACKLOG, THROUGHPUT
from sweeps.analyse.table import Row, Table
from sweeps.plan.counterfactual import key
from sweeps.plan.experiment import ExperimentSpec, Task, measure
from sweeps.plan.place import shortened
from sweeps.plan.sweep import Sweep
from sweeps.plan.sweep_spec import Point
from sweeps.run.executor import execute
from sweeps.run.explanation import FOLDER, Known
from sweeps.run.progress import Progress
from sweeps.run.provenance import argv, provenance
from sweeps.run.rehearsal import rehearse
from sweeps.run.store import RunDirectory
from sweeps.run.sweep_run import apart
from sweeps.run.version import version

_KEPT = ("kv_slots", "batch", "preemptions", "migrations", "limit_share", "phase_share")
"""Metrics that are kept of a simulation, beside its rate and backlog."""


class SoughtSimulation(NamedTuple):
    """A simulation of one replication."""

    experiment: ExperimentSpec
    rate_per_s: float | None
    words: str
    """What it differs in, for whoever reads that it failed."""


class Failure(NamedTuple):
    """Why there is no result."""

    why: str
    at_fault: bool
    """The description asks for what cannot be served."""


Wanted = dict[tuple[str, int], SoughtSimulation]
"""By key and replication."""


class Stopped(Exception):
    """Ctrl-C; what was finished is kept."""

    exit_code = 130

    def __init__(self, done: int, total: int) -> None:
        self.kept = f"{done} of {total} simulations are kept"
        super().__init__(f"{self.kept}; the same command continues")


def known_of(path: Path, table: Table, sweep: Sweep) -> Known:
    """The run's own results, and those beside them that this version has made."""
    found: Known = {}
    for row in (row for group in table.groups for row in group.rows if laid_out(sweep, row)):
        experiment = experiment_of(sweep, row)
        for r, metrics in row.raw.items():
            found.setdefault(key(experiment, row.rates[r]), {})[r] = metrics
    own = RunDirectory(path / FOLDER)
    for line in own.records() if own.path.is_dir() else []:
        if line.get("version") == version():
            found.setdefault(line["key"], {})[line["replication"]] = line["metrics"]
    return found


def laid_out(sweep: Sweep, row: Row) -> bool:
    """Whether its point is one that the sweep begins with, not one that results asked for."""
    return row.point < len(sweep.points)


def experiment_of(sweep: Sweep, row: Row) -> ExperimentSpec:
    """What a row of a run that serves has served."""
    experiment = sweep.points[row.point].experiment
    assert isinstance(experiment, ExperimentSpec)
    return experiment


def unknown(wanted: Wanted, known: Known) -> Wanted:
    """What is not simulated yet."""
    return {(name, r): each for (name, r), each in wanted.items() if r not in known.get(name, {})}


def simulate(
    path: Path, sweep: Sweep, resolved: dict[str, Any], wanted: Wanted, known: Known, jobs: int,
    progress: Progress,
) -> dict[tuple[str, int], Failure]:  # fmt: skip
    """Simulate what is not known of `wanted` and add it to `known`, each result onto the disk
    before the next. Returns why the rest failed. Raises DescriptionError where a kind of it cannot
    work at all, Stopped on Ctrl-C."""
    left = unknown(wanted, known)
    if not left:
        return {}
    own, done = RunDirectory(path / FOLDER), len(wanted) - len(left)
    failed: dict[tuple[str, int], Failure] = {}
    config = {"kind": "explanation", "name": sweep.spec.name, "of": str(path)}
    places = list(left)
    tasks = [Task(_bare(each.experiment), r, each.rate_per_s) for (_, r), each in left.items()]
    try:
        rehearse(_tried_out(left), None, progress)
        own.create(config, provenance(sweep, resolved, argv()), {})
        with (
            progress.stage("counterfactuals", len(wanted), done) as step,
            closing(execute(measure, tasks, jobs)) as outcomes,
        ):
            for outcome in outcomes:
                name, replication = place = places[outcome.index]
                each = left[place]
                if outcome.error is not None:
                    failed[place] = Failure(shortened(outcome.error), outcome.at_fault)
                    if not outcome.at_fault:
                        progress.say(f"failed: {each.words}: {failed[place].why}")
                else:
                    metrics = _kept(outcome.value)
                    own.append({
                        "key": name, "changed": each.words, "replication": replication,
                        "rate_per_s": each.rate_per_s,
                        "policy": each.experiment.serving.policy.model_dump(mode="json"),
                        "metrics": metrics, "wall_s": round(outcome.wall_s, 3),
                        "version": version(),
                    })  # fmt: skip
                    known.setdefault(name, {})[replication] = metrics
                    done += 1
                step()
    except KeyboardInterrupt:
        raise Stopped(done, len(wanted)) from None
    finally:
        own.release()
    return failed


def _tried_out(left: Wanted) -> list[Point]:
    """One of each kernel that simulates memory: what compiles them before workers fork. What else
    cannot work fails by itself."""
    found = {each.experiment.kernel: each.experiment for each in reversed(left.values())}
    return [Point(i, {}, "", experiment) for i, experiment in enumerate(found.values())]


def _bare(experiment: ExperimentSpec) -> ExperimentSpec:
    """Without what makes files or a second pass."""
    return experiment.model_copy(update={"logs": [], "latency_at": None})


def _kept(metrics: dict[str, Any]) -> dict[str, Any]:
    found, _ = apart(metrics)
    names = (THROUGHPUT, BACKLOG, *_KEPT)
    return plain({name: found[name] for name in names if name in found})
