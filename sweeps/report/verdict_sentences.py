"""The sentences on groups of competitors: each template turns a record into one or a few.

What is found of a single cell, card or parameter is a column of the table beside them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from sweeps.analyse.best import MOST, WIDE
from sweeps.analyse.facts import Dependence, Gap, Reference, Turned, Verdict
from sweeps.analyse.figures import KV_MEMORY, limit_word
from sweeps.analyse.statistics import Interval
from sweeps.sections.formats import (
    SHOWN,
    at_most,
    counted,
    gain,
    listed,
    more,
    share,
)  # fmt: skip


def verdict(judged: Verdict, compared: str = "policy") -> str:
    """Who leads, by how much and why."""
    words = {"won": _won, "close": _close, "undecided": _undecided, "alone": _alone}
    text = f"{judged.title}: {words[judged.outcome](judged, compared)}"
    if judged.missing:
        without = listed(_who(name, compared) for name in judged.missing)
        text += f" {without}: no {judged.objective.noun}{_why_none(judged)}."
    return text


def _why_none(found: Verdict) -> str:
    """Why competitors have no value of a metric that grows with the run."""
    if found.objective.metric.startswith("at_share."):
        return " at latency_at, as the load is below capacity"
    return ", as the load is above capacity" * ("below capacity" in found.objective.needs)


def short(judged: Verdict) -> str:
    """The outcome in a few words."""
    words = {
        "won": f"{judged.leader} wins",
        "close": f"at most {share(WIDE)} apart",
        "undecided": "undecided",
        "alone": f"only {judged.leader}" if judged.leader else "no results",
    }
    return words[judged.outcome]


def _alone(found: Verdict, compared: str) -> str:
    if found.leader:
        return f"only {_who(found.leader, compared)} has results."
    return "nothing to compare." if found.missing else "no results yet."


def _won(found: Verdict, compared: str) -> str:
    why = f" Decided by {listed(found.decided_by)}." if found.decided_by else ""
    if found.kv_share is not None:
        why = f" Reading KV takes {share(found.kv_share)} of a step."
    return f"{_rate(found, compared)}{_gaps(found, found.behind, compared)}{_free(found)}.{why}"


def _close(found: Verdict, compared: str) -> str:
    names, noun = listed(_who(name, compared) for name in found.ties), found.objective.noun
    told = (
        f"differ by {at_most(found.within)} in {noun}" if found.within else f"have the same {noun}"
    )
    text = f"{names} {told}: keep {_who(found.ties[0], compared)}{_free(found)}."
    return text + _behind(found, compared)


def _behind(found: Verdict, compared: str) -> str:
    """Those that are surely worse than the leader, where others tie with it."""
    if not found.behind:
        return ""
    return f" {_rate(found, compared)}{_gaps(found, found.behind, compared)}."


def _free(found: Verdict) -> str:
    """The condition that KV memory does not limit the leader, and what does."""
    if found.bound:
        return ""
    rest = {name: part for name, part in found.limits.items() if name != KV_MEMORY}
    name = max(rest, key=lambda key: rest[key], default="")
    limit = f" ({limit_word(name)} is, {share(rest[name])} of the time)" if rest else ""
    return f"; KV memory is not the limit{limit}"


def _undecided(found: Verdict, compared: str) -> str:
    names = [_who(name, compared) for name in found.ties if name != found.leader]
    others = listed(names, "or") if len(names) <= SHOWN else f"{len(names)} others"
    better = "less" if found.objective.less else found.objective.more
    count = min(gap.total.count for gap in found.close)
    if count < 2:
        told = f"{_rate(found, compared)}, in one replication {better} than {others}"
        return f"{told}{_free(found)}. That gives no interval: run three or more."
    text = f"{_rate(found, compared)}, not significantly {better} than {others}"
    bound = f": {at_most(found.within)} either way" if found.within < 1 else ""
    text += f"{bound}{_free(found)}.{settled(count, found.needed)}"
    if not found.behind:
        return text
    rest = _gaps(found, found.behind, compared).removeprefix(",").removeprefix(";")
    does = "" if found.objective.less else f" {_who(found.leader, compared)} {_does(found)}"
    return f"{text}{does}{rest}."


def _does(found: Verdict) -> str:
    """`serves`, `carries`: what a competitor does, without a number."""
    return found.objective.says.split(" {}")[0].removesuffix(" at")


def settled(count: int, wanted: int | None) -> str:
    """How many replications would make a difference significant, or bound it closely; nothing where
    there are as many already, as of competitors that serve the same."""
    if wanted is not None and wanted <= count:
        return ""
    many = f"More than {MOST}" if wanted is None else f"About {wanted}"
    return f" {many} replications would settle it (now {count})."


def _rate(found: Verdict, compared: str) -> str:
    does = found.objective.says.format(found.objective.text(found.rate))
    return f"{_who(found.leader, compared)} {does}"


def _gaps(found: Verdict, gaps: list[Gap], compared: str) -> str:
    """How far behind the leader these are, after its rate."""
    word, rest = found.objective.more, len(gaps) - SHOWN
    shown = [(gap, _who(gap.other, compared)) for gap in gaps[:SHOWN]]
    if found.objective.less:
        told = [f"{who} {_excess(g.total, named=g is gaps[0])}" for g, who in shown]
        return f"; {listed([*told, *([f'{rest} others yet more'] if rest > 0 else [])])}"
    told = [more(g.total, who, word, named=g is gaps[0]) for g, who in shown]
    return f", {listed([*told, *([f'yet {word} than {rest} others'] if rest > 0 else [])])}"


def _excess(found: Interval, named: bool) -> str:
    """How much more another has where less is better: `12 % (10 to 14) more`."""
    text = gain(found, False, named)
    return f"{text} more" if text.count("%") else f"{text} as much"


def _who(name: str, compared: str) -> str:
    """A competitor; a number alone is none."""
    return name if any(map(str.isalpha, name)) else f"{compared} {name}"


def outcomes(verdicts: Sequence[Verdict], noun: str, turning: int = 0) -> str:
    """The outcomes counted; turning: how many of them are others under an assumption."""
    ranked = Counter(map(short, verdicts)).most_common()
    told = ", ".join(f"{what} in {'all' if n == len(verdicts) else n}" for what, n in ranked)
    free = sum(not each.bound for each in verdicts)
    note = f" KV memory does not limit the best in {free}." if free else ""
    note += f" Another assumption changes {turning} of them." if turning else ""
    family = max((each.family for each in verdicts), default=1)
    head = f"Of {counted(len(verdicts), noun)}" + f" (corrected for {family})" * (family > 1)
    return f"{head}: {told}.{note}"


def dependence(depends: Dependence) -> Iterator[str]:
    """Whether the winner depends on an axis; nothing where there is none."""
    winners, where = depends.winners, f"{depends.where}: " if depends.where else ""
    every = [verdict for _, verdict in depends.outcomes]
    best = every[0].objective.wins
    told = "; ".join(f"{value}: {short(each)}" for value, each in depends.outcomes)
    if len(winners) == 1 and all(each.outcome == "won" for each in every):
        gaps = [(each.gaps[0], value) for value, each in depends.outcomes]
        ranked = sorted(gaps, key=lambda each: each[0].total.mean)
        less = every[0].objective.less
        nearest, furthest = (_distance(gap, less) for gap in (ranked[0][0], ranked[-1][0]))
        lead = f"{_bound('at least', ranked[0], less)}, {_bound('at most', ranked[-1], less)}"
        if nearest == furthest:  # to the digits shown
            lead = f"{_distance(ranked[0][0], less, named=True)} at each"
        values = ", ".join(value for value, _ in depends.outcomes)
        yield f"{where}{winners[0]} {best} for every {depends.axis} ({values}): {lead}."
    elif winners and depends.is_question:
        told = "; ".join(f"{value}: {_lead(each)}" for value, each in depends.outcomes)
        yield f"{where}{told}. Which {depends.compared} {best} depends on the {depends.axis}."
    elif len(winners) > 1:
        yield f"{where}undecided: the winner changes with {depends.axis} ({told})."


def _bound(word: str, where: tuple[Gap, str], less: bool) -> str:
    """The nearest or the furthest that a rival comes, and at which value of an axis."""
    (gap, value), named = where, word == "at least"
    if less:
        return f"{gap.other} {word} {_excess(gap.total, named)} ({value})"
    return f"{word} {more(gap.total, gap.other, named=named)} ({value})"


def _distance(gap: Gap, less: bool, named: bool = False) -> str:
    """How far a rival comes."""
    if less:
        return f"{gap.other} {_excess(gap.total, named)}"
    return more(gap.total, gap.other, named=named)


def dependences(several: Sequence[Dependence]) -> str:
    """How often the winner is one along an axis, over the combinations of the others."""
    axis, best = several[0].axis, several[0].outcomes[0][1].objective.wins
    same: Counter[str] = Counter()
    changes = 0
    for each in several:
        if len(each.winners) > 1:
            changes += 1
        elif each.winners and all(verdict.outcome == "won" for _, verdict in each.outcomes):
            same[each.winners[0]] += 1
    told = [f"{who} {best} for every value in {n}" for who, n in same.most_common()]
    told += [f"the winner changes in {changes}"] * bool(changes)
    rest = len(several) - same.total() - changes
    told += [f"one or more are undecided in {rest}"] * bool(rest)
    return (
        f"Along {axis}, of {counted(len(several), 'combination')} of the rest: {'; '.join(told)}."
    )


def _lead(found: Verdict) -> str:
    if found.outcome != "won":
        return short(found)
    gap, objective = found.gaps[0], found.objective
    if objective.less:
        return f"{found.best} has the least, {gap.other} {_excess(gap.total, named=True)}"
    return f"{found.best} {_does(found)} {more(gap.total, gap.other, objective.more, named=True)}"


def turned(turn: Turned) -> str:
    """Another outcome elsewhere."""
    told = "; ".join(f"{where}: {short(each)}" for where, each in turn.outcomes.items())
    open_ = f"undecided: the winner changes with {turn.assumption}"
    return f"{turn.title}: {open_ if turn.assumption else 'the outcome changes'} ({told})."


def reference(held: Reference, leader: str) -> str:
    """What a reference serves against the leader."""
    memory = ", both on memory without banks" if held.analytic else ""
    against = f"{gain(held.gains[leader], named=True)} against {leader}"
    return f"{held.title}: reference {held.name} {against}{memory}."
