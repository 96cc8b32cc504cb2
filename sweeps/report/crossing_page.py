"""A run of crossings: the value of each assumed number at which the leader of two competitors
changes, or that there is none within its plausible range; of several, a map of who leads where."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hwmodel.measure.student import LEVEL
from sweeps.analyse.crossing import Edge
from sweeps.analyse.label import label
from sweeps.analyse.rows import at
from sweeps.analyse.statistics import Interval
from sweeps.analyse.table import DOES_NOT_FIT, Table
from sweeps.plan.crossing_findings import Crossed, Crossings, Search
from sweeps.plan.evaluations import PARAMETER, VALUE, Value
from sweeps.plan.parameter import Parameter
from sweeps.plan.variant import AS_DESCRIBED
from sweeps.report import crossing_map
from sweeps.report import crossing_sentences as sentences
from sweeps.report.account import Account, in_words
from sweeps.report.group_sections import group_sections, lacking
from sweeps.report.sweep_page import accounted, inputs
from sweeps.run.findings import Findings
from sweeps.sections.chart import Axis, Bar, Bars, Lines, Series, band
from sweeps.sections.formats import NONE, ratio
from sweeps.sections.section import Block, Grid, Say, Section


def over_places(searches: list[Search]) -> Iterator[Bars]:
    """The break-even of each range, a bar a place; to the end of the range where there is none."""
    for i, first in enumerate(searches[0].numbers if len(searches) > 1 else ()):
        parameter = first.parameter
        if not parameter.range:
            continue
        unit = f", {parameter.unit}" if parameter.unit else ""
        each = [(search, search.numbers[i]) for search in searches]
        bars = [bar for search, one in each if (bar := _bar(search, one)) is not None]
        if not bars:
            continue
        yield Bars(
            f"{first.name}{unit}, at which {searches[0].ratio} is {parameter.ratio:g}", bars,
            f"Whisker: where its {100 * LEVEL:.0f} % interval holds that. Pale: no break-even up to"
            f" {parameter.at(1)}, or from {parameter.at(0)} on.", 2, figure="break-even",
        )  # fmt: skip


def _bar(search: Search, one: Crossed) -> Bar | None:
    """None while it is unfinished, and where it does not fit."""
    if one.outcome in ("unfinished", "does not fit"):
        return None
    parameter, where = one.parameter, one.at
    if where is None:
        ahead = parameter.beyond(one.answers[parameter.at(1)]).mean > 0
        value = float(parameter.number(1 if ahead else 0))
        where = Interval(value, value, value, next(iter(one.answers.values())).count)
    return Bar(search.where, where, dim=one.crossing is None)


def _rows(table: Table, search: Search, each: Crossed) -> Iterator[list[str]]:
    parameter, found = each.parameter, each.answers
    heads = [each.name, described(table, parameter)]
    for value in parameter.variants:
        there = _there(each, value)
        outcome = DOES_NOT_FIT if value in each.unfit else _of_choice(each, found.get(value))
        yield [*heads, value, NONE, there, NONE, outcome, str(int(value in found))]
    if parameter.range:
        low, high = parameter.at(0), parameter.at(1)
        outcome = each.outcome
        if each.crossing:
            outcome = sentences.crossing_text(each.crossing, parameter)
        if each.edge:
            outcome += f", {_edge(each.edge, parameter, search.pair)}"
        if parameter.ratio != 1:
            outcome = f"{parameter.ratio:g}: {outcome}"
        ends = (_there(each, end) for end in (low, high))
        yield [*heads, str(low), str(high), *ends, outcome, str(len(found))]


def _there(each: Crossed, value: Value) -> str:
    """The ratio at a value."""
    return DOES_NOT_FIT if value in each.unfit else ratio(each.answers.get(value))


def _edge(edge: Edge, parameter: Parameter, pair: list[str]) -> str:
    """From where on one leads significantly."""
    side = f"{'above' if edge.above else 'below'} {parameter.text(edge.at)}"
    if parameter.ratio == 1:
        return f"{pair[0 if edge.ahead else 1]} leads significantly {side}"
    return f"significantly {'more' if edge.ahead else 'less'} than {parameter.ratio:g} {side}"


def _of_choice(each: Crossed, answer: Interval | None) -> str:
    """What one choice does to the answer."""
    if answer is None:
        return "unfinished"
    signs = {each.parameter.beyond(found).sign for found in (each.base, answer) if found}
    return "undecided" if 0 in signs else "crosses" if len(signs) > 1 else "no crossing"


def described(table: Table, parameter: Parameter) -> str:
    """What the description has instead, where it is known."""
    if parameter.set:
        return NONE
    paths = {path for variant in parameter.variants.values() for path in variant.set}
    keys = (parameter.path or (paths.pop() if len(paths) == 1 else "")).split(".")
    if keys[0] != "device_set":
        return _at(table.config["base"], keys)
    devices = (table.config.get("resolved") or {}).get("devices") or {}
    device: dict[str, Any] = next(iter(devices.values()), {})
    found = (_at(device.get(kind), keys[1:]) for kind in ("memory", "accelerator"))
    return next((text for text in found if text != NONE), NONE)


def _at(data: Any, keys: list[str]) -> str:
    found = at(data, *keys)
    return NONE if found is None or isinstance(found, (dict, list)) else label(found)


def _chart(search: Search, each: Crossed) -> Lines:
    """The answer over the range."""
    parameter, found = each.parameter, each.answers
    x = [parameter.number_of(value) for value in found]
    unit = f", {parameter.unit}" if parameter.unit else ""
    return Lines(
        f"{search.ratio} against {each.name}",
        Axis(f"{each.name}{unit}", "log" if parameter.log else "linear", zero=False),
        Axis(search.ratio, zero=False),
        [
            band(search.ratio, x, [answer.mapped(math.exp) for answer in found.values()]),
            Series("break-even", x, [parameter.ratio] * len(x)),
        ],
        f"Band: {100 * LEVEL:.0f} % interval.",
        figure="against",
    )


def _every(table: Table, search: Search) -> Grid:
    objective = table.objective
    groups = {
        (group.others.get(PARAMETER), group.others.get(VALUE)): group
        for group in table.groups
        if {k: v for k, v in group.others.items() if k not in (PARAMETER, VALUE)} == search.place
    }
    rows = []
    for each in search.numbers:
        for value, answer in each.answers.items():
            means = {r.name: r.mean(objective.metric) for r in groups[each.name, value].main()}
            found = (means.get(name) for name in search.pair)
            cells = [NONE if mean is None else objective.text(mean) for mean in found]
            rows.append([each.name, str(value), *cells, ratio(answer)])
    heads = ["number", "value", *(f"{name} {objective.unit}" for name in search.pair), search.ratio]
    return Grid("", heads, rows)


def _note(table: Table) -> str:
    count = table.config["base"].get("replications")
    return (
        f"Ratios are geometric means of {count} replications that serve the same requests, paired;"
        f" (a to b): {100 * LEVEL:.0f} % intervals. A break-even is interpolated where the mean is"
        " 1 (or what stands before it), its interval where the ends of the ratio's interval are."
        " `no crossing`: significantly on one side at both ends and as described, and so between"
        " them if the ratio is monotonic;"
        " what lies between was not simulated. `undecided`: not significant at one of these."
        " Choices are tried one by one."
        + " `does not fit`: one of the two has no room there, and the range is searched no further."
        * bool(table.misfits)
    )


def account(findings: Findings[Crossings]) -> Account:
    """Where each number turns the answer, or that it does not in its plausible range; of a map who
    leads where."""
    table, own = findings.table, findings.own
    given = (table.config.get("crossing") or {}).items()
    rows = [[f"crossing of {name}", in_words(value)] for name, value in given]
    if own.is_map:
        grids = crossing_map.grids(own)
        made = Account([*sentences.answer(own)], crossing_map.blocks(own, grids), grids,
                       inputs(table), list(lacking(table)))  # fmt: skip
    else:
        grids = [_grid(table, search) for search in own.searches]
        said = [sentences.break_evens(search) for search in own.searches]
        made = accounted(findings, said, _results(findings, grids), grids)
    return replace(made, inputs=[*made.inputs, *rows])


def _grid(table: Table, search: Search) -> Grid:
    """A row for each range and for each choice."""
    heads = ["number", "as described", "least, or choice", "most", f"{search.ratio} there",
             f"{search.ratio} at most", "break-even", "values"]  # fmt: skip
    return Grid(
        search.where, heads, [r for each in search.numbers for r in _rows(table, search, each)]
    )


def _results(found: Findings[Crossings], grids: list[Grid]) -> list[Block]:
    """Where there are several places each range over all of them; then, for each place, a table of
    break-evens, a chart for each range, and every value."""
    table, searches = found.table, found.own.searches
    blocks: list[Block] = [*over_places(searches)]
    for search, grid in zip(searches, grids, strict=True):
        title = f"Break-evens: {search.where}" if search.place else "Break-evens"
        ranges = (each for each in search.numbers if each.parameter.range and len(each.answers) > 1)
        charts = [_chart(search, each) for each in ranges]
        every = Section("Every value that was simulated", [_every(table, search)], True)
        blocks.append(Section(title, [grid, Say(_note(table)), *charts, every]))
    base = [group for group in table.groups if group.others.get(PARAMETER) == AS_DESCRIBED]
    return [*blocks, *group_sections(found, base)]
