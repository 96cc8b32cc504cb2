"""What a study gained: against whom, how sure, how much of the gap is closed."""

from __future__ import annotations

from sweeps.reports import phrases
from sweeps.reports.facts import StudyGain
from sweeps.studies.trials import BASE, Trials


def study_sentences(trials: Trials) -> list[str]:
    """What was gained, against whom, how sure that is, and how much of the gap it closes."""
    best = trials.best()
    if best is None:
        failed = sum(trials.values(record) is None for record in trials.records)
        return [phrases.no_trial(len(trials.records), failed)]
    if not trials.contenders:
        return [phrases.best_so_far(best["trial"], trials.first(best), trials.words)]
    return list(phrases.study(study_gain(trials)))


def study_gain(trials: Trials) -> StudyGain:
    """What the finale says of the chosen trial."""
    best, *others = trials.contenders
    gains = {row.name: gain for row in others if (gain := trials.gain(row)) is not None}
    over_base = trials.sign * gains[BASE].sign if BASE in gains else None
    ceilings = ((name, trials.contender(name)) for name in trials.ceilings)
    closed = {name: trials.closed(row) for name, row in ceilings if row is not None}
    mean, count = best.mean(trials.metric) or 0.0, len(best.replications)
    return StudyGain(
        trials.chosen, trials.words, mean, count, gains, over_base, closed, trials.limit
    )
