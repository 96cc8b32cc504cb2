"""The explanations of a run: of which pairs, and the simulations that they rest on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hwmodel.description.description import DescriptionError, nearest
from hwmodel.description.files import steady
from hwmodel.description.yaml_writer import plain
from sweeps.analyse.figures import THROUGHPUT
from sweeps.analyse.gap import pairs as common
from sweeps.analyse.label import named
from sweeps.analyse.table import Group, Table
from sweeps.plan.counterfactual import key
from sweeps.plan.experiment import ExperimentSpec
from sweeps.plan.sweep import Sweep, load_sweep
from sweeps.plan.sweep_spec import BEST
from sweeps.run import explanation
from sweeps.run.explanation import FILE, FOLDER, Explanation, Known, RivalPair, explain, results
from sweeps.run.findings import find, keep_sweep
from sweeps.run.kept_simulations import (
    SoughtSimulation,
    Wanted,
    experiment_of,
    known_of,
    laid_out,
    simulate,
    unknown,
)
from sweeps.run.progress import Progress
from sweeps.run.provenance import argv, provenance, refuse_changes, resolve
from sweeps.run.reading import read_sweep
from sweeps.run.store import CONFIG, RunDirectory, write_atomically
from sweeps.run.version import version


@dataclass
class Explained:
    """What was found, and why the rest was not."""

    explanations: list[Explanation]
    failures: list[str] = field(default_factory=list)


@dataclass
class ExplainPlan:
    """Pairs to explain, and what is known of them."""

    path: Path
    sweep: Sweep
    resolved: dict[str, Any]
    pairs: list[RivalPair]
    known: Known
    wanted: Wanted
    """Everything that is simulated."""


@steady
def explain_run(path: Path, point: str, jobs: int, progress: Progress) -> Explained:
    """Explain the gaps of a run, of those that `point` names, and keep the explanations in it.

    point: values of axes and competitors between commas; see `docs/reading-results.md`. Raises
    DescriptionError where run or point are at fault, Stopped on Ctrl-C.
    """
    return _explained(_planned(path, lambda table, sweep: pairs_of(table, sweep, point)),
                      jobs, progress)  # fmt: skip


def explain_leading(path: Path, jobs: int, progress: Progress) -> Explained | None:
    """Explain the gap that the report of a run begins with, where that takes fewer simulations than
    the run took; None where it has none, or takes more. Raises DescriptionError, Stopped."""
    found = leading_gap(path)
    if found is None:
        return None
    table, group, names = found
    plan = _planned(path, lambda _, sweep: [*pairs_in(group, sweep, names)])
    if len(unknown(plan.wanted, plan.known)) >= table.done:
        return None
    return _explained(plan, jobs, progress)


def leading_gap(path: Path) -> tuple[Table, Group, list[str]] | None:
    """The table of a run, and the group and the two competitors of the gap that its report begins
    with; None where there is none whose causes can be known. Raises DescriptionError."""
    found = find(read_sweep(RunDirectory(path)))
    if found.leading_gap is None or found.table.config.get("rule", BEST) != BEST:
        return None
    group, gap = found.leading_gap
    return (found.table, group, [gap.best, gap.other]) if group.objective.is_rate else None


def _planned(path: Path, choose: Callable[[Table, Sweep], list[RivalPair]]) -> ExplainPlan:
    table = read_sweep(RunDirectory(path))
    sweep = sweep_of(table)
    pairs = choose(table, sweep)
    resolved = resolve(sweep)
    refuse_changes(table.config.get("resolved") or {}, resolved, str(path / CONFIG))
    wanted = {
        (key(state.experiment, rate), r): SoughtSimulation(
            state.experiment, rate, f"without {', '.join(state.removed) or 'nothing'}"
        )
        for pair in pairs
        for state, rates in pair.states()
        for r, rate in rates.items()
    }
    return ExplainPlan(path, sweep, resolved, pairs, known_of(path, table, sweep), wanted)


def _explained(plan: ExplainPlan, jobs: int, progress: Progress) -> Explained:
    """Simulate what is left, and keep what comes of it. Raises Stopped."""
    failed = simulate(plan.path, plan.sweep, plan.resolved, plan.wanted, plan.known, jobs, progress)
    explained = Explained(
        [], [f"failed: {plan.wanted[at].words}: {failed[at].why}" for at in failed]
    )
    for pair in plan.pairs:
        if all(results(plan.known, state, rates) for state, rates in pair.states()):
            explained.explanations.append(explain(pair, plan.known))
    _keep(plan.path, explained.explanations, plan.sweep, plan.resolved)
    keep_sweep(RunDirectory(plan.path))
    return explained


def sweep_of(table: Table) -> Sweep:
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


def pairs_of(table: Table, sweep: Sweep, point: str) -> list[RivalPair]:
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
    found = [pair for group in groups for pair in pairs_in(group, sweep, named_)]
    if not found:
        raise DescriptionError("no two competitors with results to explain", table.path)
    return found


def pairs_in(group: Group, sweep: Sweep, wanted: list[str]) -> Iterator[RivalPair]:
    rows = {
        row.name: row for row in group.main() if row.values(THROUGHPUT) and laid_out(sweep, row)
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
            sides = (experiment_of(sweep, ours), experiment_of(sweep, theirs))
            yield RivalPair(
                group.title, (first, other), sides, rates,
                ours.overloaded and theirs.overloaded, (ours.point, theirs.point),
            )  # fmt: skip


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
