"""The sentences of studies: what the search chose, and what that gained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sweeps.analyse.statistics import Interval
from sweeps.report.formats import between, counted, gain, listed, percent, share
from sweeps.study.study_findings import Cheapest
from sweeps.study.trials import BASE, StudyGain


def no_trial(count: int, failed: int) -> str:
    """No trial may be chosen."""
    return f"None of {counted(count, 'trial')} meets the constraints; {failed} failed."


def best_so_far(trial: int, says: str) -> str:
    """The best trial of a search that has no finale yet, and what it does."""
    return f"Best so far: trial {trial} {says} in the search, biased up by noise."


def study(found: StudyGain) -> Iterator[str]:
    """What the chosen trial gained over the base and the best trial that needed no search, and how
    much of the gap to a ceiling it closes."""
    base = found.gains.get(BASE)
    count = counted(found.replications, "replication")
    head = f"{found.chosen} {found.says} on {count} not used in the search"
    breaks = f", which breaks {listed(found.broken)}" if found.broken else ""
    yield f"{head}, {_against(base, 'the base')}{breaks}." if base else f"{head}."
    if found.first not in (None, BASE):
        added = "nothing" if found.added is None else _against(found.added, "it")
        yield f"Best trial without a search: {found.first}; the search adds {added}."
    told = {BASE, found.first, *found.closed}
    rest = [_against(each, name) for name, each in found.gains.items() if name not in told]
    if rest:
        yield f"It has {listed(rest)}."
    for name, part in found.closed.items():
        if part is not None and (part.low, part.high) != (0.0, 0.0):
            yield f"The search closes {percent(part, named=True)} of the gap from base to {name}."


def cheapest(found: Cheapest) -> list[str]:
    """The cheapest fleet, how it keeps the constraints, and how much dearer others are."""
    (cards, cost), *others = ((n or 0.0, each or 0.0) for n, each in found.sizes.values())
    told = [f"{metric} {between(each, '{:.3f}'.format)}" for metric, each in found.kept]
    dearer = [
        f"{name} takes {n:.0f} cards and costs {100 * (each / cost - 1):+.0f} %"
        for name, (n, each) in zip(list(found.sizes)[1:], others, strict=True)
    ]
    unit = {"cards": "cards", "watts": "W"}.get(found.cost, "in all")
    who = found.chosen if found.rival is None else f"{found.rival} ({found.chosen})"
    return [
        f"Cheapest fleet: {who} on {found.device}, {cards:.0f} cards ({cost:,.6g} {unit}); on"
        f" {counted(found.replications, 'replication')} not used in the search {listed(told)}.",
        f"The best of the others: {listed(dearer)}.",
    ]


def settings(trial: str, rows: Sequence[Sequence[str]]) -> str:
    """What a trial has instead of the base; rows: path, the base's value, its own."""
    told = [f"{path} {value} (base: {own})" for path, own, value in rows]
    return f"{trial} has {listed(told)}." if told else f"{trial} has the settings of the base."


def buckets(limit: dict[str, Any]) -> str:
    """Where the chosen trial's buckets end, and what they leave unused."""
    bounds = listed(f"{bound:,}" for bound in limit["chosen_bounds"])
    unused = limit["unused"]
    return (
        f"Its {counted(len(limit['chosen_bounds']), 'bucket')} end at {bounds} tokens and leave"
        f" {share(unused['chosen'], 1)} of what is reserved for answers unused (base:"
        f" {share(unused[BASE], 1)})."
    )


def objectives(found: Sequence[tuple[str, float | None, float | None]]) -> str:
    """Every objective of the winner beside the base's."""
    told = [
        f"{noun} {_four(ours)}" + (f" (base: {_four(theirs)})" * (theirs is not None))
        for noun, ours, theirs in found
    ]
    return f"By objective: {listed(told)}."


def _four(value: float | None) -> str:
    return "–" if value is None else f"{value:,.4g}"


def _against(found: Interval, other: str) -> str:
    if found.low == found.high == 0:
        return f"the same as {other}"
    text = f"{gain(found, named=True)} against {other}"
    return text if found.sign else f"{text}, not significant"
