"""Specifications of charts with two axes: lines, steps and points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from sweeps.report.encoding import Spec, axis_of, colour_of, drawable, inline, tooltip
from sweeps.report.labels import Side, sides
from sweeps.report.palette import colours
from sweeps.sections.chart import Lines, Series

_DASHES = ([1, 0], [7, 3], [2, 3], [9, 3, 2, 3], [12, 4], [4, 2], [1, 3], [9, 2, 2, 2, 2, 2])
_HIGH, _WIDE = 210, 560
"""Pixels of an area with two axes, as high and about as wide; with names twice as high."""


def lines(chart: Lines, compared: Sequence[str], live: bool) -> Spec:
    """Bands, then lines or steps, then points with their ends and names."""
    rows: list[tuple[Any, ...]] = []
    for one in chart.series:
        for i, (at, value) in enumerate(zip(one.x, one.y, strict=True)):
            ends = (one.low[i], one.high[i]) if len(one.low) else (None, None)
            if drawable(chart.x, at) and drawable(chart.y, value):
                rows.append((one.name, at, value, *ends, one.names[i] if one.names else None))
    x = axis_of(chart.x, (row[1] for row in rows))
    y = axis_of(chart.y, (end for row in rows for end in row[2:5] if end is not None))
    known = colours(compared, [one.name for one in chart.series])
    domain = {one.name: known[one.name] for one in chart.series}
    colour = _series(domain, not _forms(chart)["point"])
    layers = []
    for form, chosen in _forms(chart).items():
        ranged = [one.name for one in chosen if len(one.low)]
        if ranged:
            mark = {"type": "rule"} if form == "point" else {"type": "area", "opacity": 0.2}
            ends_ = {"y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": colour}
            layers.append({**_only(ranged), "mark": mark, "encoding": ends_})
        names = [one.name for one in chosen if not one.band]
        if names and form == "point":
            mark = {"type": "point", "filled": True, "size": 45, "opacity": 0.85}
            here = {"y": {**y, "field": "y"}, "color": colour}
            layers.append({**_only(names), "mark": mark, "encoding": here})
        elif names:
            drawn = _line(names, domain, live)
            drawn["mark"] |= {"interpolate": "step-after"} if form == "step" else {}
            drawn["encoding"] |= {"y": {**y, "field": "y"}, "color": colour}
            if chart.form == "quantiles":
                drawn["encoding"]["order"] = {"field": "y", "type": "quantitative"}
            layers.append(drawn)
    named = any(one.names for one in chart.series)
    if named:
        layers.append(_written(rows, x, y))
    told = [("place", "name")] * named + [("of", "series"), ("x", chart.x.label),
                                          ("y", chart.y.label)]  # fmt: skip
    if any(len(one.low) for one in chart.series):
        told += [("low", "interval from"), ("high", "to")]
    return {
        "data": inline("of x y low high place", rows, "of place"),
        "height": 2 * _HIGH if named else _HIGH,
        "encoding": {"x": {**x, "field": "x"}, "tooltip": tooltip(*told)},
        "layer": layers,
    }


def _written(rows: list[tuple[Any, ...]], x: Spec, y: Spec) -> Spec:
    """The names of points beside them; of those at one place, one under the other."""
    across, up = ([row[i] for row in rows] for i in (1, 2))
    places = sorted(
        (_WIDE * _share(x["scale"], across, at), 2 * _HIGH * (1 - _share(y["scale"], up, value)),
         name, at, value)
        for _, at, value, *_, name in rows if name
    )  # fmt: skip
    found = sides([place[:3] for place in places], _WIDE)
    texts = [
        {"x": at, "y": value, "place": name, **side._asdict()}
        for (*_, name, at, value), side in zip(places, found, strict=True)
    ]
    offsets = {name: {"expr": f"datum.{name}"} for name in Side._fields}
    mark = {"type": "text", "style": "label", "baseline": "middle", "fontSize": 10, **offsets}
    here = {"y": {**y, "field": "y"}, "text": {"field": "place"}}
    return {"data": {"values": texts}, "mark": mark, "encoding": here}


def _share(scale: Spec, values: Sequence[float], value: float) -> float:
    """Where a value is on an axis, from 0 to 1."""
    place = math.log if scale.get("type") == "log" else float
    low, high, at = map(place, (*scale.get("domain", (min(values), max(values))), value))
    return (at - low) / (high - low or 1.0)


def _forms(chart: Lines) -> dict[str, list[Series]]:
    """The series that are drawn as lines, steps and points; one value alone is a point."""
    found: dict[str, list[Series]] = {"line": [], "step": [], "point": []}
    for one in chart.series:
        stairs = one.steps or chart.form == "steps"
        dots = (chart.form == "points" and not stairs) or len(one.x) == 1
        found["point" if dots else "step" if stairs else "line"].append(one)
    return found


def _only(names: Sequence[str]) -> Spec:
    return {"transform": [{"filter": {"field": "of", "oneOf": list(names)}}]}


def _line(names: Sequence[str], domain: dict[str, str], live: bool) -> Spec:
    """Lines told apart by colour and dashes; what the pointer meets are points one cannot see."""
    seen: Spec = {"point": {"opacity": 0, "size": 160}} if live else {}
    order = {name: _DASHES[i % len(_DASHES)] for i, name in enumerate(domain)}
    scale = {"domain": list(order), "range": list(order.values())}
    legend = {"legend": _legend(True) if len(domain) > 1 else None}
    dashes = {"field": "of", "type": "nominal", "scale": scale, **legend}
    mark = {"type": "line", "strokeWidth": 2, **seen}
    return {**_only(names), "mark": mark, "encoding": {"strokeDash": dashes}}


def _series(domain: dict[str, str], lines: bool = True) -> Spec:
    """The colour of lines or points; their legend leaves room for the y axis's title."""
    if len(domain) < 2:
        return colour_of(domain, False)
    return {**colour_of(domain), "legend": _legend(lines)}


def _legend(lines: bool) -> Spec:
    return {"offset": 26, "symbolOpacity": 1} | ({"symbolType": "stroke"} if lines else {})
