"""A quantity along an axis of a run: a line a competitor, a chart for each of the other axes'
combinations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from hwmodel.description.units import _dimension, number
from hwmodel.measure.student import LEVEL
from sweeps.analyse.figures import THROUGHPUT
from sweeps.analyse.objective import KV_READ, OBJECTIVES, Objective
from sweeps.analyse.statistics import Interval
from sweeps.analyse.table import Group, Row, Table, along
from sweeps.sections.chart import Axis, Lines, Series, band

_SHOWN = 12
"""Charts of one axis."""
_BESIDE = ("throughput", "ttft_p99")
"""Objectives that are drawn where requests are served, beside the sweep's."""


@dataclass(frozen=True)
class Numbers:
    """An axis whose values are numbers: where a row lies on it."""

    drawn: Axis
    of: Callable[[Row], float | None]


def trends(table: Table) -> list[Lines]:
    """Charts along every axis of numbers with two values or more, but the compared one."""
    return [chart for path in table.config["axes"] for chart in _trends(table, path)]


def _trends(table: Table, path: str) -> Iterator[Lines]:
    if path == table.config["compare"] or (axis := numbers_along(table, path)) is None:
        return
    for where, groups in along(table, path)[:_SHOWN]:
        served = any(row.values(THROUGHPUT) for group in groups for row in group.rows)
        own = groups[0].objective
        several = [own, *(OBJECTIVES[name] for name in _BESIDE)] if served else [KV_READ]
        for drawn in dict.fromkeys(several):
            if series := list(_series(groups, axis, drawn)):
                title = f"{drawn.words} against {axis.drawn.label.split(',')[0]}"
                yield Lines(
                    f"{title}: {where}" if where else title, axis.drawn, Axis(drawn.words), series,
                    f"Bands: {100 * LEVEL:.0f} % intervals of the mean.", figure="against",
                )  # fmt: skip


def _series(groups: list[Group], axis: Numbers, drawn: Objective) -> Iterator[Series]:
    points: dict[str, list[tuple[float, Interval]]] = {}
    for row in (row for group in groups for row in group.main()):
        place, found = axis.of(row), row.interval(drawn.metric)
        if place is not None and found is not None:
            ends = found.within(0.0, 1.0 if drawn.unit == "%" else math.inf)
            scaled = ends.mapped(lambda value: drawn.scale * value)
            points.setdefault(row.name, []).append((place, scaled))
    for name, several in points.items():
        several.sort(key=lambda point: point[0])
        if len(several) > 1:
            yield band(name, [place for place, _ in several], [each for _, each in several])


def numbers_along(table: Table, path: str) -> Numbers | None:
    """How rows lie along an axis, None where its values are no numbers."""
    values = table.config["axes"][path]
    if len(values) < 2:
        return None
    if path.split(".")[0] == "load":
        return Numbers(Axis("offered load, requests/s"), lambda row: row.rate_per_s)
    kinds = {_dimension(value) for value in values}
    if len(kinds) != 1 or None in kinds:
        return None
    (kind,) = kinds
    scale: Literal["bytes", "linear"] = "bytes" if kind == "size" else "linear"
    unit = {"": "", "size": "", "time": ", ns", "bandwidth": ", B/s"}.get(str(kind), f", {kind}")
    drawn = Axis(f"{path}{unit}", scale, zero=False)
    return Numbers(drawn, lambda row: number(row.overrides.get(path)))
