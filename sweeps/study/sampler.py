"""Which trials a batch has: a matter of the study's seed, the trial's number, and what was told
before the batch began; of nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from hwmodel.description.description import DescriptionError
from sweeps.study.front import costs, front
from sweeps.study.journal import Journal, running
from sweeps.study.search_spec import SamplerSpec
from sweeps.study.space import Space
from sweeps.study.study_spec import Study

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial

_STREAM = 0x5A17
"""Keeps the sampler's seeds apart from those of workloads."""
_MOST_PASSED = 20
"""Draws for one trial, as long as the description refuses them (assumed)."""
Phase = Literal["first", "random", "tpe"]


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
        elif (drawn := drawn_evenly(study, number)) is not None:
            params = drawn
            view.add_trial(running(params, distributions))
        else:
            params = _drawn_by(view, study, number)
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


def phase_of(study: Study, number: int) -> Phase:
    """Who proposes a trial."""
    spec = study.spec.sampler
    if number < len(study.first):
        return "first"
    if spec.name == "random":
        return "random"
    return "random" if number < len(study.first) + _evenly(study) else "tpe"


def _evenly(study: Study) -> int:
    """Trials of the space-filling phase."""
    count = study.spec.sampler.random
    return study.spec.batch if count is None else count


def drawn_evenly(study: Study, number: int) -> dict[str, Any] | None:
    """What the space-filling phase draws for a trial; None where it is not of that phase."""
    if study.spec.sampler.name == "random" or phase_of(study, number) != "random":
        return None
    rival = study.rival(number)
    before = sum(study.rival(n) == rival for n in range(len(study.first), number))
    return _points(study, rival)[before]


def _points(study: Study, rival: str | None) -> list[dict[str, Any]]:
    """The draws of the space-filling phase, each of which is an experiment: what the description
    refuses is passed over."""
    if rival not in study.even_draws:
        wanted, rivals = _evenly(study), study.spec.fleet.rivals if study.spec.fleet else ()
        words = (study.spec.sampler.seed, [None, *rivals].index(rival))
        every = space_filling(study.space_of(rival), _MOST_PASSED * wanted, words)
        known = (p for p in every if _is_experiment(study, rival, p))
        study.even_draws[rival] = list(islice(known, wanted))
    return study.even_draws[rival]


def space_filling(space: Space, count: int, words: tuple[int, ...]) -> list[dict[str, Any]]:
    """Points of a scrambled Sobol sequence over all parameters. Of what is drawn by itself beside
    others, levels of a trial's own or a number of the range, half of the points have that."""
    import numpy as np
    from scipy.stats import qmc  # heavy

    distributions = space.distributions()
    seed = np.random.default_rng(np.random.SeedSequence(words, spawn_key=(_STREAM,)))
    sobol = qmc.Sobol(len(distributions), scramble=True, rng=seed)
    drawn = sobol.random(1 << max(count - 1, 1).bit_length())[:count]
    return [
        {
            name: _at(name, each, float(share))
            for (name, each), share in zip(distributions.items(), row, strict=True)
        }
        for row in drawn
    ]


def _at(name: str, distribution: BaseDistribution, share: float) -> Any:
    """The value below which a share of a distribution lies."""
    from optuna.distributions import (
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    if isinstance(distribution, CategoricalDistribution):
        choices, place = distribution.choices, share * len(distribution.choices)
        if name.endswith(".by"):
            place = 0.0 if share < 0.5 else 1 + (2 * share - 1) * (len(choices) - 1)
        return choices[min(int(place), len(choices) - 1)]
    assert isinstance(distribution, IntDistribution | FloatDistribution)
    low, high = float(distribution.low), float(distribution.high)
    if isinstance(distribution, FloatDistribution):
        return _between(low, high, share, distribution.log)
    half = distribution.step / 2
    value = _between(low - half, high + half, share, distribution.log)
    steps = round((value - low) / distribution.step)
    return int(min(max(low + steps * distribution.step, low), high))


def _between(low: float, high: float, share: float, log: bool) -> float:
    return low * (high / low) ** share if log else low + share * (high - low)


def _drawn_by(view: optuna.Study, study: Study, number: int) -> dict[str, Any]:
    """What the sampler draws for a trial, which is under way then. What the description refuses is
    told as failed, of which samplers learn nothing, and another is drawn."""
    from optuna.trial import TrialState

    rival = study.rival(number)
    view.sampler = sampler_of(study.spec.sampler, number)
    for _ in range(_MOST_PASSED):
        trial = view.ask(study.space_of(rival).distributions())
        if _is_experiment(study, rival, trial.params):
            break
        view.tell(trial, state=TrialState.FAIL)
    return dict(trial.params)


def _is_experiment(study: Study, rival: str | None, params: Mapping[str, Any]) -> bool:
    overrides = {**study.rival_set(rival), **study.space_of(rival).overrides(params)}
    try:
        study.experiment(overrides)
    except DescriptionError:
        return False
    return True


def sampler_of(spec: SamplerSpec, number: int) -> BaseSampler:
    """The sampler of one trial, with a seed of its own: one that is made anew after an
    interruption would else repeat its first draws."""
    import numpy as np
    import optuna

    words = np.random.SeedSequence((spec.seed, number), spawn_key=(_STREAM,)).generate_state(1)
    seed = int(words[0])
    if spec.name == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    return optuna.samplers.TPESampler(
        multivariate=True, constant_liar=True, n_startup_trials=1, seed=seed
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
