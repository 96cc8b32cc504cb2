"""The sentences of studies: what the search chose, and what that gained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sweeps.analyse.statistics import Interval
from sweeps.sections.formats import between, counted, gain, listed, percent, share
from sweeps.study.family_findings import FamilyFound, SettingAlone
from sweeps.study.study_findings import Cheapest
from sweeps.study.trials import BASE, StudyGain


def no_trial(count: int, failed: int) -> str:
    """No trial may be chosen."""
    return f"None of {counted(count, 'trial')} meets the constraints; {failed} failed."


def best_so_far(trial: int, says: str) -> str:
    """The best trial of a search that has no finale yet, and what it does."""
    return f"Best so far: trial {trial} {says} in the search, biased up by noise."


def study(gained: StudyGain, by: str) -> Iterator[str]:
    """What the chosen trial serves, and the strongest that it was compared with; who proposed it,
    and what it gained over the others; how much of the gap to a ceiling it closes."""
    count = counted(gained.replications, "replication")
    head = f"{gained.chosen} {gained.says} on {count} not used in the search"
    if gained.strongest is not None:
        rival = _against(gained.gains[gained.strongest], gained.strongest)
        yield f"{head}, {rival}, the strongest of those that beat it."
    else:
        apart = "ceilings apart, " if gained.closed else ""
        yield f"{head}; {apart}nothing that it was compared with serves significantly more."
    beside = ""
    if gained.first is not None and gained.added is not None and gained.first != BASE:
        beside = f"; it has {_against(gained.added, gained.first)}, which needed no search"
    yield f"It was proposed by {by}{beside}."
    breaks = f" (it breaks {listed(gained.broken)})" if gained.broken else ""
    rest = [
        _against(each, f"the base{breaks}" if name == BASE else name)
        for name, each in gained.gains.items()
        if name not in (gained.strongest, gained.first if beside else "", *gained.closed)
    ]
    if rest:
        yield f"It has {listed(rest)}."
    for name, part in gained.closed.items():
        if part is not None and (part.low, part.high) != (0.0, 0.0):
            yield f"It closes {percent(part, named=True)} of the gap from base to {name}."


_MANY = 8
"""Bounds that a sentence lists."""
PHASES = {
    "first": "arithmetic before the search", "random": "the space-filling draws", "tpe": "TPE",
}  # fmt: skip
"""Who proposes trials."""


def proposed(phase: str | None, first: str | None, trial: int | None, count: int) -> str:
    """Who proposed a trial, and when."""
    own = f" ({first})" if first else ""
    return f"{PHASES.get(phase or '', 'the search')}{own}, as trial {trial} of 0 to {count - 1}"


def families(each_family: Sequence[FamilyFound]) -> Iterator[str]:
    """What the best of each family has over the best outside of it."""
    told = [
        f"the best of {each.name} ({each.best}) has {_against(each.gain, str(each.against))}"
        for each in each_family
        if each.gain is not None
    ]
    if told:
        yield f"By family: {'; '.join(told)}."
    missing = [each.name for each in each_family if each.whole == 0]
    if missing:
        yield f"Of {listed(missing)} no trial was served in full."


def alone(settings: Sequence[SettingAlone], signs: Mapping[int, int]) -> Iterator[str]:
    """Which settings of the best matter, set back to the base's one at a time, and which do not
    show. signs: of each place, 1 or -1 where it is significant."""
    back = [(each, signs[i]) for i, each in enumerate(settings) if each.back]
    told = [
        f"{each.path.rpartition('.')[2]} {each.label} {gain(each.gain)}"
        for each, sign in sorted(back, key=lambda pair: pair[0].gain.mean) if sign
    ]  # fmt: skip
    if told:
        yield f"Set back to the base's alone: {listed(told)}."
    rest = [each.path.rpartition(".")[2] for each, sign in back if not sign]
    if rest:
        yield f"What {listed(rest)} bring alone does not show."


def states(counts: Mapping[str, int]) -> str:
    """How many trials were served in full, and what became of the others."""
    words = {
        "complete": "served in full", "pruned": "left out by a rung", "infeasible": "infeasible",
        "failed": "failed",
    }  # fmt: skip
    told = [f"{counts[state]} {text}" for state, text in words.items() if counts.get(state)]
    return f"Of {counted(sum(counts.values()), 'trial')}: {listed(told)}."


def constrained(values: Sequence[tuple[str, float | None, float | None]]) -> str:
    """What is constrained, of the best and of the base."""
    return f"Constrained, {_beside(values, ': ')}."


def cheapest(fleet: Cheapest) -> list[str]:
    """The cheapest fleet, how it keeps the constraints, and how much dearer others are."""
    (cards, cost), *others = ((n or 0.0, each or 0.0) for n, each in fleet.sizes.values())
    told = [f"{metric} {between(each, '{:.3f}'.format)}" for metric, each in fleet.kept]
    dearer = [
        f"{name} takes {n:.0f} cards and costs {100 * (each / cost - 1):+.0f} %"
        for name, (n, each) in zip(list(fleet.sizes)[1:], others, strict=True)
    ]
    unit = {"cards": "cards", "watts": "W"}.get(fleet.cost, "in all")
    who = fleet.chosen if fleet.rival is None else f"{fleet.rival} ({fleet.chosen})"
    return [
        f"Cheapest fleet: {who} on {fleet.device}, {cards:.0f} cards ({cost:,.6g} {unit}); on"
        f" {counted(fleet.replications, 'replication')} not used in the search {listed(told)}.",
        f"The best of the others: {listed(dearer)}.",
    ]


def settings(trial: str, rows: Sequence[Sequence[str]]) -> str:
    """What a trial has instead of the base; rows: path, the base's value, its own."""
    told = [f"{path} {value} (base: {own})" for path, own, value in rows]
    return f"{trial} has {listed(told)}." if told else f"{trial} has the settings of the base."


def buckets(limit: dict[str, Any]) -> str:
    """Where the chosen trial's buckets end, and what they leave unused."""
    chosen = limit["chosen"]
    bounds = _ends([f"{bound:,}" for bound in dict.fromkeys(chosen["bounds"])])
    levels = _ends([f"{level:.2f}" for level in dict.fromkeys(chosen["levels"])])
    of = "prompt and output" if chosen["of"] == "total" else "output"
    base = f" (base: {share(limit[BASE]['unused'], 1)})" if BASE in limit else ""
    return (
        f"Its {counted(len(chosen['bounds']), 'bucket')} end at {bounds} tokens of {of}, the"
        f" quantiles {levels}, and leave {share(chosen['unused'], 1)} of what is reserved"
        f" unused{base}."
    )


def pool(share_of_memory: float) -> str:
    """Whether a pool is kept apart."""
    if not share_of_memory:
        return "It keeps no pool apart for large reservations."
    return f"It keeps {share(share_of_memory, 0)} of the KV memory apart for large reservations."


def _ends(numbers: list[str]) -> str:
    """All of a few; the first and the last of many, which a table has."""
    return listed(numbers) if len(numbers) <= _MANY else f"{numbers[0]} to {numbers[-1]}"


def objectives(values: Sequence[tuple[str, float | None, float | None]]) -> str:
    """Every objective of the winner beside the base's."""
    return f"By objective: {_beside(values, ' ')}."


def _beside(values: Sequence[tuple[str, float | None, float | None]], gap: str) -> str:
    """Figures of the winner, by name, each with the base's where that has one."""
    return listed(
        f"{name}{gap}{_four(ours)}" + f" (base: {_four(theirs)})" * (theirs is not None)
        for name, ours, theirs in values
    )


def _four(value: float | None) -> str:
    return "–" if value is None else f"{value:,.4g}"


def _against(found: Interval, other: str) -> str:
    if found.low == found.high == 0:
        return f"the same as {other}"
    text = f"{gain(found, named=True)} against {other}"
    return text if found.sign else f"{text}, not significant"
