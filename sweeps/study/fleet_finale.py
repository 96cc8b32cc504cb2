"""The finale of a study of fleets: the best of each rival beside the base, on replications that the
search never saw.

The fleets of the `top` trials of each rival grow to what the first of those replications need too;
so none is small by luck. Each rival is also tried as the best trial is in all that they share, if
it was not yet. The cheapest of each are judged on the replications after them.
"""

from __future__ import annotations

from sweeps.plan.experiment import Task
from sweeps.study.contenders import Contender, Finale
from sweeps.study.finale import kept, serve_all, write_finale
from sweeps.study.fleet_size import ATTAINED, CARDS
from sweeps.study.journal import RESULT
from sweeps.study.sampler import best as best_trial
from sweeps.study.sampler import broken, ranking, taken_over
from sweeps.study.study_run import StudyFailed, StudyRun


def fleet_finale(run: StudyRun) -> Finale | None:
    """Serve what is not served yet; None where no trial keeps the constraints."""
    study, spec = run.study, run.study.spec.finale
    assert spec is not None and study.spec.fleet is not None
    tried: dict[str | None, list[Contender]] = {}
    for trial in ranking(study, run.finished_trials()):
        top = tried.setdefault(study.rival(trial.number), [])
        if not broken(trial) and len(top) < spec.top:
            overrides = dict(trial.user_attrs[RESULT]["overrides"])
            top.append(Contender(f"trial {trial.number}", overrides, trial=trial.number))
    if not any(tried.values()):
        return None
    trials = run.finished_trials()
    ahead = best_trial(study, trials)
    assert ahead is not None
    for rival in study.spec.fleet.rivals:
        mine = [t for t in trials if study.rival(t.number) == rival]
        if (params := taken_over(study, trials, rival, mine)) is not None:
            overrides = {**study.rival_set(rival), **study.space_of(rival).overrides(params)}
            top = tried.setdefault(rival, [])
            said = f"trial {ahead.number} as {rival}"
            top.append(Contender(said, overrides, trial=ahead.number, rival=rival))
    every = [each for top in tried.values() for each in top]
    others = [Contender(point.control, dict(point.overrides)) for point in study.points]
    first = study.base.replications + 1
    choosing = range(first, first + spec.choose)
    judging = range(choosing.stop, choosing.stop + spec.replications)
    _size(run, [*every, *others], choosing)
    for each in others:
        each.metrics = {}  # their cards were found on these requests

    def rank(each: Contender) -> tuple[float, float]:
        metrics = each.metrics[first]
        return metrics["cost"], -each.mean(ATTAINED, choosing) if ATTAINED in metrics else 0.0

    best = {rival: min(top, key=rank) for rival, top in tried.items() if top}
    chosen = min(best.values(), key=rank)
    for name, each in best.items():
        if each is not chosen:
            whole = f"{name} ({each.name})" if each.rival is None else each.name
            others.append(Contender(whole, each.overrides))
    serve_all(run, [chosen, *others], judging, "finale")
    found = Finale(chosen, others, every, choosing, judging)
    write_finale(run, found)
    return found


def _size(run: StudyRun, contenders: list[Contender], choosing: range) -> None:
    """Give each the cards that it needs on these replications, and its metrics there, from the
    journal or by serving."""
    study, journal = run.study, run.journal
    missing = [each for each in contenders if journal.note(_name(each)) is None]
    tasks = []
    for each in missing:
        experiments = [study.served(each.overrides, r) for r in choosing]
        lowest = each.overrides.get(CARDS, 0)
        sized = study.smallest(experiments, lowest=lowest, first=choosing.start)
        tasks.append(Task(sized, 1, None))
    with run.progress.stage("sizes", len(contenders), len(contenders) - len(tasks)) as done:
        for outcome in run.workers.outcomes(tasks):
            name = _name(missing[outcome.index])
            if outcome.error is not None:
                raise StudyFailed(f"failed: {name}: {outcome.error}")
            found = [kept(metrics) for metrics in outcome.value["runs"]]
            journal.write_note(name, {"cards": outcome.value["cards"], "runs": found})
            done()
    for each in contenders:
        noted = journal.note(_name(each))
        each.overrides[CARDS] = noted["cards"]
        cost = study.cost(each.overrides)
        each.metrics = {r: m | cost for r, m in zip(choosing, noted["runs"], strict=True)}


def _name(contender: Contender) -> str:
    return f"size, {contender.name}"
