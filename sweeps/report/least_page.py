"""A run that seeks the least value that meets an objective: what each competitor needs."""

from __future__ import annotations

from collections.abc import Iterator

from hwmodel.description.units import number
from hwmodel.measure.student import LEVEL
from sweeps.analyse.least import LeastFound
from sweeps.plan.least_sweep import LeastConstraint
from sweeps.report import sentences
from sweeps.report.chart import Axis, Lines, Series
from sweeps.report.formats import NONE, between
from sweeps.report.presenter import Presenter
from sweeps.report.section import Block, Grid, Say
from sweeps.report.trend import band
from sweeps.run.findings import Findings

Found = list[LeastFound]


class LeastPage(Presenter):
    """The least value for each competitor, and the metric along the axis."""

    def sentences(self, found: Findings[Found]) -> list[str]:
        kept = _kept(found)
        return list(sentences.least(found.own, kept.axis.split(".")[-1], kept.name))

    def grids(self, found: Findings[Found]) -> list[Grid]:
        every = dict.fromkeys(value for each in found.own for value in each.known)
        values = sorted(every, key=lambda value: number(_plain(value)) or 0.0)
        axis = _kept(found).axis.split(".")[-1]
        heads = ["", found.table.compared, f"least {axis}", "surely",
                 *(f"{axis} {value}" for value in values)]  # fmt: skip
        rows = [
            [
                each.where, each.name, str(each.value or NONE), str(each.sure or NONE),
                *(between(each.known[v], "{:.3g}".format) if v in each.known else NONE
                  for v in values),
            ]
            for each in found.own
        ]  # fmt: skip
        return [Grid("", heads, rows, sides="<<>")]

    def results(self, found: Findings[Found], grids: list[Grid]) -> list[Block]:
        kept = _kept(found)
        note = Say(
            f"Least: from which on the means keep {kept.name}; surely: the whole"
            f" {100 * LEVEL:.0f} % intervals."
        )
        return [*_charts(found), *grids, note]

    def sections(self, found: Findings[Found], grids: list[Grid]) -> list[Block]:
        return self.results(found, grids)


def _charts(found: Findings[Found]) -> Iterator[Lines]:
    kept = _kept(found)
    for where in dict.fromkeys(each.where for each in found.own):
        own = [each for each in found.own if each.where == where and len(each.known) > 1]
        if not own:
            continue
        lines = [
            band(each.name, [number(v) or 0.0 for v in map(_plain, each.known)],
                 [*each.known.values()])
            for each in own
        ]  # fmt: skip
        x = list(lines[0].x)
        lines.append(Series(kept.name, x, [kept.bound] * len(x)))
        title = f"{kept.metric} against {kept.axis.split('.')[-1]}"
        yield Lines(f"{title}: {where}" if where else title, Axis(kept.axis, zero=False),
                    Axis(kept.metric, zero=False), lines, figure="least")  # fmt: skip


def _plain(text: str) -> float | str:
    """A value's label as it was written."""
    try:
        return float(text)
    except ValueError:
        return text


def _kept(found: Findings[Found]) -> LeastConstraint:
    return LeastConstraint.model_validate(found.table.config["least"])
