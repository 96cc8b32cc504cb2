"""The finale of a study: the best trials, the base, references and ceilings on simulated memory, on
replications that the search never saw.

The best of the top trials, and the best of the first ones, which needed no search, are chosen on
the first of those replications, and gains are measured on the ones after them, so that the choice
does not bias the gain.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hwmodel.description.yaml_writer import plain
from sweeps.analyse.rows import flat
from sweeps.plan.experiment import Task
from sweeps.run.store import write_atomically
from sweeps.run.sweep_run import apart
from sweeps.study.contenders import Contender, Finale, Metrics
from sweeps.study.families import families_of
from sweeps.study.first import PAPER
from sweeps.study.journal import RESULT
from sweeps.study.limit import write_limit
from sweeps.study.profile import write_profile
from sweeps.study.sampler import broken, ranking
from sweeps.study.study_run import StudyFailed, StudyRun
from sweeps.study.study_spec import BASE, Study
from sweeps.study.trials import FINALE

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


def run_finale(run: StudyRun) -> Finale | None:
    """Serve what is not served yet; None where no trial was told a value."""
    spec = run.study.spec.finale
    assert spec is not None
    ranked = [t for t in ranking(run.study, run.journal.trials()) if not broken(t)]
    told = {t.number: t for t in ranked}
    if not ranked:
        return None
    simplest = [t for t in ranked if t.number < len(run.study.first)]
    firsts = [
        t for t in simplest if t in simplest[: spec.top] or run.study.first[t.number].name == BASE
    ]
    top = [t for t in ranked if t in ranked[: spec.top] or t in firsts]
    first = run.study.base.replications + 1
    choosing = range(first, first + spec.choose)
    judging = range(choosing.stop, choosing.stop + spec.replications)
    tried = [
        Contender(f"trial {t.number}", t.user_attrs[RESULT]["overrides"], trial=t.number)
        for t in top
    ]
    if len(tried) > 1:
        serve_all(run, tried, choosing, "choice")
    chosen = _best(run.study, tried, choosing)
    others = [Contender(point.control, point.overrides) for point in run.study.points]
    others += _family_bests(run, ranked, chosen)
    simple = [each for each, t in zip(tried, top, strict=True) if t in firsts]
    if simple and (best := _best(run.study, simple, choosing)) is not chosen:
        name = run.study.first[top[tried.index(best)].number].name
        if name != BASE and best.trial not in [each.trial for each in others]:
            others.append(Contender(f"{name} ({best.name})", best.overrides, trial=best.trial))
    published = PAPER in [each.name for each in run.study.first]
    if published:
        number = [each.name for each in run.study.first].index(PAPER)
        there = [chosen.trial, *(each.trial for each in others)]
        if number not in there and (trial := told.get(number)) is not None:
            others.append(_of_trial(trial, PAPER))
    write_limit(run, chosen.overrides)
    serve_all(run, [chosen, *others], judging, "finale")
    found = Finale(chosen, others, tried, choosing, judging)
    write_finale(run, found)
    write_profile(run, chosen, judging)
    return found


def _of_trial(trial: FrozenTrial, name: str) -> Contender:
    overrides = trial.user_attrs[RESULT]["overrides"]
    return Contender(f"{name} (trial {trial.number})", overrides, trial=trial.number)


def _family_bests(run: StudyRun, ranked: list[FrozenTrial], chosen: Contender) -> list[Contender]:
    """The best trial of each family that the chosen one is not of, and of what is in none of a
    family that it is of, each once."""
    families, first = run.study.spec.families, run.study.first
    of = {t.number: families_of(families, t.params) for t in ranked}
    found: dict[int, Contender] = {}
    for family in families:
        inside = chosen.trial is not None and family in of[chosen.trial]
        mine = [t for t in ranked if (family in of[t.number]) is not inside]
        if mine and (number := mine[0].number) != chosen.trial:
            names = [name for name in of[number] if inside or name == family]
            own = first[number].name if number < len(first) else "/".join(names[:1])
            if own != BASE:
                found.setdefault(number, _of_trial(mine[0], own or f"not {family}"))
    return [*found.values()]


def _best(study: Study, tried: list[Contender], choosing: range) -> Contender:
    """By the first objective on these replications; the only one needs none."""
    objective = study.spec.objectives[0]
    sign = -1 if objective.direction == "maximize" else 1
    if len(tried) == 1:
        return tried[0]
    return min(tried, key=lambda each: sign * each.mean(objective.metric, choosing))


def serve_all(run: StudyRun, contenders: list[Contender], among: range, stage: str) -> None:
    """Fill in the metrics of these replications, from the journal or by serving."""
    missing = []
    for contender in contenders:
        for replication in among:
            noted = run.journal.note(_name(contender, replication))
            if noted is None:
                missing.append((contender, replication))
            else:
                contender.metrics[replication] = noted
    tasks = [
        Task(
            run.study.served(contender.overrides, replication), replication, run.rates[replication]
        )
        for contender, replication in missing
    ]
    whole = len(contenders) * len(among)
    with run.progress.stage(stage, whole, whole - len(tasks)) as done:
        for outcome in run.workers.outcomes(tasks):
            contender, replication = missing[outcome.index]
            name = _name(contender, replication)
            if outcome.error is not None:
                raise StudyFailed(f"failed: {name}: {outcome.error}")
            told = kept(outcome.value) | run.study.cost(contender.overrides)
            run.journal.write_note(name, told)
            contender.metrics[replication] = told
            done()


def kept(metrics: dict[str, Any]) -> Metrics:
    """The numbers of a replication, flat."""
    every = plain(flat(apart(metrics)[0]))
    return {key: value for key, value in every.items() if not isinstance(value, list)}


def _name(contender: Contender, replication: int) -> str:
    return f"finale, {contender.name}, replication {replication}"


def write_finale(run: StudyRun, finale: Finale) -> None:
    """A line a contender and replication."""
    lines = [
        {"contender": c.name, "trial": c.trial, "rival": c.rival, "overrides": c.overrides,
         "replication": r, "metrics": c.metrics[r]}
        for c in [*finale.tried, *finale.others]
        for r in sorted(c.metrics)
    ]  # fmt: skip
    text = "".join(json.dumps(plain(line), allow_nan=False) + "\n" for line in lines)
    write_atomically(run.directory.path / FINALE, text)
