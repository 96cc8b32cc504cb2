"""A study under way: trials in batches into a journal, whatever the workers and their order.

One process owns it: it asks for a batch, has it evaluated, and tells it in the order of numbers. A
trial hangs on the study's YAML and its number alone: on the sampler's seed for that number, on the
trials of the batches before, and on the efficiencies noted for its batch. Those are measured for
the best of all batches but the one under way, so that no trial waits for them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwmodel.description.description import DescriptionError, KeyPath
from hwmodel.description.files import steady
from hwmodel.description.yaml_writer import to_yaml
from sweeps.analyse.least import Constraint
from sweeps.analyse.objective import Objective
from sweeps.analyse.rows import Record, flat, is_number
from sweeps.analyse.statistics import interval
from sweeps.plan.experiment import ExperimentSpec, Task, measure, seed_of
from sweeps.plan.place import shortened
from sweeps.plan.sweep_spec import Point
from sweeps.run.capacity import Wanted, calibrate
from sweeps.run.outcome import Outcome, attempt
from sweeps.run.progress import Progress
from sweeps.run.provenance import argv, provenance, refuse_changes, resolve
from sweeps.run.store import (
    CALIBRATION,
    CONFIG,
    RunDirectory,
    default_directory,
    write_atomically,
)
from sweeps.run.sweep_run import apart, refuse_another, refuse_unknown, rehearse
from sweeps.study.best_sweep import best_sweep
from sweeps.study.finale import run_finale
from sweeps.study.fleet_finale import fleet_finale
from sweeps.study.fleet_size import CARDS
from sweeps.study.front import costs, front
from sweeps.study.journal import RESULT, finished
from sweeps.study.sampler import ask_batch, best
from sweeps.study.space import Overrides
from sweeps.study.study_findings import keep_study
from sweeps.study.study_run import StudyFailed, StudyInterrupted, StudyRun, Workers
from sweeps.study.study_spec import BASE, RungSpec, Study, on_table

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

BEST = "best.yaml"
SERVES = "serves every request"
"""The constraint that a trial breaks which the description of its experiment does not allow, or
which cannot hold some request."""
SHORT = "among the best of its batch on a cheaper rung"
"""The constraint that a trial breaks which a rung left out: by how many trials it was too far
back."""
EVEN = {"weights": 0.5, "attention": 0.5, "prefill": 0.5, "migration": 0.5}
"""Efficiencies to try out metrics with."""


@steady
def run_study(
    study: Study, out: Path | None, resume: bool, workers: Workers, progress: Progress
) -> StudyRun:
    """Evaluate the trials and the finale that are not there yet. Nothing is written before the
    first batch is about to begin.

    out: `runs/NAME-N` where it is None. Raises DescriptionError where study, inputs or `out` are
    at fault, StudyInterrupted on Ctrl-C, CapacityFailed and StudyFailed where the machine is.
    """
    directory = RunDirectory(out or default_directory(study.spec.name, resume))
    run = StudyRun(study, directory, workers, progress, total=study.spec.trials)
    again = resume and directory.exists
    if not again:
        directory.refuse_if_taken()
    resolved = resolve(study)
    if study.spec.resolved is not None:
        refuse_changes(study.spec.resolved, resolved, study.document.file)
    config = {**study.config, "resolved": resolved}
    if again:
        refuse_another({**config, "trials": directory.config().get("trials")}, directory)
    with _interruptible(run):
        capacities = dict(directory.read_json(CALIBRATION) or {}) if again else {}
        rehearse_study(study, progress)
        run.rates = rates(run, capacities, study.replications)
        directory.create(config, provenance(study, resolved, argv()), capacities)
        if again and study.spec.trials > directory.config()["trials"]:
            write_atomically(directory.path / CONFIG, to_yaml(config))
        run.open_journal()
        _catch_up(run)
        _search(run)
        if study.spec.finale is not None:
            run.finale = run_finale(run) if study.spec.fleet is None else fleet_finale(run)
            _write_best(run)
        keep_study(directory)
    return run


@contextmanager
def _interruptible(run: StudyRun) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        if not run.is_open:
            raise StudyInterrupted("nothing was finished, nothing was written") from None
        kept = f"{len(run.told())} of {run.total} trials are kept in {run.directory.path}"
        raise StudyInterrupted(f"{kept}; the same command with --resume continues") from None
    finally:
        run.directory.release()


def rehearse_study(study: Study, progress: Progress) -> None:
    """What cannot work at all, and metrics that are not there, are said before anything else."""
    rivals = study.spec.fleet.rivals if study.spec.fleet else ()
    made = [Point(0, {}, rival, study.experiment(study.rival_set(rival))) for rival in rivals]
    rehearse([*study.points, *made], study.document.file, progress)
    small = ExperimentSpec.rehearsals([study.base])[0]
    outcome = attempt(measure, 0, Task(on_its_memory(study, small, EVEN), 1, None))
    if outcome.error is not None:
        raise DescriptionError(outcome.error)
    known = [name for name, value in flat(outcome.value).items() if is_number(value)]
    known += study.cost({})
    asked: dict[str, Sequence[Objective | Constraint]] = {
        "objectives": study.spec.objectives,
        "constraints": study.spec.constraints,
    }
    places: dict[KeyPath, str] = {
        (key, i): each.metric for key, items in asked.items() for i, each in enumerate(items)
    }
    refuse_unknown(places, known, study.document)


def on_its_memory(
    study: Study, experiment: ExperimentSpec, table: dict[str, float]
) -> ExperimentSpec:
    """The experiment on the memory that trials run on."""
    return on_table(experiment, table) if study.spec.memory == "table" else experiment


def rates(
    run: StudyRun, capacities: dict[str, float], replications: Iterable[int]
) -> dict[int, float | None]:
    """The rate that everything is offered in each of these replications: against the best of base
    and references, whose capacities are measured where they are not known, and noted."""
    load = run.study.base.load
    if load is None or load.relative is None:
        return dict.fromkeys(replications, None if load is None else load.rate_per_s)
    asked = {r: [Wanted(point, r) for point in run.study.points] for r in replications}
    every = {each.key: each for rivals in asked.values() for each in rivals}
    with run.progress.stage("capacity", len(every.keys() - capacities.keys())) as done:
        found = calibrate(every, capacities, run.workers.jobs, run.workers.cluster)
        for key, capacity in list(found):
            capacities[key] = capacity
            done()
    return {
        r: load.relative * max(capacities[each.key] for each in rivals)
        for r, rivals in asked.items()
    }


def _catch_up(run: StudyRun) -> None:
    """Results that the journal has and the directory, stopped in between, has not."""
    there = {record["trial"] for record in run.directory.records()}
    for trial in run.told():
        if trial.number not in there:
            run.directory.append(trial.user_attrs[RESULT])
    _write_best(run)


def _write_best(run: StudyRun) -> None:
    """Put the one that the finale chose, or the best trial so far, where there is one, into the
    directory as a sweep."""
    found = best(run.study, run.told())
    if found is None:
        return
    name, overrides = f"trial {found.number}", found.user_attrs[RESULT]["overrides"]
    if run.finale is not None:
        name, overrides = run.finale.best.name, run.finale.best.overrides
    sweep = best_sweep(run.study, overrides, name)
    write_atomically(run.directory.path / BEST, to_yaml(sweep))


def _search(run: StudyRun) -> None:
    batch = run.study.spec.batch
    done = sum(trial.number < run.total for trial in run.told())
    with run.progress.stage("trials", run.total, done) as step:
        for begin in range(0, run.total, batch):
            end = min(begin + batch, run.total)
            states = [finished(trial) for trial in run.journal.trials()[begin:end]]
            if len(states) < end - begin or not all(states):
                _Batch(run, begin, end).evaluate(step)


class _Batch:
    """Trials `begin` to `end` - 1."""

    def __init__(self, run: StudyRun, begin: int, end: int) -> None:
        self.run, self.study = run, run.study
        self.index = begin // self.study.spec.batch
        self.begin, self.end = begin, end
        self.table = self._table() if self.study.spec.memory == "table" else {}
        self.asked = ask_batch(self.study, run.journal, begin, end)
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
        """Trials of the batch that a rung leaves out, and why: by how many places each was too far
        back, or what it cannot serve. All go up again after an interruption."""
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
                judged = _judged(self.study, [outcome], self._overrides(number))["values"]
                if judged is not None:
                    values[number] = list(judged.values())
                    if at == 0:
                        self.short[number] = judged
                if not rung.set and outcome.error is None:
                    self.outcomes.setdefault(number, {})[1] = outcome
            order = self._ranked(values)
            last = math.ceil(rung.keep * len(order))
            for place, number in enumerate(order[last:], 1):
                if not self._is_plain(number):
                    out[number] = Outcome(place, error=SHORT, at_fault=True)
            left = [number for number in left if number not in out]
        return out

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
        return self.study.overrides_of(number, self.asked[number - self.begin])

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
            each = zip(several, outcome.value["found"], strict=True)
            wall_s = outcome.wall_s / len(several)
            self.outcomes[number] = {
                r: Outcome(outcome.index, metrics, wall_s=wall_s) for r, metrics in each
            }

    def _tell_ready(self, left: list[int], step: Any) -> None:
        """Tell the trials that have all their outcomes, up to the first that has not."""
        while left and len(self.outcomes[left[0]]) == self.study.base.replications:
            number = left.pop(0)
            self._tell(number, [outcome for _, outcome in sorted(self.outcomes[number].items())])
            found = best(self.study, self.run.told())
            step("nothing keeps the constraints yet" if found is None else _words(found))

    def _tell(self, number: int, outcomes: list[Outcome]) -> None:
        params = self.asked[number - self.begin]
        overrides = self.study.overrides_of(number, params)
        if number in self.cards:
            overrides[CARDS] = self.cards[number]
        rival = {} if self.study.spec.fleet is None else {"rival": self.study.rival(number)}
        record: Record = {
            "trial": number, "batch": self.index, "first": _first(self.study, number), **rival,
            "overrides": overrides, "params": params,
            "rates_per_s": [self.run.rates[r] for r in sorted(self.outcomes[number])],
            "efficiency": self.table or None, "short": self.short.get(number),
            **_judged(self.study, outcomes, overrides),
        }  # fmt: skip
        values = record["values"]
        if record["state"] == "failed":
            text = f"failed: trial {number}: {shortened(record['error'])}"
            self.run.failures.append(text)
            self.run.progress.say(text)
        told = None if values is None else list(values.values())
        self.run.journal.tell(number, record, told, record["constraints"])
        self.run.directory.append(record)
        found = best(self.study, self.run.told())
        if found is not None and found.number == number:
            _write_best(self.run)

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


def _first(study: Study, number: int) -> str | None:
    """The name of a first trial, None of one that the sampler drew."""
    return study.first[number].name if number < len(study.first) else None


def _name(batch: int) -> str:
    return f"efficiency of batch {batch}"


def _words(trial: FrozenTrial) -> str:
    return f"best {', '.join(f'{value:,.4g}' for value in trial.values)} (trial {trial.number})"


def _judged(study: Study, outcomes: list[Outcome], overrides: Overrides) -> Record:
    """Values of the objectives, violations of the constraints, means of all metrics; or why not."""
    record: Record = {
        "state": "failed", "error": None, "values": None, "constraints": {}, "metrics": {},
        "replications": {}, "seeds": [], "wall_s": round(sum(o.wall_s for o in outcomes), 3),
    }  # fmt: skip
    errors = [outcome for outcome in outcomes if outcome.error is not None]
    if errors and errors[0].at_fault:  # such as a pool that is too small for some request
        error, broken = errors[0].error, {SERVES: 1.0}
        if error == SHORT:
            broken = {SHORT: float(errors[0].index)}
        return {**record, "state": "infeasible", "error": error, "constraints": broken}
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
    return {
        **record,
        "state": "complete",
        "values": {item.metric: means[item.metric] for item in study.spec.objectives},
        "constraints": {
            item.name: item.violation(means[item.metric]) for item in study.spec.constraints
        },
        "metrics": means,
        "replications": {name: [metrics[name] for metrics in found] for name in asked},
        "seeds": [list(seed_of(study.base, r)) for r in range(1, len(outcomes) + 1)],
    }
