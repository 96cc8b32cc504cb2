"""What a study gained, in sentences: against whom, how sure, how much of the gap is closed."""

from __future__ import annotations

from collections.abc import Iterator

from sweeps.reports.verdict import percent
from sweeps.studies.trials import BASE, Trials


def study_sentences(trials: Trials) -> list[str]:
    """What was gained, against whom, how sure that is, and how much of the gap it closes."""
    best = trials.best()
    if best is None:
        failed = sum(trials.values(record) is None for record in trials.records)
        return [
            f"No trial keeps the constraints, of {len(trials.records)} of which {failed} failed."
        ]
    if not trials.contenders:
        value = f"{trials.first(best):,.4g}"
        return [
            f"Best so far: trial {best['trial']}, {value} {trials.words} on the replications that"
            " it was searched on, which flatter it; the finale measures it on others."
        ]
    return [_gains(trials), *_closed(trials), *_limit(trials)]


def _gains(trials: Trials) -> str:
    best = trials.contenders[0]
    mean = best.mean(trials.metric) or 0.0
    sure: list[str] = []
    unsure: list[str] = []
    for other in trials.contenders[1:]:
        if (gain := trials.gain(other)) is not None:
            told = f"{percent(gain)} against {other.name}"
            (sure if gain.sign else unsure).append(told)
    text = (
        f"On {len(best.replications)} replications that the search never saw, {trials.chosen} has"
        f" {mean:,.1f} {trials.words}: {'; '.join([*sure, *unsure])}."
    )
    base = trials.contender(BASE)
    gain = None if base is None else trials.gain(base)
    if gain is not None and trials.sign * gain.sign <= 0:
        lost = gain.sign != 0
        text += " The search found nothing better than the base" + (
            "." if lost else ", as far as can be told: undecided between the two."
        )
    elif unsure:
        text += f" May be nothing: {'; '.join(unsure)}."
    return text


def _closed(trials: Trials) -> Iterator[str]:
    for name in trials.ceilings:
        ceiling = trials.contender(name)
        if ceiling is None:
            continue
        share = trials.closed(ceiling)
        if share is None:
            yield f"{name} is not above the base in every replication: there is no gap to close."
        else:
            yield f"Of the gap from the base to {name}, {percent(share)} is closed."


def _limit(trials: Trials) -> Iterator[str]:
    if trials.limit is None:
        return
    bounds, unused = trials.limit["bounds"], trials.limit["unused"]
    least, chosen, base = (f"{unused[name]:.1%}" for name in ("least", "chosen", "base"))
    yield (
        f"Were every length known, {len(bounds)} buckets would leave at least {least} of what they"
        f" reserve for output unused over time (bounds {', '.join(map(str, bounds))} tokens); the"
        f" quantiles of {trials.chosen} leave {chosen}, those of the base {base}."
    )
