"""One batch of a study's trials: asked for together, taken up the rungs, served and told."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hwmodel.description.description import DescriptionError
from sweeps.analyse.least import Constraint
from sweeps.analyse.objective import Objective
from sweeps.analyse.rows import Record, flat, is_number
from sweeps.analyse.statistics import interval
from sweeps.plan.experiment import ExperimentSpec, Task, seed_of
from sweeps.plan.place import shortened
from sweeps.run.outcome import Outcome
from sweeps.run.sweep_run import apart
from sweeps.study.families import families_of
from sweeps.study.fleet_size import CARDS
from sweeps.study.front import costs, front
from sweeps.study.journal import RESULT, finished
from sweeps.study.sampler import ask_batch, best, phase_of
from sweeps.study.search_spec import RungSpec
from sweeps.study.space import Overrides
from sweeps.study.study_run import StudyFailed, StudyRun
from sweeps.study.study_spec import BASE, Study, on_table

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

SERVES = "serves every request"
"""The constraint that a trial breaks which the description of its experiment does not allow, or
which cannot hold some request."""
HALVED = "left out by a rung"
"""What an outcome says of a trial that others of its batch were ahead of; its value is the rung,
from 1."""
EVEN = {"weights": 0.5, "attention": 0.5, "prefill": 0.5, "migration": 0.5}
"""Efficiencies to try out metrics with."""


def on_its_memory(
    study: Study, experiment: ExperimentSpec, table: dict[str, float]
) -> ExperimentSpec:
    """The experiment on the memory that trials run on."""
    return on_table(experiment, table) if study.spec.memory == "table" else experiment


class TrialBatch:
    """Trials `begin` to `end` - 1. on_best: called when one of them is the best so far."""

    def __init__(self, run: StudyRun, begin: int, end: int, on_best: Callable[[], None]) -> None:
        self.on_best = on_best
        self.run, self.study = run, run.study
        self.index = begin // self.study.spec.batch
        self.begin, self.end = begin, end
        self.table = self._table() if self.study.spec.memory == "table" else {}
        self.params = ask_batch(self.study, run.journal, begin, end)
        self.outcomes: dict[int, dict[int, Outcome]] = {}
        self.short: dict[int, dict[str, float]] = {}
        """What trials have on the first rung."""
        self.cards: dict[int, int] = {}

    def evaluate(self, step: Any) -> None:
        """Evaluate what is not told yet, and tell it in order."""
        places: list[tuple[int, int]] = []
        tasks: list[Task] = []
        left = []
        halved = self._halved()
        for number in range(self.begin, self.end):
            if finished(self.run.journal.trials()[number]):
                continue
            left.append(number)
            known = self.outcomes.setdefault(number, {})
            if number in halved:
                each = range(1, self.study.base.replications + 1)
                self.outcomes[number] = dict.fromkeys(each, halved[number])
                continue
            for replication, task in self._tasks(number):
                if replication in known:
                    continue
                places.append((number, replication))
                tasks.append(task)
        ahead = self._ahead()
        if ahead is not None:  # first, so that no trial waits for it
            tasks.insert(0, ahead[1])
            places.insert(0, (-1, 0))
        self._tell_ready(left, step)
        for outcome in self.run.workers.outcomes(tasks):
            number, replication = places[outcome.index]
            if number < 0:
                assert ahead is not None
                self._note(self.index + 1, ahead[0], outcome)
                continue
            if replication == 0:
                self._sized(number, outcome)
            else:
                self.outcomes[number][replication] = outcome
            self._tell_ready(left, step)

    def _halved(self) -> dict[int, Outcome]:
        """Trials of the batch that a rung leaves out, and why: others were ahead, or what it cannot
        serve. The best of each family goes on, as does what needed no search. All go up again after
        an interruption."""
        if all(map(finished, self.run.journal.trials()[self.begin : self.end])):
            return {}
        out: dict[int, Outcome] = {}
        left = [*range(self.begin, self.end)]
        for at, rung in enumerate(self.study.spec.halving):
            found = self._on_rung(rung, left)
            values: dict[int, list[float]] = {}
            for number, outcome in found.items():
                if outcome.error is not None and outcome.at_fault:
                    out[number] = outcome
                judged = judged_outcomes(self.study, [outcome], self._overrides(number))["values"]
                if judged is not None:
                    values[number] = list(judged.values())
                    if at == 0:
                        self.short[number] = judged
                if not rung.set and outcome.error is None:
                    self.outcomes.setdefault(number, {})[1] = outcome
            order = self._ranked(values)
            going = {*order[: math.ceil(rung.keep * len(order))], *self._family_bests(order)}
            for number in order:
                if number not in going and not self._is_plain(number):
                    out[number] = Outcome(0, at + 1, HALVED)
            left = [number for number in left if number not in out]
        return out

    def _family_bests(self, order: list[int]) -> list[int]:
        """The first of each family."""
        families = self.study.spec.families
        of = {n: families_of(families, self.params[n - self.begin]) for n in order}
        first = (next((n for n in order if name in of[n]), None) for name in families)
        return [number for number in first if number is not None]

    def _on_rung(self, rung: RungSpec, left: list[int]) -> dict[int, Outcome]:
        """What trials do on a rung; nothing of those whose experiment is none, which is said where
        they are served."""
        numbers, tasks = [], []
        for number in left:
            with suppress(DescriptionError):
                short = self.study.served({**self._overrides(number), **rung.set}, 1)
                tasks.append(
                    Task(on_its_memory(self.study, short, self.table), 1, self.run.rates[1])
                )
                numbers.append(number)
        return {numbers[each.index]: each for each in self.run.workers.outcomes(tasks)}

    def _ranked(self, values: dict[int, list[float]]) -> list[int]:
        """Trials, front after front, each front by its first objective."""
        directions = [objective.direction for objective in self.study.spec.objectives]
        left, order = {n: costs(v, directions) for n, v in values.items()}, list[int]()
        while left:
            ahead = front(list(left.values()))
            order += sorted((list(left)[i] for i in ahead), key=lambda n: (left[n][0], n))
            left = {n: each for n, each in left.items() if n not in order}
        return order

    def _is_plain(self, number: int) -> bool:
        """Whether it is a first trial that is not one of several that arithmetic gives."""
        return number < len(self.study.first) and not self.study.first[number].counted

    def _overrides(self, number: int) -> Overrides:
        return self.study.overrides_of(number, self.params[number - self.begin])

    def _tasks(self, number: int) -> Iterator[tuple[int, Task]]:
        overrides = self._overrides(number)
        try:
            experiments = [
                on_its_memory(self.study, self.study.served(overrides, replication), self.table)
                for replication in range(1, self.study.base.replications + 1)
            ]
        except DescriptionError as error:
            for replication in range(1, self.study.base.replications + 1):
                self.outcomes[number][replication] = Outcome(0, error=str(error), at_fault=True)
            return
        if self.study.spec.fleet is not None:
            most = self._affordable(number, overrides)
            yield 0, Task(self.study.smallest(experiments, most), 1, None)
            return
        for replication, experiment in enumerate(experiments, 1):
            yield replication, Task(experiment, replication, self.run.rates[replication])

    def _affordable(self, number: int, overrides: Overrides) -> int | None:
        """As many cards as the best trial of the same rival costs, of the batches before; None
        where there is none. Who takes more is not tuned further."""
        before = self.run.journal.trials()[: self.begin]
        mine = [t for t in before if self.study.rival(t.number) == self.study.rival(number)]
        found = best(self.study, mine)
        if found is None:
            return None
        return int(found.values[0] / self.study.cost({**overrides, CARDS: 2})["cost"] * 2 + 1e-9)

    def _sized(self, number: int, outcome: Outcome) -> None:
        """The replications of a trial whose cards were found together."""
        several = range(1, self.study.base.replications + 1)
        self.outcomes[number] = dict.fromkeys(several, outcome)
        if outcome.error is None:
            self.cards[number] = outcome.value["cards"]
            each = zip(several, outcome.value["runs"], strict=True)
            wall_s = outcome.wall_s / len(several)
            self.outcomes[number] = {
                r: Outcome(outcome.index, metrics, wall_s=wall_s) for r, metrics in each
            }

    def _tell_ready(self, left: list[int], step: Any) -> None:
        """Tell the trials that have all their outcomes, up to the first that has not."""
        while left and len(self.outcomes[left[0]]) == self.study.base.replications:
            number = left.pop(0)
            self._tell(number, [outcome for _, outcome in sorted(self.outcomes[number].items())])
            found = best(self.study, self.run.finished_trials())
            step("nothing keeps the constraints yet" if found is None else _words(found))

    def _tell(self, number: int, outcomes: list[Outcome]) -> None:
        params = self.params[number - self.begin]
        overrides = self.study.overrides_of(number, params)
        if number in self.cards:
            overrides[CARDS] = self.cards[number]
        rival = {} if self.study.spec.fleet is None else {"rival": self.study.rival(number)}
        record: Record = {
            "trial": number, "batch": self.index, "first": _first(self.study, number), **rival,
            "phase": phase_of(self.study, number),
            "overrides": overrides, "params": params,
            "rates_per_s": [self.run.rates[r] for r in sorted(self.outcomes[number])],
            "efficiency": self.table or None, "short": self.short.get(number),
            **judged_outcomes(self.study, outcomes, overrides),
        }  # fmt: skip
        values = record["values"]
        if record["state"] == "failed":
            text = f"failed: trial {number}: {shortened(record['error'])}"
            self.run.failures.append(text)
            self.run.progress.say(text)
        told = None if values is None else list(values.values())
        short = self.short.get(number)
        rung = None if short is None or len(short) > 1 else next(iter(short.values()))
        self.run.journal.tell(number, record, told, rung)
        self.run.directory.append(record)
        found = best(self.study, self.run.finished_trials())
        if found is not None and found.number == number:
            self.on_best()

    def _incumbent(self, index: int) -> FrozenTrial | None:
        """The best of all batches but the last before this one."""
        told = self.run.journal.trials()[: max(index - 1, 0) * self.study.spec.batch]
        return best(self.study, told)

    def _table(self) -> dict[str, float]:
        """The efficiencies of this batch, measured here and now where they are not noted."""
        noted = self.run.journal.note(_name(self.index))
        if noted is None:
            of = self._incumbent(self.index)
            task = self._measuring(of)
            self._note(self.index, of, next(iter(self.run.workers.outcomes([task]))))
            noted = self.run.journal.note(_name(self.index))
        table: dict[str, float] = noted["efficiency"]
        return table

    def _ahead(self) -> tuple[FrozenTrial | None, Task] | None:
        """What to measure for the next batch; None where that is known, or where no trial asks."""
        after = self.index + 1
        if self.study.spec.memory != "table" or self.end >= self.run.total:
            return None
        if self.run.journal.note(_name(after)) is not None:
            return None
        of, noted = self._incumbent(after), self.run.journal.note(_name(self.index))
        if (None if of is None else of.number) == noted["trial"]:
            self.run.journal.write_note(_name(after), noted)
            return None
        return of, self._measuring(of)

    def _measuring(self, of: FrozenTrial | None) -> Task:
        """The best so far, or the base, on simulated memory."""
        overrides = {} if of is None else of.user_attrs[RESULT]["overrides"]
        return Task(self.study.experiment(overrides), 1, self.run.rates[1])

    def _note(self, index: int, of: FrozenTrial | None, outcome: Outcome) -> None:
        name = BASE if of is None else f"trial {of.number}"
        if outcome.error is not None:
            text = f"failed: efficiencies of {name}: {outcome.error}"
            raise DescriptionError(text) if outcome.at_fault else StudyFailed(text)
        number = None if of is None else of.number
        table = outcome.value["memory"]["efficiency"]
        self.run.journal.write_note(_name(index), {"trial": number, "efficiency": table})


def efficiency_of_last(run: StudyRun) -> dict[str, float]:
    """What the trials of the last batch had of the memory; empty where each simulates its own."""
    if run.study.spec.memory != "table":
        return {}
    table: dict[str, float] = run.journal.note(_name((run.total - 1) // run.study.spec.batch))[
        "efficiency"
    ]
    return table


def _first(study: Study, number: int) -> str | None:
    """The name of a first trial, None of one that the sampler drew."""
    return study.first[number].name if number < len(study.first) else None


def _name(batch: int) -> str:
    return f"efficiency of batch {batch}"


def _words(trial: FrozenTrial) -> str:
    return f"best {', '.join(f'{value:,.4g}' for value in trial.values)} (trial {trial.number})"


def judged_outcomes(study: Study, outcomes: list[Outcome], overrides: Overrides) -> Record:
    """Values of the objectives, violations of the constraints, means of all metrics; or why not."""
    record: Record = {
        "state": "failed", "error": None, "values": None, "constraints": {}, "metrics": {},
        "replications": {}, "seeds": [], "wall_s": round(sum(o.wall_s for o in outcomes), 3),
    }  # fmt: skip
    errors = [outcome for outcome in outcomes if outcome.error is not None]
    if errors and errors[0].error == HALVED:
        return {**record, "state": "pruned", "rung": errors[0].value}
    if errors and errors[0].at_fault:  # such as a pool that is too small for some request
        broken = {SERVES: 1.0}
        return {**record, "state": "infeasible", "error": errors[0].error, "constraints": broken}
    if errors:
        return {**record, "error": errors[0].error}
    found = [flat(apart(outcome.value)[0]) | study.cost(overrides) for outcome in outcomes]
    means = {
        name: interval([metrics[name] for metrics in found]).mean
        for name in found[0]
        if all(is_number(metrics.get(name)) for metrics in found)
    }
    wanted: list[Objective | Constraint] = [*study.spec.objectives, *study.spec.constraints]
    asked = [item.metric for item in wanted]
    missing = [name for name in asked if name not in means]
    if missing:
        return {**record, "error": f"metric {missing[0]} is missing"}
    violations = {item.name: item.violation(means[item.metric]) for item in study.spec.constraints}
    return {
        **record,
        "state": "infeasible" if any(each > 0 for each in violations.values()) else "complete",
        "values": {item.metric: means[item.metric] for item in study.spec.objectives},
        "constraints": violations,
        "metrics": means,
        "replications": {name: [metrics[name] for metrics in found] for name in asked},
        "seeds": [list(seed_of(study.base, r)) for r in range(1, len(outcomes) + 1)],
    }
