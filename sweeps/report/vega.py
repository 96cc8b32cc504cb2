"""Charts as Vega-Lite specifications: one builder a form.

A specification holds its data as CSV, and no colour of text or paper: those are the theme's
(`LIGHT`, `DARK`). Where `live`, it answers to the pointer, and leaves out the names that its
parameter `off` lists; `controls` is one of them.
"""

from __future__ import annotations

import csv
import io
import json
import math
import textwrap
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

from sweeps.report.chart import (
    Axis,
    Bars,
    Chart,
    Curves,
    Heat,
    Lines,
    Patches,
    Regions,
    Series,
    Stacks,
    Tornado,
    cell,
)
from sweeps.report.labels import Side, sides
from sweeps.report.palette import COLOURS, GAIN, LOSS, PARTS, PLAIN, colours

Spec = dict[str, Any]
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
CONTROLS = "controls"
"""In `off`: the bars that stand back."""
_DASHES = ([1, 0], [7, 3], [2, 3], [9, 3, 2, 3], [12, 4], [4, 2], [1, 3], [9, 2, 2, 2, 2, 2])
_LETTERS = 30
"""A name beside a bar is broken after so many."""
_BAR, _THICK, _LINE = 20, 15, 11
"""Pixels of a bar with its gap and without, and of a further line of its name."""
_HIGH, _WIDE = 210, 560
"""Pixels of an area with two axes, as high and about as wide; with names twice as high."""
_TOLD = 0.09
"""A part of a bar has its number from this share of the width on."""
_PALE = 0.4
_LEADS = (0.05, 0.2, 0.6)
"""Where the shade of a lead changes."""
_SHADES = (0.3, 0.55, 0.8, 1.0)
_BYTES = (
    "datum.value >= 1073741824 ? format(datum.value / 1073741824, ',.4~r') + ' GiB' :"
    " datum.value >= 1048576 ? format(datum.value / 1048576, ',.4~r') + ' MiB' :"
    " datum.value >= 1024 ? format(datum.value / 1024, ',.4~r') + ' KiB' : datum.value + ' B'"
)


def spec(chart: Chart, compared: Sequence[str] = (), live: bool = False) -> Spec:
    """The specification of a chart without its title; `compared`: what the run compares."""
    match chart:
        case Bars():
            found = _bars(chart, compared)
        case Tornado():
            found = _tornado(chart)
        case Stacks():
            found = _stacks(chart)
        case Lines():
            found = _lines(chart, compared, live)
        case Curves():
            found = _curves(chart, compared, live)
        case Patches():
            found = _patches(chart)
        case Regions():
            found = _regions(chart, compared)
        case Heat():
            found = _heat(chart)
    if live:
        found = _switched(found)
    told = f"{chart.title}. {chart.note}".strip()
    meta = {"letters": max(map(len, _keys(chart)), default=0)}
    fit = {"type": "fit-x", "contains": "padding"}
    return {
        "$schema": SCHEMA, "description": told, "usermeta": meta, "width": "container",
        "autosize": fit, **found,
    }  # fmt: skip


def _keys(chart: Chart) -> Iterable[str]:
    """What its legend names."""
    match chart:
        case Lines():
            return [one.name for one in chart.series]
        case Curves():
            return chart.values
        case Stacks():
            return chart.parts
        case Regions():
            return chart.owners
        case Heat():
            return chart.lines
    return ()


def legend_columns(letters: int, width: float) -> int:
    """Of a legend whose longest name has so many letters, in a picture so many pixels wide."""
    return max(1, int(width / (6.2 * letters + 34)))


def _switched(found: Spec) -> Spec:
    """With the parameter `off`, where something can be left out."""
    columns = found["data"]["values"].partition("\n")[0].split(",")
    tests = {
        "of": "indexof(off, datum.of) < 0",
        "control": f"!datum.control || indexof(off, '{CONTROLS}') < 0",
    }
    filters = [{"filter": test} for column, test in tests.items() if column in columns]
    if not filters:
        return found
    switch = {"name": "off", "value": []}
    return {
        **found,
        "params": [switch],
        "transform": [*filters, *found.get("transform", [])],
    }


def theme(ink: str, dim: str, line: str) -> Spec:
    """A Vega-Lite configuration: what is not data."""
    text = {"labelColor": ink, "titleColor": dim, "labelFontSize": 11, "titleFontSize": 11,
            "titleFontWeight": "normal"}  # fmt: skip
    return {
        "background": "transparent",
        "font": "system-ui, sans-serif",
        "padding": 2,
        "view": {"stroke": None},
        "axis": {**text, "gridColor": line, "domainColor": line, "tickColor": line,
                 "labelLimit": 300, "titleLimit": 330},
        "axisY": {"titleAngle": 0, "titleAlign": "left", "titleAnchor": "end", "titleX": 0,
                  "titleY": -8, "titleBaseline": "bottom"},
        "legend": {**text, "orient": "top", "title": None, "offset": 6, "labelLimit": 560,
                   "columnPadding": 14},
        "title": {"color": ink, "subtitleColor": dim, "anchor": "start", "fontSize": 13,
                  "subtitleFontSize": 11, "offset": 10, "frame": "bounds"},
        "style": {
            "value": {"color": dim, "fontSize": 11, "align": "left", "baseline": "middle"},
            "inside": {"color": "#fff", "fontSize": 10, "align": "center", "baseline": "middle"},
            "whisker": {"color": ink, "strokeWidth": 1.2},
            "zero": {"color": dim, "strokeWidth": 1},
            "label": {"color": ink, "fontSize": 11},
        },
    }  # fmt: skip


LIGHT = theme("#1c2024", "#565f6a", "#dfe3e8")
DARK = theme("#e6e8ea", "#a3acb6", "#3a4048")


def _data(columns: str, rows: Sequence[Sequence[Any]], words: str) -> Spec:
    """Inline CSV without columns that are empty. columns, words: names between blanks, and those
    that are not numbers."""
    table = [[cell(value) for value in row] for row in rows]
    names = columns.split()
    kept = [i for i in range(len(names)) if any(row[i] for row in table)]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([names[i] for i in kept])
    writer.writerows([[row[i] for i in kept] for row in table])
    numbers = {names[i]: "number" for i in kept if names[i] not in words.split()}
    return {"values": out.getvalue(), "format": {"type": "csv", "parse": numbers}}


def _told(*fields: tuple[str, str]) -> list[Spec]:
    """What the pointer shows: fields, each with its title; numbers with four digits."""
    words = ("name", "of", "part", "place")
    return [
        {"field": name, "title": title} | ({} if name in words else {
            "format": ",.4~r", "type": "quantitative"})
        for name, title in fields
    ]  # fmt: skip


def _names(names: Iterable[str]) -> tuple[Spec, int]:
    """The y axis of names, long ones in lines, and the height it needs."""
    lines = {name: textwrap.wrap(name, _LETTERS) for name in dict.fromkeys(names)}
    long = {name: parts for name, parts in lines.items() if len(parts) > 1}
    axis: Spec = {"title": None, "ticks": False, "domain": False, "labelPadding": 6}
    if long:
        axis["labelExpr"] = f"({json.dumps(long)})[datum.label] || datum.label"
        axis["labelLineHeight"] = _LINE
    most = max(map(len, lines.values()), default=1)
    y = {"field": "name", "type": "nominal", "sort": None, "axis": axis}
    return y, len(lines) * (_BAR + _LINE * (most - 1))


def _owner(name: str, compared: Sequence[str]) -> str:
    """Which of the compared a bar is of: itself, or what a control changes."""
    head = name.partition(" (")[0]
    return name if name in compared or head not in compared else head


def _colour(domain: dict[str, str], legend: bool = True, field: str = "of") -> Spec:
    scale = {"domain": list(domain), "range": list(domain.values())}
    return {"field": field, "type": "nominal", "scale": scale} | ({} if legend else {
        "legend": None})  # fmt: skip


def _series(domain: dict[str, str], lines: bool = True) -> Spec:
    """The colour of lines or points; their legend leaves room for the y axis's title."""
    if len(domain) < 2:
        return _colour(domain, False)
    return {**_colour(domain), "legend": _legend(lines)}


def _legend(lines: bool) -> Spec:
    return {"offset": 26, "symbolOpacity": 1} | ({"symbolType": "stroke"} if lines else {})


def _whiskers(x: Spec, low: float, high: float) -> Spec:
    """From low to high, as far as both ends of what is drawn."""
    return {
        "transform": [
            {"filter": "isValid(datum.low) && isValid(datum.high)"},
            {"calculate": f"max(datum.low, {low:g})", "as": "begin"},
            {"calculate": f"min(datum.high, {high:g})", "as": "end"},
        ],
        "mark": {"type": "rule", "style": "whisker"},
        "encoding": {"x": {**x, "field": "begin"}, "x2": {"field": "end"}},
    }


def _bars(chart: Bars, compared: Sequence[str]) -> Spec:
    y, height = _names(bar.name for bar in chart.bars)
    means = [bar.value.mean for bar in chart.bars]
    ends = [bar.value.high for bar in chart.bars if math.isfinite(bar.value.high)]
    most = max([*means, 0.0]) or 1.0
    most = max(most, min(max(ends, default=0.0), 2 * most))
    domain = [min([*means, 0.0]), 1.2 * most]
    x = {"field": "value", "type": "quantitative", "axis": None, "scale": {"domain": domain,
         "nice": False}}  # fmt: skip
    rows = [
        (b.name, _owner(b.name, compared), b.value.mean, b.value.low, b.value.high,
         "control" * b.dim) for b in chart.bars
    ]  # fmt: skip
    owners = list(dict.fromkeys(row[1] for row in rows))
    known = colours(compared)
    domain_ = {name: known.get(name, PLAIN) for name in owners}
    digits = f"abs(datum.value) >= 1000 ? ',.0f' : ',.{chart.digits}f'"
    end = f"min(max(datum.value, isValid(datum.high) ? datum.high : 0), {most:g})"
    return {
        "data": _data("name of value low high control", rows, "name of control"),
        "transform": [{"calculate": f"format(datum.value, {digits})", "as": "text"},
                      {"calculate": end, "as": "end"}],
        "height": height,
        "encoding": {"y": y, "tooltip": _told(("name", "name"), ("value", chart.title),
                                              ("low", "interval from"), ("high", "to"))},
        "layer": [
            {"mark": {"type": "bar", "height": _THICK},
             "encoding": {"x": x, "color": _colour(domain_, False), "opacity": _pale("control")}},
            _whiskers(x, domain[0], most),
            {"mark": {"type": "text", "style": "value", "dx": 6},
             "encoding": {"x": {**x, "field": "end"}, "text": {"field": "text"}}},
        ],
    }  # fmt: skip


def _pale(field: str) -> Spec:
    return {"condition": {"test": f"datum.{field}", "value": _PALE}, "value": 1}


def _tornado(chart: Tornado) -> Spec:
    """Factors on a logarithmic axis whose labels are changes in per cent."""
    y, height = _names(bar.name for bar in chart.bars)
    steps = [1 + bar.value.mean for bar in chart.bars[:-1]] if chart.waterfall else []
    starts = [*accumulate(steps, lambda a, b: a * b, initial=1.0)][:-1] if steps else []
    starts += [1.0] * (len(chart.bars) - len(starts))
    rows, reached = [], [1.0]
    for i, (bar, start) in enumerate(zip(chart.bars, starts, strict=True)):
        mean, low, high = ((1 + end) * start if math.isfinite(end) and end > -1 else None
                           for end in (bar.value.mean, bar.value.low, bar.value.high))  # fmt: skip
        whole = chart.waterfall and i == len(chart.bars) - 1
        kind = "whole" if whole else "gain" if bar.value.mean >= 0 else "loss"
        rows.append((bar.name, start, mean, low, high, 100 * bar.value.mean, 100 * bar.value.low,
                     100 * bar.value.high, kind, "pale" * bar.dim))  # fmt: skip
        reached += [each for each in (start, mean) if each]
    low, high = _around(reached, [end for row in rows for end in row[3:5] if end])
    domain = [low, high * (high / low) ** 0.3]  # room for the figures
    x = {"field": "start", "type": "quantitative", "title": None,
         "scale": {"type": "log", "base": 2, "domain": domain, "nice": False},
         "axis": {"labelExpr": "format(datum.value - 1, '+,.3~p')", "tickCount": 5,
                  "labelOverlap": True}}  # fmt: skip
    kinds = {"gain": GAIN, "loss": LOSS, "whole": COLOURS[5]}
    digits = "abs(datum.change) < 10 ? ',.1f' : ',.0f'"
    text = f"(datum.change <= -0.05 ? '−' : '+') + format(abs(datum.change), {digits}) + ' %'"
    return {
        "data": _data("name start end low high change least most kind pale", rows,
                      "name kind pale"),
        "transform": [{"calculate": text, "as": "text"}],
        "height": height,
        "encoding": {"y": y, "tooltip": _told(("name", "name"), ("change", "change, %"),
                                              ("least", "interval from, %"), ("most", "to, %"))},
        "layer": [
            {"mark": {"type": "bar", "height": _THICK},
             "encoding": {"x": x, "x2": {"field": "end"}, "color": _colour(kinds, False, "kind"),
                          "opacity": _pale("pale")}},
            {"data": {"values": [{}]}, "mark": {"type": "rule", "style": "zero"},
             "encoding": {"x": {"datum": 1, "type": "quantitative"}, "y": {"value": 0},
                          "y2": {"value": "height"}, "tooltip": {"value": None}}},
            _whiskers(x, low, high),
            {"mark": {"type": "text", "style": "value", "align": "right"},
             "encoding": {"x": {"value": {"expr": "width"}}, "text": {"field": "text"}}},
        ],
    }  # fmt: skip


def _around(bars: list[float], ends: list[float]) -> list[float]:
    """The ends of factors that hold the bars, and whiskers as far as they are no longer."""
    low, high = math.log(min(bars)), math.log(max(bars))
    span = max(high - low, 0.02)
    low = max(min([low, *map(math.log, ends)]), low - span)
    high = min(max([high, *map(math.log, ends)]), high + span)
    return [math.exp(low - 0.02 * (high - low)), math.exp(high)]


def _stacks(chart: Stacks) -> Spec:
    y, height = _names(chart.stacks)
    totals = {name: math.fsum(values) for name, values in chart.stacks.items()}
    top = 1.0 if chart.share else max(totals.values(), default=0.0) or 1.0
    factor = 100 if chart.share else 1
    rows: list[tuple[Any, ...]] = []
    for name, values in chart.stacks.items():
        whole = (totals[name] or 1.0) if chart.share else 1.0
        ends = [0.0, *accumulate(value / whole for value in values)]
        for part, start, end in zip(chart.parts, ends, ends[1:], strict=False):
            if end > start:
                written = "w" * ((end - start) / top >= _TOLD)
                rows.append((name, name, part, factor * start, factor * end, factor * (
                    end - start), written))  # fmt: skip
    used = {row[2] for row in rows}
    domain = {p: PARTS[i % len(PARTS)] for i, p in enumerate(chart.parts) if p in used}
    full = factor * top * (1.0 if chart.share else 1.15)
    x = {"field": "start", "type": "quantitative", "axis": None, "scale": {"domain": [0, full],
         "nice": False}}  # fmt: skip
    digits = 0 if chart.share else chart.digits
    layers = [
        {"mark": {"type": "bar", "height": _THICK},
         "encoding": {"x": x, "x2": {"field": "end"}, "color": _colour(domain, field="part")}},
        {"transform": [{"filter": "datum.written"},
                       {"calculate": "(datum.start + datum.end) / 2", "as": "middle"}],
         "mark": {"type": "text", "style": "inside"},
         "encoding": {"x": {**x, "field": "middle"},
                      "text": {"field": "value", "type": "quantitative",
                               "format": f",.{digits}f"}}},
    ]  # fmt: skip
    if not chart.share:
        layers.append(
            {"transform": [{"aggregate": [{"op": "max", "field": "end", "as": "total"}],
                            "groupby": ["name"]}],
             "mark": {"type": "text", "style": "value", "dx": 6},
             "encoding": {"x": {**x, "field": "total"}, "tooltip": None,
                          "text": {"field": "total", "type": "quantitative",
                                   "format": f",.{chart.digits}f"}}}
        )  # fmt: skip
    unit = "share, %" if chart.share else "value"
    return {
        "data": _data("name of part start end value written", rows, "name of part written"),
        "height": height,
        "encoding": {"y": y, "tooltip": _told(("name", "name"), ("part", "part"), ("value", unit))},
        "layer": layers,
    }


def _axis(axis: Axis, values: Iterable[float]) -> Spec:
    """x or y of these values; logarithmic ones have their ticks here, as Vega draws a line at
    each of nine a decade."""
    known = [value for value in values if _drawable(axis, value)]
    found: Spec = {"type": "quantitative", "title": axis.label}
    if axis.scale == "linear":
        scale = {"zero": axis.zero, "nice": not axis.tight}
        ticks = {"tickCount": 5, "labelOverlap": True, "format": ",~r"}
        return {**found, "scale": scale, "axis": ticks}
    base = 2 if axis.scale == "bytes" else 10
    low, high = min(known, default=1.0), max(known, default=1.0)
    first, last = math.floor(math.log(low, base)), math.ceil(math.log(high, base))
    last = max(last, first + 1)
    every = max(1, math.ceil((last - first) / 6))
    digits = (1, 2, 5) if base == 10 and last - first <= 2 else (1,)
    at = [digit * float(base) ** p for p in range(first, last + 1, every) for digit in digits]
    domain = [float(base) ** first, float(base) ** last]
    label: Spec = {"labelExpr": _BYTES} if base == 2 else {"format": ",~r"}
    return {**found, "scale": {"type": "log", "base": base, "domain": domain},
            "axis": {"values": [v for v in at if v <= domain[1]], **label}}  # fmt: skip


def _drawable(axis: Axis, value: float) -> bool:
    return math.isfinite(value) and (value > 0 or axis.scale == "linear")


def _lines(chart: Lines, compared: Sequence[str], live: bool) -> Spec:
    """Bands, then lines or steps, then points with their ends and names."""
    rows: list[tuple[Any, ...]] = []
    for one in chart.series:
        for i, (at, value) in enumerate(zip(one.x, one.y, strict=True)):
            ends = (one.low[i], one.high[i]) if len(one.low) else (None, None)
            if _drawable(chart.x, at) and _drawable(chart.y, value):
                rows.append((one.name, at, value, *ends, one.names[i] if one.names else None))
    x = _axis(chart.x, (row[1] for row in rows))
    y = _axis(chart.y, (end for row in rows for end in row[2:5] if end is not None))
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
            layers.append(drawn)
    named = any(one.names for one in chart.series)
    if named:
        layers.append(_written(rows, x, y))
    told = [("place", "name")] * named + [("of", "series"), ("x", chart.x.label),
                                          ("y", chart.y.label)]  # fmt: skip
    if any(len(one.low) for one in chart.series):
        told += [("low", "interval from"), ("high", "to")]
    return {
        "data": _data("of x y low high place", rows, "of place"),
        "height": 2 * _HIGH if named else _HIGH,
        "encoding": {"x": {**x, "field": "x"}, "tooltip": _told(*told)},
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


def _curves(chart: Curves, compared: Sequence[str], live: bool) -> Spec:
    rows = [
        (name, value, 100 * share)
        for name, values in chart.values.items()
        for share, value in zip(chart.shares, values, strict=True)
        if _drawable(chart.x, value)
    ]
    known = colours(compared, list(chart.values))
    domain = {name: known[name] for name in chart.values}
    y = {"type": "quantitative", "title": "share of requests, %", "scale": {"domain": [0, 100]},
         "axis": {"values": [0, 25, 50, 75, 100]}}  # fmt: skip
    x = _axis(chart.x, (row[1] for row in rows))
    drawn = _line(list(domain), domain, live)
    drawn["encoding"] |= {
        "y": {**y, "field": "y"}, "order": {"field": "y", "type": "quantitative"},
        "color": _series(domain),
    }  # fmt: skip
    return {
        "data": _data("of x y", rows, "of"),
        "height": _HIGH,
        "encoding": {
            "x": {**x, "field": "x"},
            "tooltip": _told(("of", "name"), ("x", chart.x.label), ("y", str(y["title"]))),
        },
        "layer": [drawn],
    }


def _patches(chart: Patches) -> Spec:
    rows = [
        (x, x + width, y, y + height, holder, holder % len(COLOURS))
        for x, width, y, height, holder in chart.patches
    ]
    domain = {str(i): colour for i, colour in enumerate(COLOURS)}
    return {
        "data": _data("left right low high holder turn", rows, "turn"),
        "height": 2 * _HIGH,
        "mark": {"type": "rect"},
        "encoding": {
            "x": {**_axis(chart.x, ()), "field": "left"}, "x2": {"field": "right"},
            "y": {**_axis(chart.y, ()), "field": "low"}, "y2": {"field": "high"},
            "color": _colour(domain, False, "turn"),
            "tooltip": _told(("holder", chart.holder), ("left", f"from {chart.x.label}"),
                             ("right", "until"), ("low", f"from {chart.y.label}"),
                             ("high", "until")),
        },
    }  # fmt: skip


def _regions(chart: Regions, compared: Sequence[str]) -> Spec:
    rows = []
    for name, regions in chart.cases.items():
        tie = chart.ties.get(name)
        ends = (None,) * 3 if tie is None else (tie.mean, tie.low, tie.high)
        rows += [
            (name, chart.owners[one.owner], one.low, one.high, one.lead, *(ends if i == 0 else ()))
            for i, one in enumerate(regions)
        ]
    rows = [(*row, *(None,) * (8 - len(row))) for row in rows]
    used = {row[1] for row in rows}
    known = colours(compared, chart.owners)
    domain = {name: known[name] for name in chart.owners if name in used}
    y, height = _names(chart.cases)
    x = {"field": "from", "type": "quantitative", "title": chart.x,
         "scale": {"type": "log", "nice": False},
         "axis": {"format": ",~r", "tickCount": 6, "labelOverlap": True}}  # fmt: skip
    leads = {"type": "threshold", "domain": list(_LEADS), "range": list(_SHADES)}
    told = _told(("name", "case"), ("of", "leads"), ("lead", "lead, share"), ("from", "from"),
                 ("until", "until"))  # fmt: skip
    ties = {"transform": [{"filter": "isValid(datum.tie)"}]}
    at = _told(("name", "case"), ("tie", "tie at"), ("low", "interval from"), ("high", "to"))
    return {
        "data": _data("name of from until lead tie low high", rows, "name of"),
        "height": height,
        "encoding": {"y": y},
        "layer": [
            {"mark": {"type": "rect", "height": _THICK},
             "encoding": {"x": x, "x2": {"field": "until"}, "color": _colour(domain),
                          "opacity": {"field": "lead", "type": "quantitative", "scale": leads,
                                      "legend": {"title": "leads by", "format": ".0%"}},
                          "tooltip": told}},
            _whiskers(x, min(row[2] for row in rows), max(row[3] for row in rows)),
            {**ties, "mark": {"type": "tick", "style": "whisker", "thickness": 2},
             "encoding": {"x": {**x, "field": "tie"}, "tooltip": at}},
        ],
    }  # fmt: skip


def _heat(chart: Heat) -> Spec:
    """Cells at whole places, so that the lines between them are places too."""
    rows = [
        (name, place, j, j + 1, i, i + 1, 100 * spot.value, 100 * spot.low, 100 * spot.high)
        for i, (name, spots) in enumerate(chart.cells.items())
        for j, (place, spot) in enumerate(zip(chart.columns_of, spots, strict=True))
    ]
    steps = [
        {"line": name, "x": place, "y": i + end, "at": 2 * i + end}
        for name, places in chart.lines.items()
        for i, place in enumerate(places)
        for end in (0, 1)
    ]
    names, places = list(chart.cells), list(chart.columns_of)
    x = _places("left", places, chart.x) | {"axis": {**_middles(places), "orient": "top"}}
    y = _places("top", names, None) | {"axis": _middles(names)}
    y["scale"]["reverse"] = True
    middle = {"x": {**x, "field": "middle"}, "y": {**y, "field": "centre"}}
    text = "datum.low < datum.high ? format(datum.low, '.0f') + '–' + format(datum.high, '.0f') :" \
           " ''"  # fmt: skip
    ink = {"condition": {"test": "datum.value > 75", "value": "#fff"}}
    return {
        "data": _data("name place left right top bottom value low high", rows, "name place"),
        "transform": [{"calculate": "datum.left + 0.5", "as": "middle"},
                      {"calculate": "datum.top + 0.5", "as": "centre"},
                      {"calculate": text, "as": "ends"}],
        "height": 34 * len(names),
        "layer": [
            {"mark": {"type": "rect", "color": COLOURS[0]},
             "encoding": {"x": x, "x2": {"field": "right"}, "y": y, "y2": {"field": "bottom"},
                          "opacity": {"field": "value", "type": "quantitative", "legend": None,
                                      "scale": {"domain": [0, 100], "range": [0, 1]}},
                          "tooltip": _told(("name", "row"), ("place", chart.x),
                                           ("value", "as described"), ("low", "least"),
                                           ("high", "most"))}},
            {"mark": {"type": "text", "style": "label", "dy": -6}, "encoding": {
                **middle, "text": {"field": "value", "type": "quantitative", "format": ".0f"},
                "color": ink}},
            {"mark": {"type": "text", "style": "label", "dy": 8, "fontSize": 9}, "encoding": {
                **middle, "text": {"field": "ends"}, "color": ink}},
            {"data": {"values": steps}, "mark": {"type": "line", "strokeWidth": 3,
                                                 "color": LOSS},
             "encoding": {"x": {**x, "field": "x"}, "y": {**y, "field": "y"},
                          "order": {"field": "at", "type": "quantitative"},
                          "strokeDash": {"field": "line", "type": "nominal", "sort": None}}},
        ],
    }  # fmt: skip


def _places(field: str, names: list[str], title: str | None) -> Spec:
    scale = {"domain": [0, len(names)], "nice": False, "zero": False}
    return {"field": field, "type": "quantitative", "title": title, "scale": scale}


def _middles(names: list[str]) -> Spec:
    """An axis whose labels stand in the middle of places."""
    return {
        "values": [i + 0.5 for i in range(len(names))],
        "labelExpr": f"({json.dumps(names)})[floor(datum.value)]",
        "labelPadding": 6,
        **dict.fromkeys(("grid", "ticks", "domain"), False),
    }
