"""The sentences of reports: each template turns a record of findings into one or a few.

What is found of a single cell, card or parameter is a column of the table beside them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from sweeps.analyse.best import MOST, WIDE, needed
from sweeps.analyse.crossing import Crossing
from sweeps.analyse.effects import Sensitivity
from sweeps.analyse.facts import Dependence, Gap, MetricChange, Reference, Turned, Verdict
from sweeps.analyse.figures import KV_MEMORY, limit_word
from sweeps.analyse.label import label
from sweeps.analyse.least import LeastFound
from sweeps.analyse.objective import SERVED, Objective
from sweeps.analyse.random_access import RandomAccess
from sweeps.analyse.statistics import Interval, grown
from sweeps.analyse.table import Table
from sweeps.analyse.variants import overrides, with_role
from sweeps.plan.atlas import COSTLY, Enough
from sweeps.plan.crossing_findings import Crossed, Crossings, Search
from sweeps.plan.odma_paper import ODMA
from sweeps.plan.paged_findings import Effects
from sweeps.plan.paper_findings import DatasetResult
from sweeps.plan.parameter import Parameter
from sweeps.plan.variant import AS_DESCRIBED
from sweeps.plan.what_if import Changes
from sweeps.report.formats import (
    at_most,
    between,
    counted,
    difference_text,
    effect,
    either_way,
    gain,
    hundred,
    listed,
    more,
    percent,
    ratio,
    share,
    size_text,
)  # fmt: skip
from sweeps.run.explanation import Explanation

_SHOWN = 3
"""Names that a sentence lists; tables have all."""
_SEEN = 0.0005
"""A cause that makes less of a gap is written as none."""
_DWARFS = 5.0
"""One effect makes a gap rather than another where it is more than this many times as large
(assumed)."""


# What every lead ends with


def conditions(table: Table) -> str:
    """What was run: model, requests, load, room, cuts, replications, as far as all of the run has
    them."""
    base, cases = table.config["base"], with_role(table.config, "case").values()
    paths = [*table.config["axes"], *(path for case in cases for path in overrides(case))]
    fixed = {k: v for k, v in base.items() if v and k not in {p.split(".")[0] for p in paths}}
    parts = [label(fixed[key]) for key in ("device", "model", "workload") if key in fixed]
    parts += _load(fixed.get("load") or fixed.get("arrivals"))
    parts += _serving(base.get("serving") or {}, paths)
    if slo := fixed.get("slo"):
        parts.append(
            f"SLO {listed(f'{key.upper()} {value}' for key, value in slo.items() if value)}"
        )
    if "requests" in fixed:
        parts.append(f"{fixed['requests']:,} requests")
    if table.config.get("objective"):
        parts.append(f"objective {table.objective.noun}")
    counts = [len(row.replications) for group in table.groups for row in group.rows]
    parts.append(counted(max(counts, default=0), "replication"))
    return f"Conditions: {', '.join(parts)}."


def _load(load: Any) -> list[str]:
    match load:
        case {"rate_per_s": float() | int() as rate}:
            return [f"{rate:g} requests/s"]
        case {"relative": float() | int() as times}:
            return [f"load {times:g} times the {load.get('of') or 'best'} capacity"]
        case {"goodput": {"ttft": ttft, "tpot": tpot}}:
            return [f"the largest load with TTFT {ttft} and TPOT {tpot}"]
        case {"process": "all_at_once"}:
            return ["all requests there from the start"]
        case {"process": "closed", "clients": clients}:
            return [f"{clients} clients"]
    return []


def _serving(serving: Any, paths: list[str]) -> list[str]:
    """Settings on which gaps between policies hang most, where the sweep gives them and varies
    none: room for KV, the longest answer, and the cap on requests that run."""
    said = {
        "kv_tokens": "KV of {:,} tokens", "engine.max_tokens": "answers of at most {:,} tokens",
        "engine.max_num_seqs": "at most {:,} requests at once",
    }  # fmt: skip
    found = []
    for path, text in said.items():
        value = serving
        for key in path.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        whole = f"serving.{path}"
        varied = any(whole == each or whole.startswith(f"{each}.") for each in paths)
        if isinstance(value, int) and not varied:
            found.append(text.format(value))
    return found


# A group, and groups together


def verdict(found: Verdict, compared: str = "policy") -> str:
    """Who leads, by how much and why."""
    words = {"won": _won, "close": _close, "undecided": _undecided, "alone": _alone}
    text = f"{found.title}: {words[found.outcome](found, compared)}"
    if found.missing:
        without = listed(_who(name, compared) for name in found.missing)
        text += f" {without}: no {found.objective.noun}{_why_none(found)}."
    return text


def _why_none(found: Verdict) -> str:
    """Why competitors have no value of a metric that grows with the run."""
    if found.objective.metric.startswith("at_share."):
        return " at latency_at, as the load is below capacity"
    return ", as the load is above capacity" * ("below capacity" in found.objective.needs)


def short(found: Verdict) -> str:
    """The outcome in a few words."""
    words = {"undecided": "undecided", "close": f"at most {share(WIDE)} apart"}
    return words.get(found.outcome) or (f"{found.best} wins" if found.best else "no results")


def _alone(found: Verdict, compared: str) -> str:
    who = _who(found.leader, compared)
    return f"only {who} has results." if found.leader else "no results yet."


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
    others = listed(names, "or") if len(names) <= _SHOWN else f"{len(names)} others"
    better = "less" if found.objective.less else found.objective.more
    text = f"{_rate(found, compared)}, not significantly {better} than {others}"
    count = min(gap.total.count for gap in found.close)
    if count < 2:
        return f"{text}{_free(found)}. One replication gives no interval: run three or more."
    bound = f": {at_most(found.within)} either way" if found.within < 1 else ""
    text += f"{bound}{_free(found)}.{_settled(count, found.needed)}"
    if not found.behind:
        return text
    rest = _gaps(found, found.behind, compared).removeprefix(",").removeprefix(";")
    does = "" if found.objective.less else f" {_who(found.leader, compared)} {_does(found)}"
    return f"{text}{does}{rest}."


def _does(found: Verdict) -> str:
    """`serves`, `carries`: what a competitor does, without a number."""
    return found.objective.says.split(" {}")[0].removesuffix(" at")


def _settled(count: int, wanted: int | None) -> str:
    """How many replications would make a difference significant, or bound it closely."""
    many = f"More than {MOST}" if wanted is None else f"About {wanted}"
    return f" {many} replications would settle it (now {count})."


def _rate(found: Verdict, compared: str) -> str:
    does = found.objective.says.format(found.objective.text(found.rate))
    return f"{_who(found.leader, compared)} {does}"


def _gaps(found: Verdict, gaps: list[Gap], compared: str) -> str:
    """How far behind the leader these are, after its rate."""
    word, rest = found.objective.more, len(gaps) - _SHOWN
    shown = [(gap, _who(gap.other, compared)) for gap in gaps[:_SHOWN]]
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


def outcomes(found: Sequence[Verdict], noun: str, turning: int = 0) -> str:
    """The outcomes counted; turning: how many of them are others under an assumption."""
    ranked = Counter(map(short, found)).most_common()
    told = ", ".join(f"{what} in {'all' if n == len(found) else n}" for what, n in ranked)
    free = sum(not each.bound for each in found)
    note = f" KV memory does not limit the best in {free}." if free else ""
    note += f" Another assumption changes {turning} of them." if turning else ""
    family = max((each.family for each in found), default=1)
    head = f"Of {counted(len(found), noun)}" + f" (corrected for {family})" * (family > 1)
    return f"{head}: {told}.{note}"


def dependence(found: Dependence) -> Iterator[str]:
    """Whether the winner depends on an axis; nothing where there is none."""
    winners, where = found.winners, f"{found.where}: " if found.where else ""
    every = [verdict for _, verdict in found.outcomes]
    best = every[0].objective.wins
    told = "; ".join(f"{value}: {short(each)}" for value, each in found.outcomes)
    if len(winners) == 1 and all(each.outcome == "won" for each in every):
        least = min((each.gaps[0] for each in every), key=lambda gap: gap.total.mean)
        lead = f"at least {more(least.total, least.other, named=True)}"
        if every[0].objective.less:
            lead = f"{least.other} at least {_excess(least.total, named=True)}"
        values = ", ".join(value for value, _ in found.outcomes)
        yield f"{where}{winners[0]} {best} for every {found.axis} ({values}), {lead}."
    elif winners and found.asked:
        told = "; ".join(f"{value}: {_lead(each)}" for value, each in found.outcomes)
        yield f"{where}{told}. Which {found.compared} {best} depends on the {found.axis}."
    elif len(winners) > 1:
        yield f"{where}undecided: the winner changes with {found.axis} ({told})."


def dependences(found: Sequence[Dependence]) -> str:
    """How often the winner is one along an axis, over the combinations of the others."""
    axis, best = found[0].axis, found[0].outcomes[0][1].objective.wins
    same: Counter[str] = Counter()
    changes = 0
    for each in found:
        if len(each.winners) > 1:
            changes += 1
        elif each.winners and all(verdict.outcome == "won" for _, verdict in each.outcomes):
            same[each.winners[0]] += 1
    told = [f"{who} {best} for every value in {n}" for who, n in same.most_common()]
    told += [f"the winner changes in {changes}"] * bool(changes)
    rest = len(found) - same.total() - changes
    told += [f"one or more are undecided in {rest}"] * bool(rest)
    return f"Along {axis}, of {counted(len(found), 'combination')} of the rest: {'; '.join(told)}."


def _lead(found: Verdict) -> str:
    if found.outcome != "won":
        return short(found)
    gap, objective = found.gaps[0], found.objective
    if objective.less:
        return f"{found.best} has the least, {gap.other} {_excess(gap.total, named=True)}"
    return f"{found.best} {_does(found)} {more(gap.total, gap.other, objective.more, named=True)}"


def turned(found: Turned) -> str:
    """Another outcome elsewhere."""
    told = "; ".join(f"{where}: {short(each)}" for where, each in found.outcomes.items())
    open_ = f"undecided: the winner changes with {found.assumption}"
    return f"{found.title}: {open_ if found.assumption else 'the outcome changes'} ({told})."


def reference(found: Reference, leader: str) -> str:
    """What a reference serves against the leader."""
    memory = ", both on memory without banks" if found.analytic else ""
    against = f"{gain(found.gains[leader], named=True)} against {leader}"
    return f"{found.title}: reference {found.name} {against}{memory}."


# Searches and changes


def what_if(found: Changes) -> Iterator[str]:
    """Who leads as described and what reverses that; then the largest effect on each."""
    where = f"{found.where}: " if found.where else ""
    for answer in found.answers:
        now = ratio(answer.levels[AS_DESCRIBED], named=True)
        yield f"{where}{answer.subject} is {now} as described. {_ranking(answer)}"
    moved = []
    for rate in found.rates:
        signs = rate.signs
        sure = [name for name in found.alone if signs.get(name)]
        if sure:
            largest = max(sure, key=lambda name: abs(rate.effects[name].mean))
            moved.append(f"{rate.subject} with {largest} {effect(rate.effects[largest])}")
    if moved:
        most = max(len(rate.effects) for rate in found.rates)
        family = f" (corrected for {counted(most, 'change')})"
        yield f"{where}Largest significant effects of one change{family}: {'; '.join(moved)}."
    yield from (f"{where}{text}" for text in _bound(found))


def _bound(found: Changes) -> Iterator[str]:
    """With which changes something else binds than as described."""
    for rate in found.rates:
        now = found.binds(AS_DESCRIBED, rate.subject)
        other: dict[str, list[str]] = {}
        for change in found.changes:
            binds = found.binds(change, rate.subject)
            if now and binds and binds != now:
                other.setdefault(binds, []).append(change)
        if now and other:
            told = "; ".join(f"{limit_word(b)} with {_some(names)}" for b, names in other.items())
            yield f"{rate.subject} is limited by {limit_word(now)} as described, by {told}."
        computing = found.computes(AS_DESCRIBED, rate.subject)
        turned = [
            f"{name} ({share(found.flops.get(name, {}).get(rate.subject, 0.0))})"
            for name in found.changes
            if found.computes(name, rate.subject) != computing
        ]
        if turned and rate.subject in found.flops.get(AS_DESCRIBED, {}):
            verb = "no longer take" if computing else "take"
            now_ = share(found.flops[AS_DESCRIBED][rate.subject])
            yield (
                f"FLOPs {verb} most of the step time of {rate.subject} with {_some(turned)};"
                f" as described {now_}."
            )


def _ranking(found: Sensitivity) -> str:
    """Which changes reverse or settle who leads."""
    now = found.levels[AS_DESCRIBED]
    signs = found.sides
    if now.count < 2:
        return "One replication gives no interval: run three or more."
    if now.sign == 0:
        sure = _some([name for name, sign in signs.items() if sign])
        text = f"except with {sure}" if sure else f"nor with any of {len(signs)} changes"
        return f"That is not significant, {text}.{_settled(now.count, needed(now))}"
    reverse = _some([name for name, sign in signs.items() if sign == -now.sign])
    level = _some([name for name, sign in signs.items() if sign == 0])
    text = f"Reversed by {reverse}." if reverse else f"None of {len(signs)} changes reverses it."
    return f"{text} Not significant with {level}." if level else text


def _some(names: Collection[str]) -> str:
    """The first of these names, and how many others; nothing of none."""
    rest = len(names) - _SHOWN
    return listed([*[*names][:_SHOWN], *([f"{rest} others"] if rest > 0 else [])])


def break_evens(found: Search) -> str:
    """The answer as described, and how many parameters cross."""
    where = f"{found.where}: " if found.where else ""
    counts = Counter(each.outcome for each in found.found)
    cross = [_crossing(each) for each in found.found if each.outcome == "crosses"]
    text = f"{where}{found.ratio} is {ratio(found.now, named=True)} as described."
    text += f" {len(cross)} of {counted(len(found.found), 'assumed parameter')}"
    text += " crosses" if len(cross) == 1 else " cross"
    text += " break-even within a plausible range."
    text += f" Crossings: {_some(cross)}." if cross else ""
    open_ = [f"{counts[each]} {each}" for each in ("undecided", "unfinished") if counts[each]]
    return f"{text} Of the others: {listed(open_)}." if open_ else text


def _crossing(found: Crossed) -> str:
    if found.crossing is None:
        return found.name
    return f"{found.name} at {crossing_text(found.crossing, found.parameter)}"


def crossing_text(crossing: Crossing, parameter: Parameter) -> str:
    """Where it crosses, with the values between which it is undecided."""
    if crossing.low is None and crossing.high is None:
        return f"{parameter.text(crossing.at)} (whole range)"
    low = f"below {parameter.at(0)}" if crossing.low is None else parameter.text(crossing.low)
    high = f"above {parameter.at(1)}" if crossing.high is None else parameter.text(crossing.high)
    return f"{parameter.text(crossing.at)} ({low} to {high})"


def answer(found: Crossings) -> Iterator[str]:
    """Who wins in how many cells, contiguous policies first; where paging ties; what disputes
    change."""
    if not found.cells:
        yield "No cell has results of all policies yet."
        return
    total = len(found.cells)
    won = {name: [c for c in found.cells if c.winner == name] for name in found.policies}
    first = True
    for name, cells in won.items():  # contiguous policies before the one that scatters KV
        if cells:
            leads = [cell.verdict.gaps[0].total for cell in cells if cell.verdict]
            least, most = (end(leads, key=lambda lead: lead.mean) for end in (min, max))
            lead = " to ".join(dict.fromkeys((gain(least, named=first), gain(most))))
            free = sum(not cell.verdict.bound for cell in cells if cell.verdict)
            note = f"; KV memory does not limit it in {free}" if free else ""
            family = f" (corrected for {total})" * first
            yield (
                f"{name} leads significantly in {len(leads)} of {total} combinations{family}, by"
                f" {lead}{note}."
            )
            first = False
    if none := [cell for cell in found.cells if cell.winner is None]:
        near = sum(cell.verdict.outcome == "close" for cell in none if cell.verdict)
        note = f"; in {near} the best differ by at most {share(WIDE)}" if near else ""
        yield f"No policy leads significantly in {len(none)} of {total} combinations{note}."
    yield from _ties(found)
    for noun, names in (("objection", found.objections), ("disputed assumption", found.readings)):
        if names:
            yield _disputes(found, noun, list(names))


def _ties(found: Crossings) -> Iterator[str]:
    """Where the first loses its lead."""
    ranges = [cell.found[0] for cell in found.cells]
    tied = sorted(each.at.mean for each in ranges if each.at)
    ends = " to ".join(dict.fromkeys(f"{each:.2f}" for each in (*tied[:1], *tied[-1:])))
    sides = Counter(each.side for each in ranges)
    told = [
        f"ties with the best of the others in {len(tied)}, where {ranges[0].name} is {ends}"
        if tied else "",
        f"is ahead at every value in {sides[1]}" if sides[1] else "",
        f"is behind at every value in {sides[-1]}" if sides[-1] else "",
    ]  # fmt: skip
    if any(told):
        where = f"Of {counted(len(found.cells), 'combination')}"
        yield f"{where}, {found.ours} {listed(filter(None, told))}."


def _disputes(found: Crossings, noun: str, names: list[str]) -> str:
    counts = {name: sum(name in cell.upheld for cell in found.under(name)) for name in names}
    several = len(names) > 1
    tests = sum(len(cell.pleas) for cell in found.cells)
    head = f"Changing {'each of ' * several}{counted(len(names), noun)} (corrected for {tests})"
    if not any(counts.values()):
        return f"{head} never changes the winner to another policy."
    most = max(counts, key=counts.__getitem__)
    total = len(found.under(most))
    where = f"{'at most ' * several}{counts[most]} of {total} combinations ({most})"
    return f"{head} changes the winner in {where}."


# Two runs


def inputs(asked: list[str], count: int, programs: Sequence[str]) -> str:
    """asked: what the runs were asked that differs; count: inputs that differ in all."""
    text = f"Inputs that differ: {_some(asked)}." if asked else "Inputs: the same."
    if count and not asked:
        text = f"Inputs: the same settings; descriptions differ in {counted(count, 'place')}."
    return f"{text} The programs differ in {listed(programs)}." if programs else text


def results(
    count: int, same: bool, changes: list[tuple[str, MetricChange]], objective: Objective = SERVED
) -> str:
    """count: points in both; same: bit for bit; changes: of the objective, by point."""
    if not count or same or not changes:
        text = f"the same, bit for bit, in all {count} points" if same else "other metrics differ"
        return f"Results: {text if count else 'the two have no point in common'}."
    ranked = sorted(changes, key=lambda item: (not item[1].change.sign, -abs(item[1].change.mean)))
    title, change = ranked[0]
    many = sum(bool(each.change.sign) for _, each in changes)
    what = f"{objective.words.split(',')[0]} {'change' if objective.is_rate else 'changes'}"
    head = f"{what} significantly in {many} of {counted(len(changes), 'point')}"
    if change.certain == "unknown":
        most = f"{gain(change.change)} in {title}"
        return f"{what} by at most {most}; one replication gives no interval."
    if many:
        return f"{head}, the most in {title}: {gain(change.change, named=True)}."
    return f"{head}: {either_way(max((c.change for _, c in changes), key=lambda i: i.half))}."


# Other kinds of runs


def paper(found: list[DatasetResult]) -> Iterator[str]:
    """How many of the ODMA paper's figures follow from its baselines, and the gain."""
    gains = [
        f"{percent(centre, True, 1, named=each is found[0])} on {each.name}"
        f" (paper: {hundred(each.gain, 0)} %)"
        for each in found
        if (centre := each.placements[-1].centre) is not None
    ]
    if gains:
        yield f"At the centre odma changes the throughput of static by {listed(gains)}."
    cells = [cell.meets(each.paper) for each in found for cell in each.cells]
    if cells and not any(cell.told for each in found for cell in each.cells):
        yield "One replication cannot tell which of the paper's figures are met: run three or more."
    elif cells:
        met = sum(len(names) == len(found[0].paper) for names in cells)
        yield f"All figures together are met at {met} of {len(cells)} length shapes and limits."
    if gains:
        last = [each.placements[-1] for each in found]
        low, high = min(each.low for each in last), max(each.high for each in last)
        wide = ": too wide to test the paper" if high - low > found[0].gain else ""
        ends = f"{hundred(low, 0)} to {hundred(high, 0)} %"
        yield f"Over the assumptions the mean gain is {ends}{wide}."


def paged(found: list[Effects]) -> Iterator[str]:
    """Which of capacity and layout makes paged's gaps, in ranges over all of them."""
    capacities = [each.capacity for each in found if each.capacity is not None]
    layouts = [each.layout for each in found if each.layout is not None]
    if not capacities or not layouts:
        yield "The effect of layout is not known without the analytic control."
        return
    first = [each for each in found if each.other == ODMA and each.bandwidth is None]
    leads = [f"{effect(each.gap, named=each is first[0])} on {each.name}" for each in first]
    if leads:
        yield f"As described paged changes the throughput of odma by {listed(leads)}."
    makes, count = _larger(capacities, layouts), counted(len(layouts), "comparison")
    yield (
        f"The gap of paged to contiguous reservation is {makes}. Over {count} capacity changes"
        f" throughput by {_range(capacities)}, layout by {_range(layouts)}."
    )
    if moved := [e.bandwidth for e in found if e.bandwidth is not None]:
        yield f"Other bandwidth changes the gaps of paged by {_range(moved)}."


def _larger(capacities: list[Interval], layouts: list[Interval]) -> str:
    """The larger of the two at its largest, among those that are significant."""
    sizes = {
        name: max((abs(each.mean) for each in effects if each.sign), default=0.0)
        for name, effects in (("layout", layouts), ("capacity", capacities))
    }
    less, most = sorted(sizes, key=sizes.__getitem__)
    if not sizes[most]:
        return "significant neither in capacity nor in layout"
    return f"{most}{', not' if sizes[less] * _DWARFS < sizes[most] else ' more than'} {less}"


def _range(effects: list[Interval]) -> str:
    """Means from the least to the most, and how many are not significant."""
    ends = [hundred(grown(end(each.mean for each in effects)), 1) for end in (min, max)]
    idle = sum(each.sign == 0 for each in effects)
    return f"{' to '.join(ends)} %" + (f" ({idle} not significant)" if idle else "")


def least(found: list[LeastFound], axis: str, kept: str) -> Iterator[str]:
    """What each competitor needs, place by place."""
    for where in dict.fromkeys(each.where for each in found):
        told = []
        for each in (one for one in found if one.where == where):
            if each.value is None:
                told.append(f"{each.name} not with any")
            else:
                least = f"{each.name} {each.value}"
                open_ = "" if each.sure == each.value else f" (surely: {each.sure or 'none'})"
                told.append(least + open_)
        yield f"{f'{where}: ' if where else ''}Least {axis} with {kept}: {listed(told)}."


def atlas(found: list[Enough]) -> Iterator[str]:
    """From which extents on layout costs little, on all memories."""
    sizes = {"As described": [each.described for each in found],
             "In the worst case": [each.worst for each in found]}  # fmt: skip
    for words, ends in sizes.items():
        if known := [size for size in ends if size is not None]:
            where = f"on {len(known)} of {counted(len(ends), 'memory')}"
            yield (
                f"{words}, extents of {size_text(max(known))} keep the cost of layout at"
                f" {share(COSTLY)} of throughput or less {where}."
            )


def explanation(found: Explanation) -> str:
    """The gap and its largest significant causes."""
    sure = sorted(
        (p for p in found.parts if p.forward.sign and abs(p.forward.mean) >= _SEEN),
        key=lambda p: -abs(p.forward.mean),
    )
    told = ", ".join(f"{part.words} {effect(part.forward)}" for part in sure[:_SHOWN])
    causes = f"Largest causes: {told}" if told else "No single cause is significant"
    total = more(found.total.mapped(grown), found.loser, named=True)
    return f"{found.group}: {found.winner} serves {total}. {causes}."


def random_access(found: RandomAccess) -> list[str]:
    """The answer with what turns it, where alpha reaches the threshold, what else limits."""

    def alpha(each: Interval, named: bool = False) -> str:
        return between(each, "{:.2f}".format, named=named)

    turning = [f"{alpha(each)} with {difference_text(condition, found.condition)}"
               for condition, each in found.flipping]  # fmt: skip
    turning += [f"{alpha(found.plausible[name])} with {name}" for name in found.turning]
    lines = [
        f"{found.place}: random extents of {size_text(found.extent)} reach"
        f" {alpha(found.alpha, True)} of sequential bandwidth: {found.answer} at a threshold of"
        f" {found.threshold:g}." + (f" It is {listed(turning)}." if turning else "")
    ]
    if found.quick:
        lines.append("Other extents, conditions and variants were not simulated.")
    elif found.reached_at is None:
        lines.append(f"No extent up to {size_text(found.longest)} reaches {found.threshold:g}.")
    else:
        reached = size_text(found.reached_at)
        lines.append(f"The smallest extent that reaches {found.threshold:g} is {reached}.")
    if found.descriptors is not None:
        size, cost = found.descriptors
        limit = f"DMA engines limit extents up to {size_text(size)}"
        lines.append(f"{limit}: {cost:g} ns per descriptor.")
    return lines
