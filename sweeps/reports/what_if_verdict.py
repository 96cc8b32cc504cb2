"""What a run of what-ifs says: what each change does to each competitor's rate, and to the answer.

An effect is a paired log ratio: of a competitor's rate with the change over its rate without, on
the same requests; of the answer, the first competitor's rate over another's, likewise. Intervals
are Student's t over replications. `together` is held against the product of its parts, each alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from sweeps.experiments.sweep import label
from sweeps.experiments.variant import AS_DESCRIBED
from sweeps.experiments.what_if import CHANGE
from sweeps.render.chart import Bar, Tornado
from sweeps.render.section import Block, Grid, Say, Section
from sweeps.reports.table import Group, Row, Table
from sweeps.reports.verdict import judge
from sweeps.results.figures import Rate
from sweeps.results.statistics import LEVEL, Interval, grown, interval

_TOLD = 3
"""Changes that a sentence names."""
Logs = dict[int, float]
"""Replication -> natural logarithm of a rate."""


@dataclass(frozen=True)
class Effect:
    """One change. All intervals are of natural logarithms."""

    name: str
    rates: dict[str, float]
    """Competitor -> mean rate with the change."""
    gains: dict[str, Interval]
    """Competitor -> its rate with the change over its rate without."""
    answers: dict[str, Interval] = field(default_factory=dict)
    """Rival -> the first competitor's rate over the rival's, with the change."""
    turns: dict[str, Interval] = field(default_factory=dict)
    """Rival -> the same over what it is without."""
    excess: Interval | None = None
    """Of changes made together: the first competitor's gain over the product of those of the parts,
    each alone."""

    @property
    def size(self) -> float:
        """By how much it moves the rate that it moves most."""
        return max((abs(gain.mean) for gain in self.gains.values()), default=0.0)


@dataclass(frozen=True)
class WhatIf:
    """The changes at one combination of the axes that are not compared, the largest first."""

    where: str
    base: Group
    names: list[str]
    """Competitors that have results, in the sweep's order."""
    rates: dict[str, float]
    answers: dict[str, Interval]
    """As `Effect` has them, without a change."""
    effects: list[Effect]
    rate: Rate

    @property
    def first(self) -> str:
        return self.names[0]


def what_ifs(table: Table) -> list[WhatIf]:
    """What a run of what-ifs found, as far as it is there."""
    places: dict[str, dict[str, Group]] = {}
    for group in table.groups:
        rest = {path: value for path, value in group.others.items() if path != CHANGE}
        change = str(group.others.get(CHANGE))
        places.setdefault(json.dumps(rest, sort_keys=True, default=str), {})[change] = group
    found = [
        _what_if(table, ", ".join(map(label, json.loads(key).values())), groups)
        for key, groups in places.items()
        if AS_DESCRIBED in groups
    ]
    return [each for each in found if each is not None]


def _what_if(table: Table, where: str, groups: dict[str, Group]) -> WhatIf | None:
    rate = table.rate
    logs = {name: _logs(group, rate.metric) for name, group in groups.items()}
    base = logs[AS_DESCRIBED]
    names = [name for name in map(label, table.config["axes"][table.config["compare"]])
             if base.get(name)]  # fmt: skip
    if not names:
        return None
    together = table.config.get("together") or {}
    effects = []
    for change in [*table.config["changes"], *together]:
        if change in logs and (effect := _effect(change, logs[change], base, names)):
            alone = [logs.get(part, {}).get(names[0], {}) for part in together.get(change, [])]
            mine = logs[change].get(names[0], {})
            effects.append(replace(effect, excess=_excess(mine, alone, base[names[0]])))
    effects.sort(key=lambda effect: -effect.size)
    rates = {name: _mean(base[name]) for name in names}
    group = groups[AS_DESCRIBED]
    return WhatIf(where, group, names, rates, _answers(base, names), effects, rate)


def _logs(group: Group, metric: str) -> dict[str, Logs]:
    """Competitor -> its rate's logarithms."""

    def of(row: Row) -> Logs:
        values = {r: row.values(metric, [r]) for r in row.replications}
        return {r: math.log(v[0]) for r, v in values.items() if v and v[0] > 0}

    return {row.name: of(row) for row in group.main()}


def _mean(logs: Logs) -> float:
    return math.fsum(map(math.exp, logs.values())) / len(logs)


def _effect(
    change: str, logs: dict[str, Logs], base: dict[str, Logs], names: list[str]
) -> Effect | None:
    gains = {n: found for n in names if (found := _over([logs.get(n, {}), base[n]], (1, -1)))}
    if not gains:
        return None
    first, *rivals = names
    turns = {
        rival: found
        for rival in rivals
        if (found := _over(
            [logs.get(first, {}), logs.get(rival, {}), base[first], base[rival]], (1, -1, -1, 1)
        ))
    }  # fmt: skip
    rates = {name: _mean(logs[name]) for name in gains}
    return Effect(change, rates, gains, _answers(logs, names), turns)


def _answers(logs: dict[str, Logs], names: list[str]) -> dict[str, Interval]:
    first, *rivals = names
    return {
        rival: found
        for rival in rivals
        if (found := _over([logs.get(first, {}), logs.get(rival, {})], (1, -1)))
    }


def _excess(mine: Logs, alone: list[Logs], base: Logs) -> Interval | None:
    """ln of what changes do together over the product of what each does alone."""
    if not alone:
        return None
    return _over([mine, base, *alone], (1, len(alone) - 1, *(-1 for _ in alone)))


def _over(series: list[Logs], signs: tuple[int, ...]) -> Interval | None:
    """The interval of a sum of logarithms over the replications that all of them have."""
    common = sorted(set.intersection(*(set(logs) for logs in series)))
    if not common:
        return None
    return interval(
        [math.fsum(s * logs[r] for s, logs in zip(signs, series, strict=True)) for r in common]
    )


def what_if_sentences(table: Table) -> list[str]:
    """The answer and what turns it, then what moves each competitor, for each combination of the
    axes; then the verdict on the base."""
    return [text for found in what_ifs(table) for text in _sentences(table, found)]


def _sentences(table: Table, found: WhatIf) -> Iterator[str]:
    where = f"{found.where}: " if found.where else ""
    together = table.config.get("together") or {}
    alone = [effect for effect in found.effects if effect.name not in together]
    for rival in found.answers:
        yield f"{where}{_answer(found, rival, alone)}"
    for name in found.names:
        yield f"{where}{_largest(name, [(e.name, e.gains.get(name)) for e in alone])}"
    for effect in found.effects:
        if effect.name in together:
            yield f"{where}{_together(found, effect, together[effect.name])}"
    yield judge(found.base).sentence


def _largest(subject: str, effects: list[tuple[str, Interval | None]]) -> str:
    """Which changes move something most, and how many may not move it at all."""
    moved = [(name, gain) for name, gain in effects if gain is not None]
    sure = [item for item in moved if item[1].sign != 0]
    sure.sort(key=lambda item: -abs(item[1].mean))
    idle = len(moved) - len(sure)
    unsure = f"{idle} of {len(moved)} changes may do nothing" if idle else ""
    if not sure:
        return f"{subject} may stay as it is: {unsure or 'no change has a result yet'}."
    told = "; ".join(f"{name} {signed(gain)}" for name, gain in sure[:_TOLD])
    which = "is moved by" if len(sure) <= _TOLD else "is moved most by"
    return f"{subject} {which} {told}{f'; {unsure}' if unsure else ''}."


def _answer(found: WhatIf, rival: str, alone: list[Effect]) -> str:
    subject = f"{found.first} over {rival}"
    now = found.answers[rival]
    text = f"{subject} is {ratio(now)} as described; "
    text += _largest("it", [(effect.name, effect.turns.get(rival)) for effect in alone])
    levels = [(e.name, e.answers[rival]) for e in found.effects if rival in e.answers]
    if now.sign == 0:
        decided = [name for name, level in levels if level.sign != 0]
        which = listed(decided) if decided else "none of the changes"
        return f"{text} Undecided as described, it is decided by {which}."
    other = [name for name, level in levels if level.sign == -now.sign]
    open_ = [name for name, level in levels if level.sign == 0]
    text += f" Turned by {listed(other)}." if other else " None of the changes turns it."
    return f"{text} Undecided with {listed(open_)}." if open_ else text


def _together(found: WhatIf, effect: Effect, parts: list[str]) -> str:
    gains = ", ".join(f"{name} {signed(gain)}" for name, gain in effect.gains.items())
    text = f"{effect.name} ({', '.join(parts)}): {gains}"
    if effect.excess is None:
        return f"{text}."
    how = signed(effect.excess)
    if effect.excess.sign == 0:
        return f"{text}; for {found.first} as each alone would make it ({how})."
    more = "more" if effect.excess.sign > 0 else "less"
    return f"{text}; for {found.first} {more} than each alone would make it ({how})."


def what_if_blocks(table: Table) -> Iterator[Block]:
    """Tornado charts and a table, a section a combination of the axes."""
    for found, grid in zip(what_ifs(table), what_if_grids(table), strict=True):
        title = f"What if: {found.where}" if found.where else "What if"
        yield Section(title, [*_tornados(found), replace(grid, title=""), Say(_note(found))])


def what_if_grids(table: Table) -> list[Grid]:
    """The base, then each change, the largest first: a table a combination of the axes."""
    return [
        Grid(found.where or table.name, *what_if_rows(table, found), dim=_idle(found))
        for found in what_ifs(table)
    ]


def _tornados(found: WhatIf) -> Iterator[Tornado]:
    note = (
        f"Change over the base, paired by replication; whiskers: {100 * LEVEL:.0f} % intervals."
        " To scale in logarithms. Pale: may be nothing."
    )
    for name in found.names:
        gains = {e.name: e.gains[name] for e in found.effects if name in e.gains}
        if gains:
            yield Tornado(f"{found.rate.words} of {name}, change in %", _bars(gains), note)
    for rival in found.answers:
        turns = {e.name: e.turns[rival] for e in found.effects if rival in e.turns}
        if turns:
            yield Tornado(f"{found.first} / {rival}, change in %", _bars(turns), note)


def _bars(effects: dict[str, Interval]) -> list[Bar]:
    ranked = sorted(effects.items(), key=lambda item: -abs(item[1].mean))
    return [Bar(name, gain.mapped(grown), gain.sign == 0) for name, gain in ranked]


def _idle(found: WhatIf) -> frozenset[int]:
    """Rows of changes that may do nothing to anything."""
    return frozenset(
        i
        for i, effect in enumerate(found.effects, 1)
        if all(each.sign == 0 for each in (*effect.gains.values(), *effect.turns.values()))
    )


def what_if_rows(table: Table, found: WhatIf) -> tuple[list[str], list[list[str]]]:
    """(headings, rows): the base, then each change, the largest first."""
    heads = ["change", "peak GB/s", "capacity GiB"]
    for name in found.names:
        heads += [f"{name} {found.rate.unit}", f"{name}, effect"]
    for rival in found.answers:
        heads += [f"{found.first} / {rival}", "its effect"]
    bare = Effect(AS_DESCRIBED, found.rates, {}, found.answers)
    return heads, [_row(table, found, effect) for effect in (bare, *found.effects)]


def _row(table: Table, found: WhatIf, effect: Effect) -> list[str]:
    cells = [effect.name, *_hardware(table, found, effect.name)]
    for name in found.names:
        mean = effect.rates.get(name)
        cells += ["–" if mean is None else f"{mean:,.1f}", signed(effect.gains.get(name))]
    for rival in found.answers:
        cells += [ratio(effect.answers.get(rival)), signed(effect.turns.get(rival))]
    return cells


def _hardware(table: Table, found: WhatIf, change: str) -> list[str]:
    """Peak and capacity of the device with the change."""
    devices: dict[str, Any] = table.provenance.get("hardware", {}).get(change, {})
    name = label(found.base.others.get("device", table.config["base"].get("device", "")))
    known = devices.get(name) or (next(iter(devices.values())) if len(devices) == 1 else None)
    if not isinstance(known, dict):
        return ["–", "–"]
    return [f"{known['peak_gbps']:,.1f}", f"{known['capacity_bytes'] / 2**30:,.4g}"]


def _note(found: WhatIf) -> str:
    counts = [gain.count for effect in found.effects for gain in effect.gains.values()]
    return (
        f"(a to b): {100 * LEVEL:.0f} % intervals of ratios that are paired by replication, "
        f"n = {max(counts, default=0)} (Student's t on logarithms). Pale: may do nothing at all."
        " Another memory changes the peak; the capacity stays unless a change sets it."
    )


def signed(found: Interval | None) -> str:
    """A log ratio as `+85 % (80 to 90)`; tenths where they are of interest."""
    if found is None:
        return "–"
    digits = 0 if abs(found.mean) >= 0.1 else 1

    def hundred(log: float) -> float:
        return round(100 * grown(log), digits) + 0.0

    mean = f"{hundred(found.mean):+,.{digits}f} %"
    if not math.isfinite(found.half):
        return mean
    return f"{mean} ({hundred(found.low):,.{digits}f} to {hundred(found.high):,.{digits}f})"


def ratio(found: Interval | None) -> str:
    """A log ratio as `1.78 (1.70 to 1.87)`."""
    if found is None:
        return "–"
    mean = f"{math.exp(found.mean):.3g}"
    if not math.isfinite(found.half):
        return mean
    return f"{mean} ({math.exp(found.low):.3g} to {math.exp(found.high):.3g})"


def listed(items: list[str]) -> str:
    """Words with commas, and an `and` before the last."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
