"""A study's trial as a function that `optuna.study.Study.optimize` calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hwmodel.description.description import DescriptionError
from sweeps.plan.experiment import Task, measure
from sweeps.run.outcome import attempt
from sweeps.run.progress import Progress
from sweeps.study.front import Direction
from sweeps.study.search import rates, rehearse_study
from sweeps.study.study_run import StudyFailed, Workers
from sweeps.study.study_spec import Study
from sweeps.study.trial_batch import judged_outcomes, on_its_memory

if TYPE_CHECKING:
    from optuna.trial import Trial

OVERRIDES = "overrides"
"""Attribute of a trial: what it changes of the base experiment, by dotted path."""


class StudyObjective:
    """Evaluates trials of a study in the process that calls it.

        objective = bankwise.objective("quick")
        own = optuna.create_study(directions=objective.directions)
        own.optimize(objective, n_trials=10)

    A trial draws from the study's space, serves the replications of the search and returns the
    means of its objectives. What it breaks is set as constraints; a trial that cannot be served is
    pruned. Rungs, batches and the finale are the study's own and no part of it. With `memory:
    table` all trials have the efficiencies of the base.

    Raises DescriptionError where the study is at fault, `CapacityFailed` (sweeps.run.capacity) and
    `StudyFailed` where the machine is.
    """

    def __init__(self, study: Study) -> None:
        if study.spec.fleet is not None:
            raise study.document.error("has no objective of one trial: it sizes each", ("fleet",))
        self.study = study
        progress, several = Progress(terminal=False), range(1, study.base.replications + 1)
        rehearse_study(study, progress)
        self._rates = rates(study, Workers(1), progress, {}, several)
        self._table: dict[str, float] = {}
        if study.spec.memory == "table":
            metrics = self._measured(Task(study.base, 1, self._rates[1]))
            self._table = metrics["memory"]["efficiency"]

    @property
    def directions(self) -> list[Direction]:
        """Of the objectives, as `optuna.create_study` takes them."""
        return [objective.direction for objective in self.study.spec.objectives]

    def __call__(self, trial: Trial) -> float | tuple[float, ...]:
        """The trial's values. Raises TrialPruned where it cannot be served."""
        import optuna

        overrides = self.study.space.overrides(suggested(trial, self.study))
        trial.set_user_attr(OVERRIDES, overrides)
        try:
            tasks = [
                Task(
                    on_its_memory(self.study, self.study.served(overrides, r), self._table), r, rate
                )
                for r, rate in self._rates.items()
            ]
        except DescriptionError as error:
            raise optuna.TrialPruned(str(error)) from None
        outcomes = [attempt(measure, 0, task) for task in tasks]
        record = judged_outcomes(self.study, outcomes, overrides)
        for name, violation in record["constraints"].items():
            trial.set_constraint(name, violation)
        if record["state"] == "infeasible" and record["values"] is None:
            raise optuna.TrialPruned(record["error"])
        if record["values"] is None:
            raise StudyFailed(record["error"])
        first, *others = record["values"].values()
        return (first, *others) if others else float(first)

    def _measured(self, task: Task) -> Any:
        outcome = attempt(measure, 0, task)
        if outcome.error is not None:
            raise (
                DescriptionError(outcome.error) if outcome.at_fault else StudyFailed(outcome.error)
            )
        return outcome.value


def suggested(trial: Trial, study: Study) -> dict[str, Any]:
    """What a trial draws of the study's space."""
    from optuna.distributions import (
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    found: dict[str, Any] = {}
    for name, each in study.space.distributions().items():
        if isinstance(each, CategoricalDistribution):
            found[name] = trial.suggest_categorical(name, each.choices)
        elif isinstance(each, IntDistribution):
            found[name] = trial.suggest_int(name, each.low, each.high, step=each.step, log=each.log)
        else:
            assert isinstance(each, FloatDistribution)
            found[name] = trial.suggest_float(name, each.low, each.high, log=each.log)
    return found
