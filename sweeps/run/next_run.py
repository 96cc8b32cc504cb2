"""The next question put to a run: its gap is simulated again with each change, both sides alike."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from hwmodel.description.description import DescriptionError, Mark
from hwmodel.description.files import steady
from hwmodel.description.yaml_writer import plain
from sweeps.analyse.figures import CAPACITY, THROUGHPUT
from sweeps.analyse.statistics import Interval, interval
from sweeps.analyse.table import Table
from sweeps.analyse.variants import CASE
from sweeps.plan.counterfactual import key
from sweeps.plan.experiment import ExperimentSpec, Task, capacity_task
from sweeps.plan.layout import experiment_with
from sweeps.plan.next_question import QUESTIONS, GapSides, ProposedChange
from sweeps.plan.sweep import Sweep
from sweeps.plan.sweep_spec import BEST
from sweeps.run import next_answer
from sweeps.run.capacity import answered, capacity_key
from sweeps.run.explained_run import leading_gap, pairs_in, pairs_of, sweep_of
from sweeps.run.explanation import FOLDER, Known, Rates, RivalPair
from sweeps.run.findings import keep_sweep
from sweeps.run.kept_simulations import (
    Failure,
    SoughtSimulation,
    Stopped,
    Wanted,
    known_of,
    simulate,
)
from sweeps.run.next_answer import NEXT, NextAnswer, Reply
from sweeps.run.progress import Progress
from sweeps.run.provenance import argv, provenance, refuse_changes, resolve
from sweeps.run.reading import read_sweep
from sweeps.run.store import CONFIG, RunDirectory, write_atomically

_CAPACITIES = "capacities.json"
_MARK = Mark("explain next")


class Change(NamedTuple):
    """A change as it is simulated; `why` says why it cannot be, where it cannot."""

    question: str
    proposed: ProposedChange
    sides: tuple[ExperimentSpec, ExperimentSpec] | None
    why: str = ""


@dataclass
class Answers:
    """What came of the questions, and what failed through no fault of the input."""

    answers: list[NextAnswer]
    failures: list[str] = field(default_factory=list)


@steady
def ask_next(
    path: Path, point: str, questions: list[str], jobs: int, progress: Progress
) -> Answers:
    """Put questions (`QUESTIONS`) to the gaps that `point` names, or to the one that its
    report begins with where it names none, and keep what comes of it in the run.

    Raises DescriptionError where run or point are at fault, or no gap is there; Stopped on
    Ctrl-C, after which the same call continues.
    """
    table = read_sweep(RunDirectory(path))
    if table.config.get("rule", BEST) != BEST:
        raise DescriptionError("this goes with sweeps whose rule is that of the best", path)
    sweep = sweep_of(table)
    pairs = _pairs(table, sweep, path, point)
    if any(side.load is not None and side.load.goodput for p in pairs for side in p.sides):
        raise DescriptionError("this needs a load that is given or relative, not a goodput", path)
    resolved = resolve(sweep)
    refuse_changes(table.config.get("resolved") or {}, resolved, str(path / CONFIG))
    known = known_of(path, table, sweep)
    answers = Answers([])
    for pair in pairs:
        changes = [*_changes(sweep, pair, table, questions)]
        capacities = _capacities(path, changes, pair, jobs, progress)
        wanted = _wanted(changes, pair, capacities)
        failed = simulate(path, sweep, resolved, wanted, known, jobs, progress)
        own = _gap(pair.sides, (pair.rates, pair.rates), known)
        assert own is not None  # it is a pair of the run
        replies = [_reply(each, pair, capacities, known, failed) for each in changes]
        answers.failures += [
            f"{wanted[at].words}: {each.why}" for at, each in failed.items() if not each.at_fault
        ]
        answers.answers.append(NextAnswer(pair.group, *pair.names, own, replies))
    _keep(path, answers.answers, sweep, resolved)
    keep_sweep(RunDirectory(path))
    return answers


def _pairs(table: Table, sweep: Sweep, path: Path, point: str) -> list[RivalPair]:
    if point:
        return pairs_of(table, sweep, point)
    found = leading_gap(path)
    if found is None:
        raise DescriptionError("no significant winner to ask about; name two competitors", path)
    _, group, names = found
    return [*pairs_in(group, sweep, names)]


def _changes(sweep: Sweep, pair: RivalPair, table: Table, questions: list[str]) -> Iterator[Change]:
    held = GapSides(*pair.sides, pair.names, _slots(table, pair))
    for question in questions:
        for asked in QUESTIONS[question].ask(held):
            try:
                first, second = (
                    _changed(sweep, number, asked if asked.of in (None, name) else None)
                    for number, name in zip(pair.points, pair.names, strict=True)
                )
                yield Change(question, asked, (first, second))
            except DescriptionError as error:
                yield Change(question, asked, None, error.message)


def _slots(table: Table, pair: RivalPair) -> int | None:
    """Tokens that the winner had room for."""
    rows = (row for group in table.groups for row in group.rows if row.point == pair.points[0])
    total = next((row.mean(CAPACITY) for row in rows), None)
    return None if total is None else int(total)


def _changed(sweep: Sweep, number: int, asked: ProposedChange | None) -> ExperimentSpec:
    """A point of the sweep with a change over all that it is laid out with."""
    point, file = sweep.points[number], sweep.document.file
    laid = [(path, v, Mark(file)) for path, v in point.overrides.items() if path != CASE]
    laid += sweep.spec.case_changes(sweep.document, point.overrides.get(CASE))
    more = [] if asked is None else [(path, v, _MARK) for path, v in asked.set.items()]
    found = experiment_with(sweep.document, sweep.spec.experiment, [*laid, *more])
    assert isinstance(found, ExperimentSpec)
    return found


Capacities = dict[str, float | str]
"""By `capacity_key`: requests a second, or why there is none."""


def _capacities(
    path: Path, changes: list[Change], pair: RivalPair, jobs: int, progress: Progress
) -> Capacities:
    """Those that relative loads of the changes ask for; what is measured is kept."""
    file = RunDirectory(path / FOLDER)
    found: Capacities = dict(file.read_json(_CAPACITIES) or {})
    asked: dict[str, Task] = {}
    for side in (side for each in changes for side in each.sides or ()):
        if side.load is not None and side.load.relative is not None:
            for r in pair.rates:
                asked[capacity_key(side, r)] = Task(side, side.calibrated_on(r), None)
    left = {name: task for name, task in asked.items() if name not in found}
    if not left:
        return found
    names, done = list(left), len(asked) - len(left)
    file.path.mkdir(exist_ok=True)
    try:
        with progress.stage("capacity", len(asked), done) as step:
            for index, value in answered(capacity_task, list(left.values()), jobs):
                found[names[index]] = value
                numbers = {key: each for key, each in found.items() if not isinstance(each, str)}
                write_atomically(file.path / _CAPACITIES, json.dumps(numbers, indent=1) + "\n")
                done += 1
                step()
    except KeyboardInterrupt:
        raise Stopped(done, len(asked)) from None
    return found


def _rates(change: Change, pair: RivalPair, capacities: Capacities) -> tuple[Rates, Rates] | str:
    """What both sides are offered, by replication; or why nothing can be."""
    assert change.sides is not None
    found: list[Rates] = []
    for side in change.sides:
        load, rates = side.load, Rates()
        for r in pair.rates:
            if load is None or load.relative is None:
                rates[r] = None if load is None else load.rate_per_s
                continue
            several = (side,) if load.of == "own" else change.sides
            own = [capacities[capacity_key(each, r)] for each in several]
            if (why := next((each for each in own if isinstance(each, str)), None)) is not None:
                return why
            rates[r] = load.relative * max(each for each in own if not isinstance(each, str))
        found.append(rates)
    return found[0], found[1]


def _wanted(changes: list[Change], pair: RivalPair, capacities: Capacities) -> Wanted:
    wanted: Wanted = {}
    for change in changes:
        offered = None if change.sides is None else _rates(change, pair, capacities)
        if change.sides is None or offered is None or isinstance(offered, str):
            continue
        for side, rates in zip(change.sides, offered, strict=True):
            for r, rate in rates.items():
                wanted[key(side, rate), r] = SoughtSimulation(side, rate, change.proposed.name)
    return wanted


def _reply(
    change: Change, pair: RivalPair, capacities: Capacities, known: Known,
    failed: dict[tuple[str, int], Failure],
) -> Reply:  # fmt: skip
    name = change.proposed.name
    if change.sides is None:
        return Reply(change.question, name, None, change.why)
    rates = _rates(change, pair, capacities)
    if isinstance(rates, str):
        return Reply(change.question, name, None, rates)
    found = _gap(change.sides, rates, known)
    if found is not None:
        return Reply(change.question, name, found)
    keys = {
        key(s, rate) for s, each in zip(change.sides, rates, strict=True) for rate in each.values()
    }
    why = next((each.why for (name_, _), each in failed.items() if name_ in keys), "no result")
    return Reply(change.question, name, None, why)


def _gap(
    sides: tuple[ExperimentSpec, ExperimentSpec], rates: tuple[Rates, Rates], known: Known
) -> Interval | None:
    """Logarithm of the first's rate over the second's in the replications of both; None where
    there is none."""
    rate = [
        {r: known.get(key(side, each), {}).get(r, {}).get(THROUGHPUT) for r, each in own.items()}
        for side, own in zip(sides, rates, strict=True)
    ]
    logs = [
        math.log(ours / theirs) for r, ours in rate[0].items() if ours and (theirs := rate[1][r])
    ]
    return interval(logs) if logs else None


def _keep(path: Path, found: list[NextAnswer], sweep: Sweep, resolved: dict[str, Any]) -> None:
    """Write the answers beside those on other gaps, and on other questions about the same."""
    every = {(each.group, each.winner, each.loser): each for each in next_answer.read(path)}
    for each in found:
        name = (each.group, each.winner, each.loser)
        mine = {reply.question for reply in each.replies}
        before = [r for r in every[name].replies if r.question not in mine] if name in every else []
        order = {question: i for i, question in enumerate(QUESTIONS)}
        replies = sorted([*before, *each.replies], key=lambda r: order.get(r.question, len(order)))
        every[name] = NextAnswer(*name, each.total, replies)
    data = next_answer.record([*every.values()], provenance(sweep, resolved, argv()))
    file = path / FOLDER / NEXT
    file.parent.mkdir(exist_ok=True)
    write_atomically(file, json.dumps(plain(data), indent=2, allow_nan=False) + "\n")
