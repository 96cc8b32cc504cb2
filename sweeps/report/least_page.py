"""A run that seeks the least value that meets an objective: what each competitor needs."""

from __future__ import annotations

from collections.abc import Iterator

from hwmodel.description.units import number
from hwmodel.measure.student import LEVEL
from sweeps.analyse.figures import FIGURES, Figure
from sweeps.analyse.least import LeastFound
from sweeps.plan.least_sweep import LeastConstraint
from sweeps.report.account import Account
from sweeps.report.group_sections import lacking
from sweeps.report.sweep_page import inputs
from sweeps.run.findings import Findings
from sweeps.sections.chart import Axis, Lines, Series, band
from sweeps.sections.formats import (
    NONE,
    between,
    listed,
)  # fmt: skip
from sweeps.sections.section import Grid, Say

Found = list[LeastFound]


def account(findings: Findings[Found]) -> Account:
    """The least value for each competitor, and the metric along the axis."""
    kept, table = _kept(findings), findings.table
    said = list(_sentences(findings.own, kept.axis.split(".")[-1], _bound(kept)))
    note = Say(
        f"Least: from which on the means have {_bound(kept)}; surely: the whole"
        f" {100 * LEVEL:.0f} % intervals."
    )
    grid = _grid(findings)
    return Account(said, [*_charts(findings), grid, note], [grid], inputs(table), [*lacking(table)])


def _grid(found: Findings[Found]) -> Grid:
    every = dict.fromkeys(value for each in found.own for value in each.known)
    values = sorted(every, key=lambda value: number(_plain(value)) or 0.0)
    axis = _kept(found).axis.split(".")[-1]
    figure, several = _figure(_kept(found)), any(each.where for each in found.own)
    heads = [*["for"] * several, found.table.compared, f"least {axis}", "surely",
             *(f"{axis} {value}" for value in values)]  # fmt: skip
    rows = [
        [
            *[each.where] * several, each.name, str(each.value or NONE),
            str(each.sure or NONE),
            *(between(each.known[v], figure.text) if v in each.known else NONE for v in values),
        ]
        for each in found.own
    ]  # fmt: skip
    return Grid(figure.heading, heads, rows)


def _charts(found: Findings[Found]) -> Iterator[Lines]:
    kept = _kept(found)
    figure = _figure(kept)
    for where in dict.fromkeys(each.where for each in found.own):
        own = [each for each in found.own if each.where == where and len(each.known) > 1]
        if not own:
            continue
        lines = [
            band(each.name, [number(v) or 0.0 for v in map(_plain, each.known)],
                 [one.mapped(lambda value: figure.scale * value) for one in each.known.values()])
            for each in own
        ]  # fmt: skip
        every = [x for line in lines for x in line.x]
        bound = figure.scale * kept.bound
        lines.append(Series(_bound(kept), [min(every), max(every)], [bound, bound]))
        title = f"{figure.heading} against {kept.axis.split('.')[-1]}"
        yield Lines(f"{title}: {where}" if where else title, Axis(kept.axis, zero=False),
                    Axis(figure.heading, zero=False), lines, figure="least")  # fmt: skip


def _figure(kept: LeastConstraint) -> Figure:
    """How the metric is written."""
    known = (figure for figure in FIGURES if figure.metric == kept.metric)
    return next(known, Figure(kept.metric, kept.metric, 3))


def _bound(kept: LeastConstraint) -> str:
    """`SLO kept at least 95 %`."""
    figure = _figure(kept)
    what, _, unit = figure.heading.rpartition(" ")
    if unit not in ("%", "s", "ms"):
        what, unit = figure.heading, ""
    side = "at most" if kept.at_most is not None else "at least"
    return f"{what} {side} {figure.scale * kept.bound:g} {unit}".rstrip()


def _plain(text: str) -> float | str:
    """A value's label as it was written."""
    try:
        return float(text)
    except ValueError:
        return text


def _kept(found: Findings[Found]) -> LeastConstraint:
    return LeastConstraint.model_validate(found.table.config["least"])


def _sentences(found: list[LeastFound], axis: str, kept: str) -> Iterator[str]:
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
