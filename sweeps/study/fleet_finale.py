"""The finale of a study of fleets: the best of each rival beside the base, on replications that the
search never saw.

The fleets of the `top` trials of each rival are made as large as the first of those replications
need too, never smaller; so a size that had only luck with the requests of the search grows. The
cheapest of each rival are judged on the replications after them.
"""

from __future__ import annotations

from sweeps.plan.experiment import Task
from sweeps.study.contenders import Contender, Finale
from sweeps.study.finale import kept, serve_all, write_finale
from sweeps.study.fleet_size import ATTAINED, CARDS, FEWEST, GUESS
from sweeps.study.journal import RESULT
from sweeps.study.sampler import broken, ranking
from sweeps.study.study_run import StudyFailed, StudyRun


def fleet_finale(run: StudyRun) -> Finale | None:
    """Serve what is not served yet; None where no trial keeps the constraints."""
    study, spec = run.study, run.study.spec.finale
    assert spec is not None and study.spec.fleet is not None
    ranked = [t for t in ranking(study, run.journal.trials()) if not broken(t)]
    if not ranked:
        return None
    tried: dict[str, list[Contender]] = {}
    for rival in study.spec.fleet.rivals:
        top = [t for t in ranked if study.rival(t.number) == rival][: spec.top]
        tried[rival] = [
            Contender(f"trial {t.number}", dict(t.user_attrs[RESULT]["overrides"])) for t in top
        ]
    others = [Contender(point.control, dict(point.overrides)) for point in study.points]
    first = study.base.replications + 1
    choosing = range(first, first + spec.choose)
    judging = range(choosing.stop, choosing.stop + spec.replications)
    _size(run, [each for top in tried.values() for each in top] + others, choosing)
    for each in others:
        each.metrics = {}  # their cards were found on these requests
    best = {rival: min(top, key=lambda each: _rank(each, choosing))
            for rival, top in tried.items() if top}  # fmt: skip
    chosen = min(best.values(), key=lambda each: _rank(each, choosing))
    for rival, each in best.items():
        if each is not chosen:
            others.append(Contender(f"{rival} ({each.name})", each.overrides))
    serve_all(run, [chosen, *others], judging, "finale")
    every = [each for top in tried.values() for each in top]
    found = Finale(chosen, others, every, choosing, judging)
    write_finale(run, found)
    return found


def _rank(each: Contender, choosing: range) -> tuple[float, float]:
    """By cost, then by the share that attains the objective, where there is one."""
    metrics = each.metrics[choosing[0]]
    share = each.mean(ATTAINED, choosing) if ATTAINED in metrics else 0.0
    return metrics["cost"], -share


def _size(run: StudyRun, contenders: list[Contender], choosing: range) -> None:
    """Give each the cards that it needs on these replications, and its metrics there, from the
    journal or by serving."""
    study, missing, tasks = run.study, [], []
    for each in contenders:
        if run.journal.note(_name(each)) is None:
            known = each.overrides.get(CARDS)
            experiments = [study.served(each.overrides, r) for r in choosing]
            sized = study.smallest(experiments, known or GUESS, known or FEWEST, choosing.start)
            missing.append(each)
            tasks.append(Task(sized, 1, None))
    with run.progress.stage("sizes", len(contenders), len(contenders) - len(tasks)) as done:
        for outcome in run.workers.outcomes(tasks):
            name = _name(missing[outcome.index])
            if outcome.error is not None:
                raise StudyFailed(f"failed: {name}: {outcome.error}")
            found = [kept(metrics) for metrics in outcome.value["found"]]
            run.journal.write_note(name, {"cards": outcome.value["cards"], "found": found})
            done()
    for each in contenders:
        noted = run.journal.note(_name(each))
        each.overrides[CARDS] = noted["cards"]
        each.metrics = {r: metrics | study.cost(each.overrides)
                        for r, metrics in zip(choosing, noted["found"], strict=True)}  # fmt: skip


def _name(contender: Contender) -> str:
    return f"size, {contender.name}"
