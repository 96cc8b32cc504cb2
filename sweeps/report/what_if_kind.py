"""A run of what-ifs: what each change does to each competitor's rate, and to the answer.

The answer is the first competitor's rate over another's. An effect is a paired log ratio: of a rate
or an answer with the change over that without, on the same requests. Intervals are Student's t over
replications. `together` is held against the product of its parts, each alone.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

from sweeps.analyse.figures import Rate
from sweeps.analyse.label import label
from sweeps.analyse.rows import Record
from sweeps.analyse.statistics import LEVEL, Interval, grown, interval
from sweeps.analyse.table import Group, Table
from sweeps.analyse.verdict import judge
from sweeps.plan.variant import AS_DESCRIBED
from sweeps.plan.what_if import CHANGE, Sensitivity, Together, WhatIfSpec
from sweeps.report import change_phrases
from sweeps.report.chart import Bar, Tornado
from sweeps.report.formats import bare, effect, mean_text, ratio
from sweeps.report.group_sections import group_sections
from sweeps.report.kind import Kind
from sweeps.report.section import Block, Grid, Say, Section
from sweeps.report.trend import along

Logs = dict[int, float]
"""Replication -> natural logarithm of a rate, or of the ratio of two."""


@dataclass(frozen=True)
class Changes:
    """The changes at one combination of the axes that are not compared."""

    where: str
    base: Group
    rates: list[Sensitivity]
    """Of each competitor that has results, in the sweep's order."""
    answers: list[Sensitivity]
    """Of the first over each other."""
    changes: list[str]
    """Those that have results, the largest effect on any rate first; then conditions."""
    together: list[Together]
    unit: Rate

    @property
    def alone(self) -> list[str]:
        """The changes that are not several together."""
        several = [each.name for each in self.together]
        return [change for change in self.changes if change not in several]


def what_ifs(table: Table) -> list[Changes]:
    """What a run of what-ifs found, as far as it is there."""
    places = (
        (where, {str(group.others[CHANGE]): group for group in groups})
        for where, groups in along(table, CHANGE)
    )
    found = (_what_if(table, *place) for place in places if AS_DESCRIBED in place[1])
    return [each for each in found if each is not None]


def _what_if(table: Table, where: str, groups: dict[str, Group]) -> Changes | None:
    unit = table.rate
    combined = table.config.get("together") or {}
    conditions = table.config.get("conditions") or {}
    known = [c for c in (*table.config["changes"], *combined, *conditions) if c in groups]
    logs = {name: _logs(groups[name], unit.metric) for name in (AS_DESCRIBED, *known)}
    compared = map(label, table.config["axes"][table.config["compare"]])
    names = [name for name in compared if logs[AS_DESCRIBED].get(name)]
    if not names:
        return None
    rates = [
        _sensitivity(name, _of_rate, [(c, of.get(name, {})) for c, of in logs.items()], conditions)
        for name in names
    ]
    first, *rivals = names
    answers = [
        _sensitivity(f"{first} / {rival}", interval, [
            (c, _sum([(1, of.get(first, {})), (-1, of.get(rival, {}))])) for c, of in logs.items()
        ]) for rival in rivals
    ]  # fmt: skip
    sizes = {
        change: max(abs(rate.effects[change].mean) for rate in rates if change in rate.effects)
        for change in logs
        if any(change in rate.effects for rate in rates)
    }
    changes = sorted(sizes, key=lambda name: -sizes[name])
    together = []
    for name in changes:
        if parts := combined.get(name):
            effects = {rate.subject: rate.effects[name] for rate in rates if name in rate.effects}
            excess = [(1, logs[name].get(first, {})), (len(parts) - 1, logs[AS_DESCRIBED][first])]
            excess += [(-1, logs.get(part, {}).get(first, {})) for part in parts]
            values = [*_sum(excess).values()]
            together.append(
                Together(name, parts, effects, first, interval(values) if values else None)
            )
    answers = [each for each in answers if AS_DESCRIBED in each.levels]
    changes += [name for name in known if name in conditions]
    return Changes(where, groups[AS_DESCRIBED], rates, answers, changes, together, unit)


def _logs(group: Group, metric: str) -> dict[str, Logs]:
    """Competitor -> its rate's logarithms."""
    return {
        row.name: {
            r: math.log(v[0]) for r in row.replications
            if (v := row.values(metric, [r])) and v[0] > 0
        }
        for row in group.main()
    }  # fmt: skip


def _sum(parts: list[tuple[int, Logs]]) -> Logs:
    """A weighted sum in the replications that all of them have."""
    common = sorted(set.intersection(*(set(logs) for _, logs in parts)))
    return {r: math.fsum(weight * logs[r] for weight, logs in parts) for r in common}


def _of_rate(logs: list[float]) -> Interval:
    return interval(list(map(math.exp, logs)))


def _sensitivity(
    subject: str, level: Any, series: list[tuple[str, Logs]], apart: Collection[str] = ()
) -> Sensitivity:
    """Of one subject, whose logarithms are given by change; `apart` have no effect, but a level."""
    base = dict(series)[AS_DESCRIBED]
    effects = {
        change: interval([*moved.values()])
        for change, logs in series
        if change not in (AS_DESCRIBED, *apart) and (moved := _sum([(1, logs), (-1, base)]))
    }
    levels = {change: level([*logs.values()]) for change, logs in series if logs}
    return Sensitivity(subject, levels, effects)


def _sentences(found: Changes) -> Iterator[str]:
    where = f"{found.where}: " if found.where else ""
    for subjects, compared in ((found.answers, True), (found.rates, False)):
        for each in subjects:
            yield where + change_phrases.sensitivity(each, compared, found.alone)
    yield from (where + change_phrases.together(each) for each in found.together)
    yield judge(found.base).sentence


def _blocks(table: Table) -> Iterator[Block]:
    """Tornado charts and a table, a section a combination of the axes."""
    for found, grid in zip(what_ifs(table), _grids(table), strict=True):
        title = f"What if: {found.where}" if found.where else "What if"
        yield Section(title, [*_tornados(found), replace(grid, title=""), Say(_note(found))])


def _grids(table: Table) -> list[Grid]:
    """The base, then each change, the largest first: a table a combination of the axes."""
    return [
        Grid(found.where or table.name, *what_if_rows(table, found), dim=_idle(found))
        for found in what_ifs(table)
    ]


def _tornados(found: Changes) -> Iterator[Tornado]:
    note = (
        f"Change over the base, paired by replication; whiskers: {100 * LEVEL:.0f} % intervals."
        " To scale in logarithms. Pale: not significant."
    )
    titles = {rate.subject: f"{found.unit.words} of {rate.subject}" for rate in found.rates}
    for each in (*found.rates, *found.answers):
        ranked = sorted(
            ((c, each.effects[c]) for c in found.changes if c in each.effects),
            key=lambda item: -abs(item[1].mean),
        )
        bars = [Bar(name, gain.mapped(grown), gain.sign == 0) for name, gain in ranked]
        if bars:
            yield Tornado(f"{titles.get(each.subject, each.subject)}, change in %", bars, note)


def _idle(found: Changes) -> frozenset[int]:
    """Rows of changes without any significant effect."""
    subjects = (*found.rates, *found.answers)
    return frozenset(
        i
        for i, change in enumerate(found.changes, 1)
        if all(each.effects[change].sign == 0 for each in subjects if change in each.effects)
    )


def what_if_rows(table: Table, found: Changes) -> tuple[list[str], list[list[str]]]:
    """(headings, rows): the base, then each change, the largest first."""
    heads = ["change", "peak GB/s", "capacity GiB"]
    for rate in found.rates:
        heads += [f"{rate.subject} {found.unit.unit}", f"{rate.subject}, effect"]
    for answer in found.answers:
        heads += [answer.subject, "its effect"]
    return heads, [_row(table, found, change) for change in (AS_DESCRIBED, *found.changes)]


def _row(table: Table, found: Changes, change: str) -> list[str]:
    cells = [change, *_hardware(table, found, change)]
    for rate in found.rates:
        level = rate.levels.get(change)
        cells += [mean_text(level.mean if level else None), bare(effect(rate.effects.get(change)))]
    for answer in found.answers:
        level, moved = answer.levels.get(change), answer.effects.get(change)
        cells += [bare(ratio(level)), bare(effect(moved))]
    return cells


def _hardware(table: Table, found: Changes, change: str) -> list[str]:
    """Peak and capacity of the device with the change."""
    devices: dict[str, Any] = table.provenance.get("hardware", {}).get(change, {})
    name = label(found.base.others.get("device", table.config["base"].get("device", "")))
    known = devices.get(name) or (next(iter(devices.values())) if len(devices) == 1 else None)
    if not isinstance(known, dict):
        return ["–", "–"]
    return [f"{known['peak_gbps']:,.1f}", f"{known['capacity_bytes'] / 2**30:,.4g}"]


def _note(found: Changes) -> str:
    counts = [gain.count for rate in found.rates for gain in rate.effects.values()]
    return (
        f"(a to b): {100 * LEVEL:.0f} % intervals of ratios that are paired by replication, "
        f"n = {max(counts, default=0)} (Student's t on logarithms). Pale: no significant effect."
    )


class WhatIf(Kind):
    """What each change does to each competitor, and to the answer."""

    spec = WhatIfSpec

    def total(self, config: dict[str, Any], records: list[Record]) -> int:
        keys = ("changes", "together", "conditions")
        variants = 1 + sum(len(config.get(key) or {}) for key in keys)
        return variants * super().total(config, records)

    def sentences(self, table: Table) -> list[str]:
        """The answer and what reverses it, then what moves each competitor, for each combination
        of the axes; then the verdict on the base."""
        return [text for found in what_ifs(table) for text in _sentences(found)]

    def results(self, table: Table) -> list[Block]:
        base = [group for group in table.groups if group.others.get(CHANGE) == AS_DESCRIBED]
        blocks = [*_blocks(table), *group_sections(table, base)]
        changed = [g for g in table.groups if g not in base and CHANGE in g.others]
        if changed:
            inner = group_sections(table, changed, folded=True)
            blocks.append(Section("Each change", inner, folded=True))
        return blocks

    def grids(self, table: Table) -> list[Grid]:
        return _grids(table)

    def inputs(self, table: Table) -> list[list[str]]:
        changes = self.named(table, "change", "changes")
        changes += self.named(table, "condition", "conditions")
        together = table.config.get("together") or {}
        rows = [[f"together {name}", ", ".join(parts)] for name, parts in together.items()]
        return [*super().inputs(table), *changes, *rows]
