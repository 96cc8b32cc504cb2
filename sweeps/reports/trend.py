"""A quantity along an axis of a run: a line a competitor, a chart for each of the other axes'
combinations."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from hwmodel.description.units import SCALES, parse_quantity
from sweeps.experiments.sweep import label
from sweeps.render.chart import Axis, Lines, Series
from sweeps.reports.table import Group, Row, Table
from sweeps.results.figures import KV_RATE, THROUGHPUT
from sweeps.results.statistics import LEVEL, Interval

_SHOWN = 12
"""Charts of one axis."""
_FIGURES = {
    THROUGHPUT: ("Output tokens/s", 1.0),
    "ttft_s.p99": ("TTFT p99, s", 1.0),
}

_OF_READS = {KV_RATE: ("KV read, GB/s", 1.0)}
"""Of sweeps in which nothing is served."""


@dataclass(frozen=True)
class _Along:
    """An axis whose values are numbers: where a row lies on it."""

    axis: Axis
    of: Callable[[Row], float | None]


def trends(table: Table) -> list[Lines]:
    """Charts along every axis of numbers with two values or more, but the compared one."""
    return [chart for path in table.config["axes"] for chart in _trends(table, path)]


def _trends(table: Table, path: str) -> Iterator[Lines]:
    if path == table.config["compare"] or (along := _along(table, path)) is None:
        return
    parts: dict[str, list[Group]] = {}
    for group in table.groups:
        rest = {key: value for key, value in group.others.items() if key != path}
        parts.setdefault(json.dumps(rest, sort_keys=True, default=str), []).append(group)
    for key, groups in list(parts.items())[:_SHOWN]:
        where = ", ".join(map(label, json.loads(key).values()))
        served = any(row.values(THROUGHPUT) for group in groups for row in group.rows)
        for metric, (name, scale) in (_FIGURES if served else _OF_READS).items():
            series = list(_series(groups, along, metric, scale))
            if series:
                title = f"{name} against {along.axis.label.split(',')[0]}"
                yield Lines(
                    f"{title}: {where}" if where else title, along.axis, Axis(name), series,
                    f"Bands: {100 * LEVEL:.0f} % intervals of the mean.",
                )  # fmt: skip


def _series(groups: list[Group], along: _Along, metric: str, scale: float) -> Iterator[Series]:
    names = dict.fromkeys(row.name for group in groups for row in group.main())
    for name in names:
        points: list[tuple[float, Interval]] = []
        for group in groups:
            for row in group.main():
                place = along.of(row) if row.name == name else None
                found = row.interval(metric)
                if place is not None and found is not None:
                    points.append((place, found.mapped(lambda value: scale * value)))
        points.sort(key=lambda point: point[0])
        if len(points) > 1:
            x = [place for place, _ in points]
            y = [found.mean for _, found in points]
            sure = all(found.count > 1 for _, found in points)
            low, high = (
                ([f.low for _, f in points], [f.high for _, f in points]) if sure else ((), ())
            )
            yield Series(name, x, y, low, high)


def _along(table: Table, path: str) -> _Along | None:
    """How rows lie along an axis, None where its values are no numbers."""
    values = table.config["axes"][path]
    if len(values) < 2:
        return None
    if path.split(".")[0] == "load":
        return _Along(Axis("offered load, requests/s"), lambda row: row.rate_per_s)
    kinds = {_dimension(value) for value in values}
    if len(kinds) != 1 or None in kinds:
        return None
    (kind,) = kinds
    scale: Literal["bytes", "linear"] = "bytes" if kind == "size" else "linear"
    unit = {"": "", "size": "", "time": ", ns", "bandwidth": ", B/s"}.get(str(kind), f", {kind}")
    return _Along(
        Axis(f"{path}{unit}", scale, zero=False), lambda row: number(row.overrides.get(path))
    )


def _dimension(value: Any) -> str | None:
    """What an axis value measures, '' for a bare number, None for no number."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return ""
    for dimension in SCALES:
        try:
            parse_quantity(value, dimension)
        except ValueError:
            continue
        return dimension
    return None


def number(value: Any) -> float | None:
    """A number, or a quantity in its base unit; None for what is neither."""
    dimension = _dimension(value)
    if dimension is None:
        return None
    return float(parse_quantity(value, dimension)) if dimension else float(value)
