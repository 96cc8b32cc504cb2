"""Which trials a batch has: a matter of the study's seed, the trial's number, and what was told
before the batch began; of nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sweeps.study.front import costs, front
from sweeps.study.journal import Journal, running
from sweeps.study.study_spec import SamplerSpec, Study

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial

_STREAM = 0x5A17
"""Keeps the sampler's seeds apart from those of workloads."""


def ask_batch(study: Study, journal: Journal, begin: int, end: int) -> list[dict[str, Any]]:
    """Parameters of trials `begin` to `end` - 1; those that the journal lacks are written there.

    Only trials before `begin` count as told, and those of the batch as under way, so that asking
    again, after an interruption at any point, comes to the same.
    """
    import optuna

    trials = journal.trials()
    directions = [objective.direction for objective in study.spec.objectives]
    views = {rival: optuna.create_study(directions=directions)
             for rival in map(study.rival, range(begin, end))}  # fmt: skip
    for rival, view in views.items():
        view.add_trials([t for t in trials[:begin] if study.rival(t.number) == rival])
    asked = []
    for number in range(begin, end):
        view = views[rival := study.rival(number)]
        distributions = study.space_of(rival).distributions()
        taken = None if rival is None else taken_over(study, trials[:begin], rival, view.trials)
        if number < max(len(trials), len(study.first)):
            known = number < len(trials)
            params = dict(trials[number].params if known else study.first[number].params)
            view.add_trial(running(params, distributions))
        elif taken is not None:
            params = taken
            view.add_trial(running(params, distributions))
        else:
            view.sampler = sampler_of(study.spec.sampler, number, study.spec.batch)
            params = dict(view.ask(distributions).params)
        if number >= len(trials):
            journal.ask(params, distributions)
        asked.append(params)
    return asked


def taken_over(
    study: Study, trials: list[FrozenTrial], rival: str, mine: list[FrozenTrial]
) -> dict[str, Any] | None:
    """A rival's best with what all search as the best of all rivals has it, so that none wins by a
    device or router that others did not draw; None where it was tried. mine: those of the rival,
    with those under way."""
    ahead = best(study, trials)
    if ahead is None or not mine:
        return None
    own = best(study, [t for t in trials if study.rival(t.number) == rival]) or mine[0]
    shared = {name: ahead.params[name] for name in study.space.distributions()}
    found = {**own.params, **shared}
    return None if found in [trial.params for trial in mine] else found


def sampler_of(spec: SamplerSpec, number: int, batch: int) -> BaseSampler:
    """The sampler of one trial, with a seed of its own: one that is made anew after an
    interruption would else repeat its first draws."""
    import numpy as np
    import optuna

    words = np.random.SeedSequence((spec.seed, number), spawn_key=(_STREAM,)).generate_state(1)
    seed = int(words[0])
    if spec.name == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    return optuna.samplers.TPESampler(
        multivariate=True, constant_liar=True, n_startup_trials=batch, seed=seed
    )


def ranking(study: Study, trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """Trials that were told a value, best first: those that keep the constraints, then those that
    no other beats in all objectives, then by the first objective; ties by number."""
    told = [trial for trial in trials if _has_values(trial)]
    ahead = {trial.number for trial in unbeaten(study, told)}
    return sorted(
        told, key=lambda t: (broken(t), t.number not in ahead, _costs(study, t)[0], t.number)
    )


def unbeaten(study: Study, trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """The trials that keep the constraints and that no other such one beats in all objectives."""
    kept = [t for t in trials if _has_values(t) and not broken(t)]
    return [kept[place] for place in front([_costs(study, trial) for trial in kept])]


def best(study: Study, trials: Sequence[FrozenTrial]) -> FrozenTrial | None:
    """The first in the ranking, if it keeps the constraints."""
    ranked = ranking(study, trials)
    return ranked[0] if ranked and not broken(ranked[0]) else None


def _has_values(trial: FrozenTrial) -> bool:
    return trial.state.name == "COMPLETE"


def broken(trial: FrozenTrial) -> float:
    """By how much a trial breaks its constraints, in sum."""
    return sum(violation for violation in trial.constraints.values() if violation > 0)


def _costs(study: Study, trial: FrozenTrial) -> list[float]:
    """Values of the objectives, the less the better."""
    return costs(trial.values, [objective.direction for objective in study.spec.objectives])
