"""Specifications of bars: from zero, of relative changes, and of parts."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

from sweeps.report.encoding import Spec, colour_of, inline, tooltip
from sweeps.report.palette import COLOURS, GAIN, LOSS, PARTS, PLAIN, colours
from sweeps.sections.chart import Bars

_LETTERS = 30
"""A name beside a bar is broken after so many."""
_BAR, THICK, _LINE = 20, 15, 11
"""Pixels of a bar with its gap and without, and of a further line of its name."""
_TOLD = 0.09
"""A part of a bar has its number from this share of the width on."""
_PALE = 0.4


def bars(chart: Bars, compared: Sequence[str]) -> Spec:
    """Horizontal bars."""
    if chart.parts:
        return _stacks(chart)
    return _tornado(chart) if chart.relative else _from_zero(chart, compared)


def _from_zero(chart: Bars, compared: Sequence[str]) -> Spec:
    """Bars from zero with whiskers, in the colour of what each is of."""
    y, height = names_axis(bar.name for bar in chart.bars)
    means = [bar.value.mean for bar in chart.bars]
    ends = [b.value.high for b in chart.bars if b.value.is_known and math.isfinite(b.value.high)]
    most = max([*means, 0.0]) or 1.0
    most = max(most, min(max(ends, default=0.0), 2 * most))
    domain = [min([*means, 0.0]), 1.2 * most]
    x = {"field": "value", "type": "quantitative", "axis": None, "scale": {"domain": domain,
         "nice": False}}  # fmt: skip
    rows = [
        (b.name, _owner(b.name, compared), *row[1:4], "control" * b.dim)
        for b, row in zip(chart.bars, chart.rows(), strict=True)
    ]  # fmt: skip
    owners = list(dict.fromkeys(row[1] for row in rows))
    known = colours(compared)
    domain_ = {name: known.get(name, PLAIN) for name in owners}
    digits = f"abs(datum.value) >= 1000 ? ',.0f' : ',.{chart.digits}f'"
    end = f"min(max(datum.value, isValid(datum.high) ? datum.high : 0), {most:g})"
    return {
        "data": inline("name of value low high control", rows, "name of control"),
        "transform": [{"calculate": f"format(datum.value, {digits})", "as": "text"},
                      {"calculate": end, "as": "end"}],
        "height": height,
        "encoding": {"y": y, "tooltip": tooltip(("name", "name"), ("value", chart.title),
                                              ("low", "interval from"), ("high", "to"))},
        "layer": [
            {"mark": {"type": "bar", "height": THICK},
             "encoding": {"x": x, "color": colour_of(domain_, False), "opacity": _pale("control")}},
            whiskers(x, domain[0], most),
            {"mark": {"type": "text", "style": "value", "dx": 6},
             "encoding": {"x": {**x, "field": "end"}, "text": {"field": "text"}}},
        ],
    }  # fmt: skip


def _tornado(chart: Bars) -> Spec:
    """Factors on a logarithmic axis whose labels are changes in per cent."""
    y, height = names_axis(bar.name for bar in chart.bars)
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
    domain = [low, high * (high / low) ** 0.45]  # room for the figures
    x = {"field": "start", "type": "quantitative", "title": None,
         "scale": {"type": "log", "base": 2, "domain": domain, "nice": False},
         "axis": {"labelExpr": "format(datum.value - 1, '+,.3~p')", "tickCount": 5,
                  "labelBound": True, "labelOverlap": True}}  # fmt: skip
    kinds = {"gain": GAIN, "loss": LOSS, "whole": COLOURS[5]}
    digits = "abs(datum.change) < 10 ? ',.1f' : ',.0f'"
    text = f"(datum.change <= -0.05 ? '−' : '+') + format(abs(datum.change), {digits}) + ' %'"
    return {
        "data": inline("name start end low high change least most kind pale", rows,
                      "name kind pale"),
        "transform": [{"calculate": text, "as": "text"}],
        "height": height,
        "encoding": {"y": y, "tooltip": tooltip(("name", "name"), ("change", "change, %"),
                                              ("least", "interval from, %"), ("most", "to, %"))},
        "layer": [
            {"mark": {"type": "bar", "height": THICK},
             "encoding": {"x": x, "x2": {"field": "end"}, "color": colour_of(kinds, False, "kind"),
                          "opacity": _pale("pale")}},
            {"data": {"values": [{}]}, "mark": {"type": "rule", "style": "zero"},
             "encoding": {"x": {"datum": 1, "type": "quantitative"}, "y": {"value": 0},
                          "y2": {"value": "height"}, "tooltip": {"value": None}}},
            whiskers(x, low, high),
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


def _stacks(chart: Bars) -> Spec:
    """Parts of bars with their numbers where there is room."""
    stacks = {bar.name: bar.parts for bar in chart.bars}
    y, height = names_axis(stacks)
    totals = {name: math.fsum(values) for name, values in stacks.items()}
    top = 1.0 if chart.share else max(totals.values(), default=0.0) or 1.0
    factor = 100 if chart.share else 1
    rows: list[tuple[Any, ...]] = []
    for name, values in stacks.items():
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
        {"mark": {"type": "bar", "height": THICK},
         "encoding": {"x": x, "x2": {"field": "end"}, "color": colour_of(domain, field="part")}},
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
    shown = tooltip(("name", "name"), ("part", "part"), ("value", unit))
    return {
        "data": inline("name of part start end value written", rows, "name of part written"),
        "height": height,
        "encoding": {"y": y, "tooltip": shown},
        "layer": layers,
    }


def names_axis(names: Iterable[str]) -> tuple[Spec, int]:
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


def whiskers(x: Spec, low: float, high: float) -> Spec:
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


def _pale(field: str) -> Spec:
    return {"condition": {"test": f"datum.{field}", "value": _PALE}, "value": 1}
