"""The simulations behind the explanations of a run: which pairs, what is known, and what is left.

They are kept in the run's own directory, in a run directory `explain`, a result a line, and what
the run itself has simulated is not simulated again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hwmodel.description.description import DescriptionError, nearest
from hwmodel.description.yaml_writer import plain
from sweeps.analyse.figures import BACKLOG, THROUGHPUT
from sweeps.analyse.gap import pairs as common
from sweeps.analyse.label import named
from sweeps.analyse.table import Group, Row, Table
from sweeps.plan.counterfactual import State, key
from sweeps.plan.experiment import ExperimentSpec, Task, measure
from sweeps.plan.place import shortened
from sweeps.plan.sweep import Sweep, load_sweep
from sweeps.plan.sweep_spec import BEST, Point
from sweeps.run import explanation
from sweeps.run.executor import execute
from sweeps.run.explanation import FILE, FOLDER, Explanation, Known, Pair, explain, results
from sweeps.run.findings import find, keep_sweep
from sweeps.run.progress import Progress
from sweeps.run.provenance import argv, provenance, refuse_changes, resolve
from sweeps.run.reading import read_sweep
from sweeps.run.store import CONFIG, RunDirectory, write_atomically
from sweeps.run.sweep_run import apart, rehearse
from sweeps.run.version import version

_KEPT = ("kv_slots", "batch", "preemptions", "migrations", "limit_share", "phase_share")
"""Metrics that are kept of a simulation, beside its rate and backlog."""


class Stopped(Exception):
    """Ctrl-C; what was finished is kept."""

    exit_code = 130

    def __init__(self, done: int, total: int) -> None:
        self.kept = f"{done} of {total} simulations are kept"
        super().__init__(f"{self.kept}; the same command continues")


@dataclass
class Explained:
    """What was found, and why the rest was not."""

    found: list[Explanation]
    failures: list[str] = field(default_factory=list)


@dataclass
class Plan:
    """Pairs to explain, and what is known of them."""

    path: Path
    sweep: Sweep
    resolved: dict[str, Any]
    pairs: list[Pair]
    known: Known
    wanted: dict[tuple[str, int], tuple[State, float | None]]
    """Everything that is simulated, by its key and replication."""

    @property
    def left(self) -> dict[tuple[str, int], tuple[State, float | None]]:
        """What is not known yet."""
        return {
            (name, r): each for (name, r), each in self.wanted.items()
            if r not in self.known.get(name, {})
        }  # fmt: skip


def explain_run(path: Path, point: str, jobs: int, progress: Progress) -> Explained:
    """Explain the gaps of a run, of those that `point` names, and keep the explanations in it.

    point: values of axes and competitors between commas; see `docs/reports.md`. Raises
    DescriptionError where run or point are at fault, Stopped on Ctrl-C.
    """
    return _explained(_planned(path, lambda table, sweep: _pairs(table, sweep, point)),
                      jobs, progress)  # fmt: skip


def explain_largest(path: Path, jobs: int, progress: Progress) -> Explained | None:
    """Explain the largest gap of a run that a significant winner has, where that takes fewer
    simulations than the run took; None where it has none, or takes more. Raises DescriptionError,
    Stopped."""
    found = find(read_sweep(RunDirectory(path)))
    gaps = [
        (gap, group)
        for group, verdict in zip(found.table.groups, found.verdicts, strict=True)
        for gap in verdict.gaps
        if verdict.best and verdict.objective.is_rate
    ]
    if not gaps or found.table.config.get("rule", BEST) != BEST:
        return None
    gap, group = max(gaps, key=lambda each: each[0].total.mean)
    plan = _planned(path, lambda _, sweep: [*_of_group(group, sweep, [gap.best, gap.other])])
    if len(plan.left) >= found.table.done:
        return None
    return _explained(plan, jobs, progress)


def _planned(path: Path, choose: Callable[[Table, Sweep], list[Pair]]) -> Plan:
    table = read_sweep(RunDirectory(path))
    sweep = _sweep(table)
    pairs = choose(table, sweep)
    resolved = resolve(sweep)
    refuse_changes(table.config.get("resolved") or {}, resolved, str(path / CONFIG))
    known = _known(table, sweep)
    own = RunDirectory(path / FOLDER)
    for line in own.records() if own.path.is_dir() else []:
        if line.get("version") == version():
            known.setdefault(line["key"], {})[line["replication"]] = line["metrics"]
    wanted = {
        (key(state.experiment, rate), r): (state, rate)
        for pair in pairs
        for state, rates in pair.states()
        for r, rate in rates.items()
    }
    return Plan(path, sweep, resolved, pairs, known, wanted)


def _explained(plan: Plan, jobs: int, progress: Progress) -> Explained:
    """Simulate what is left, and keep what comes of it. Raises Stopped."""
    explained, left = Explained([]), plan.left
    if left:
        _simulate(RunDirectory(plan.path / FOLDER), left, plan.known, explained, jobs, progress,
                  len(plan.wanted), {
            "config": {"kind": "explanation", "name": plan.sweep.spec.name, "of": str(plan.path)},
            "provenance": provenance(plan.sweep, plan.resolved, argv()),
        })  # fmt: skip
    for pair in plan.pairs:
        if all(results(plan.known, state, rates) for state, rates in pair.states()):
            explained.found.append(explain(pair, plan.known))
    _keep(plan.path, explained.found, plan.sweep, plan.resolved)
    keep_sweep(RunDirectory(plan.path))
    return explained


def _sweep(table: Table) -> Sweep:
    """The sweep of a run, again. Raises DescriptionError where it is not one that serves, or was
    made by another version, whose results would not pair with those of this one."""
    if table.config.get("kind") != "sweep":
        raise DescriptionError("explain needs a run of a sweep with axes", table.path)
    asked = table.config.get("objective", "throughput")
    if asked != "throughput":
        raise DescriptionError(
            f"explain follows output tokens/s; the objective of this run is {asked}", table.path
        )
    made = table.provenance.get("version", "of unknown number")
    if made != version():
        raise DescriptionError(
            f"made by version {made}, this is {version()}: run it again to explain it", table.path
        )
    sweep = load_sweep(table.path / CONFIG)
    if not issubclass(sweep.spec.experiment, ExperimentSpec):
        raise DescriptionError("explain needs a sweep that serves requests", table.path)
    return sweep


def _known(table: Table, sweep: Sweep) -> Known:
    """The run's own results, by what decides them."""
    found: Known = {}
    for row in (row for group in table.groups for row in group.rows if _laid_out(sweep, row)):
        experiment = _experiment(sweep, row)
        for r, metrics in row.raw.items():
            found.setdefault(key(experiment, row.rates[r]), {})[r] = metrics
    return found


def _laid_out(sweep: Sweep, row: Row) -> bool:
    """Whether its point is one that the sweep begins with, not one that results asked for."""
    return row.point < len(sweep.points)


def _experiment(sweep: Sweep, row: Row) -> ExperimentSpec:
    experiment = sweep.points[row.point].experiment
    assert isinstance(experiment, ExperimentSpec)
    return experiment


def _pairs(table: Table, sweep: Sweep, point: str) -> list[Pair]:
    """The pairs that `point` names: in each of its groups the best against each other competitor,
    or against the one that is named, unless it is the best; or two that are named.

    Raises DescriptionError."""
    asked = [part.strip() for part in point.split(",") if part.strip()]
    competitors = list(dict.fromkeys(row.name for group in table.groups for row in group.main()))
    places = {named(*item) for group in table.groups for item in group.others.items()}
    for part in asked:
        if part not in competitors and part not in places:
            hint = nearest(part, [*places, *competitors])
            raise DescriptionError(f"POINT: no {part!r} in this run; {hint}", table.path)
    where = {part for part in asked if part in places}
    named_ = [part for part in asked if part in competitors]
    if len(named_) > 2:
        raise DescriptionError("POINT: name two competitors at most", table.path)
    groups = [g for g in table.groups if where <= {named(*item) for item in g.others.items()}]
    found = [pair for group in groups for pair in _of_group(group, sweep, named_)]
    if not found:
        raise DescriptionError("no two competitors with results to explain", table.path)
    return found


def _of_group(group: Group, sweep: Sweep, wanted: list[str]) -> Iterator[Pair]:
    rows = {
        row.name: row for row in group.main() if row.values(THROUGHPUT) and _laid_out(sweep, row)
    }
    if len(rows) < 2 or not set(wanted) <= rows.keys():
        return
    best = max(rows, key=lambda name: rows[name].mean(THROUGHPUT) or 0.0)
    first = wanted[0] if len(wanted) == 2 else best
    alone = not set(wanted) - {best}  # nothing is named, or what leads: against each other one
    for other in [name for name in rows if name != first] if alone else [wanted[-1]]:
        ours, theirs = rows[first], rows[other]
        rates = {**theirs.rates, **ours.rates}
        if rates != {**ours.rates, **theirs.rates}:
            raise DescriptionError(
                f"{group.title}: explain needs one load; {first} and {other} have their own",
                sweep.document.file,
            )
        if other != first and common([ours, theirs], THROUGHPUT):
            sides = (_experiment(sweep, ours), _experiment(sweep, theirs))
            yield Pair(
                group.title, (first, other), sides, rates,
                ours.overloaded and theirs.overloaded,
            )  # fmt: skip


def _simulate(
    own: RunDirectory, left: dict[tuple[str, int], tuple[State, float | None]], known: Known,
    explained: Explained, jobs: int, progress: Progress, total: int,
    origin: dict[str, Any],
) -> None:  # fmt: skip
    """Simulate what is left, each result onto the disk before the next. Raises Stopped."""
    done = total - len(left)
    try:
        points = [Point(i, {}, "", state.experiment) for i, (state, _) in enumerate(left.values())]
        rehearse(points, None, progress)
        own.create(origin["config"], origin["provenance"], {})
        places = list(left)
        tasks = [Task(_bare(state.experiment), r, rate) for (_, r), (state, rate) in left.items()]
        with (
            progress.stage("counterfactuals", total, done) as step,
            closing(execute(measure, tasks, jobs)) as outcomes,
        ):
            for outcome in outcomes:
                name, replication = places[outcome.index]
                state, rate = left[name, replication]
                if outcome.error is not None:
                    words = ", ".join(state.removed) or "nothing"
                    text = f"failed: without {words}: {shortened(outcome.error)}"
                    explained.failures.append(text)
                    progress.say(text)
                else:
                    metrics = _kept(outcome.value)
                    own.append({
                        "key": name, "removed": state.removed, "replication": replication,
                        "rate_per_s": rate,
                        "policy": state.experiment.serving.policy.model_dump(mode="json"),
                        "metrics": metrics, "wall_s": round(outcome.wall_s, 3),
                        "version": version(),
                    })  # fmt: skip
                    known.setdefault(name, {})[replication] = metrics
                    done += 1
                step()
    except KeyboardInterrupt:
        raise Stopped(done, total) from None
    finally:
        own.release()


def _bare(experiment: ExperimentSpec) -> ExperimentSpec:
    """Without what makes files or a second pass."""
    return experiment.model_copy(update={"logs": [], "latency_at": None})


def _kept(metrics: dict[str, Any]) -> dict[str, Any]:
    found, _ = apart(metrics)
    names = (THROUGHPUT, BACKLOG, *_KEPT)
    return {name: found[name] for name in names if name in found}


def _keep(path: Path, found: list[Explanation], sweep: Sweep, resolved: dict[str, Any]) -> None:
    """Write the explanations beside those of other pairs that are there already."""
    if not found:
        return
    mine = {(each.group, each.winner, each.loser) for each in found}
    others = [e for e in explanation.read(path) if (e.group, e.winner, e.loser) not in mine]
    data = explanation.record([*found, *others], provenance(sweep, resolved, argv()))
    file = path / FOLDER / FILE
    file.parent.mkdir(exist_ok=True)
    write_atomically(file, json.dumps(plain(data), indent=2, allow_nan=False) + "\n")
