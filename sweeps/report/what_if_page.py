"""A run of what-ifs: what each change does to each competitor's rate, and to the answer.

The answer is the first competitor's rate over another's. An effect is a paired log ratio: of a rate
or an answer with the change over that without, on the same requests. Intervals are Student's t over
replications. `together` is held against the product of its parts, each alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeGuard

from hwmodel.measure.student import LEVEL
from sweeps.analyse.figures import limit_texts
from sweeps.analyse.label import label
from sweeps.analyse.statistics import Interval, grown
from sweeps.analyse.table import Table
from sweeps.plan.variant import AS_DESCRIBED
from sweeps.plan.what_if import CHANGE, SMALL, Changes
from sweeps.report.account import Account
from sweeps.report.change_sentences import what_if
from sweeps.report.group_sections import group_sections
from sweeps.report.sweep_page import accounted
from sweeps.run.findings import Findings
from sweeps.sections.chart import Bar, Bars
from sweeps.sections.formats import NONE, effect, ratio, share
from sweeps.sections.section import Block, Grid, Say, Section


def _tornados(found: Changes) -> Iterator[Bars]:
    note = (
        f"Change over the base, paired by replication; whiskers: {100 * LEVEL:.0f} % intervals."
        " To scale in logarithms. Pale: not significant (corrected for the number of changes)."
    )
    titles = {rate.subject: f"{found.unit.words} of {rate.subject}" for rate in found.rates}
    for each in (*found.rates, *found.answers):
        ranked = sorted(
            ((c, gain) for c in found.changes if _of(gain := each.effects.get(c))),
            key=lambda item: -abs(item[1].mean),
        )
        signs = each.signs
        bars = [Bar(name, gain.mapped(grown), signs[name] == 0) for name, gain in ranked]
        if bars:
            title = f"{titles.get(each.subject, each.subject)}, change in %"
            yield Bars(title, bars, note, relative=True, figure="tornado")


def _of(gain: Interval | None) -> TypeGuard[Interval]:
    """Whether there is an effect: a change of one competitor leaves the others as they are."""
    return gain is not None and (gain.low, gain.high) != (0.0, 0.0)


def _ranking(found: Changes) -> Grid:
    """The changes that matter, the largest first, then those that do not, with what each does."""
    every = [*found.rates, *found.answers]
    words = {"small": f"below {share(SMALL)}"}
    rows = [
        [change, words.get(group, group), *(effect(each.effects.get(change)) for each in every)]
        for group, changes in found.ranked.items() for change in changes
    ]  # fmt: skip
    heads = ["change", "group", *(f"effect on {each.subject}" for each in every)]
    matter = len(found.ranked["matters"])
    return Grid(found.where, heads, rows, dim=frozenset(range(matter, len(rows))))


def _idle(found: Changes) -> frozenset[int]:
    """Rows of changes without any significant effect."""
    every = [each.signs for each in (*found.rates, *found.answers)]
    return frozenset(
        i
        for i, change in enumerate(found.changes, 1)
        if not any(signs.get(change) for signs in every)
    )


def _table(table: Table, found: Changes) -> tuple[list[str], list[list[str]]]:
    """(headings, rows): the base, then each change, the largest first."""
    heads = ["change", "peak GB/s", "capacity GiB"]
    for rate in found.rates:
        heads += [f"{rate.subject} {found.unit.unit}", f"{rate.subject}, effect"]
        heads += [f"{rate.subject}, limit"] * bool(found.binds(AS_DESCRIBED, rate.subject))
    for answer in found.answers:
        heads += [answer.subject, "its effect"]
    if found.together:
        heads.append(f"{found.together[0].subject}, over the product of its parts")
    return heads, [_row(table, found, change) for change in (AS_DESCRIBED, *found.changes)]


def _row(table: Table, found: Changes, change: str) -> list[str]:
    cells = [change, *_hardware(table, found, change)]
    for rate in found.rates:
        level = rate.levels.get(change)
        cells += [found.unit.text(level.mean) if level else NONE, effect(rate.effects.get(change))]
        if found.binds(AS_DESCRIBED, rate.subject):
            shares = found.limits.get(change, {}).get(rate.subject, {})
            flops = found.flops.get(change, {}).get(rate.subject)
            told = [
                *limit_texts(shares)[:1],
                *([f"FLOPs {share(flops)} of steps"] if flops else []),
            ]
            cells.append(", ".join(told) or NONE)
    for answer in found.answers:
        level, moved = answer.levels.get(change), answer.effects.get(change)
        cells += [ratio(level), effect(moved)]
    if found.together:
        excess = {each.name: each.excess for each in found.together}
        cells.append(effect(excess.get(change)))
    return cells


def _hardware(table: Table, found: Changes, change: str) -> list[str]:
    """Peak and capacity of the device with the change."""
    devices: dict[str, Any] = table.provenance.get("hardware", {}).get(change, {})
    name = label(found.base.others.get("device", table.config["base"].get("device", "")))
    known = devices.get(name) or (next(iter(devices.values())) if len(devices) == 1 else None)
    if not isinstance(known, dict):
        return [NONE, NONE]
    return [f"{known['peak_gbps']:,.1f}", f"{known['capacity_bytes'] / 2**30:,.4g}"]


def _note(found: Changes) -> str:
    counts = [gain.count for rate in found.rates for gain in rate.effects.values()]
    return (
        f"(a to b): {100 * LEVEL:.0f} % intervals of ratios that are paired by replication, "
        f"n = {max(counts, default=0)} (Student's t on logarithms), each by itself. Pale: no"
        " significant effect. What is significant, and who is ahead with a change, is corrected for"
        f" the {len(found.changes)} rows of a column (Holm). Limit: what keeps the batch from"
        " growing most of the time, and the share of step time in which FLOPs take longer than"
        " bytes."
    )


def account(findings: Findings[list[Changes]]) -> Account:
    """Which changes matter and what reverses the answer, for each combination of the axes; a
    ranking, charts of effects and a table for each, then all figures."""
    said = [text for each in findings.own for text in what_if(each)]
    rankings = [_ranking(each) for each in findings.own]
    tables = [Grid("", *_table(findings.table, each), dim=_idle(each)) for each in findings.own]
    results = _results(findings, rankings, tables)
    return accounted(findings, said, results, [*rankings, *tables])


def _results(
    found: Findings[list[Changes]], rankings: list[Grid], tables: list[Grid]
) -> list[Block]:
    blocks: list[Block] = []
    for each, ranking, table in zip(found.own, rankings, tables, strict=True):
        title = f"What if: {each.where}" if each.where else "What if"
        figures = Section("Figures with each change", [table], folded=True)
        blocks.append(Section(title, [ranking, Say(_note(each)), *_tornados(each), figures]))
    groups = found.table.groups
    base = [group for group in groups if group.others.get(CHANGE) == AS_DESCRIBED]
    changed = [g for g in groups if g not in base and CHANGE in g.others]
    blocks += group_sections(found, base)
    if changed:
        inner = group_sections(found, changed, folded=True)
        blocks.append(Section("Each change", inner, folded=True))
    return blocks
