"""The specification of points: relative errors in named rows under headings."""

from __future__ import annotations

import json

from sweeps.report.encoding import Spec, colour_of, inline, tooltip
from sweeps.report.palette import COLOURS
from sweeps.sections.chart import Points

_HIGH, _LABEL = 15, 430
"""Pixels of a row, and of the longest name."""
_BAND = 0.45
"""Opacity of what a dot may reach."""


def kinds(chart: Points) -> list[str]:
    """What its colours are of, in the order of the rows."""
    return list(dict.fromkeys(str(row[2]) for row in chart.rows()))


def points(chart: Points) -> Spec:
    """Factors on a logarithmic axis whose labels are changes in per cent; tolerances lie behind."""
    rows, names = [], []
    for group, named in chart.groups.items():
        names += [group, *named]
        for name, found in named.items():
            alone = len(found) == 1
            rows += [
                (name, dot.kind, 1 + dot.value, 100 * dot.value, 100 * dot.tolerance,
                 1 - dot.tolerance if alone else None, 1 + dot.tolerance if alone else None)
                for dot in found
            ]  # fmt: skip
    reached = [value for row in rows for value in (row[2], *row[5:]) if value is not None]
    low, high = min(reached), max(reached)
    domain = [0.97 * low, high * (high / low) ** 0.12]  # room for the figures
    x = {"field": "at", "type": "quantitative", "title": None,
         "scale": {"type": "log", "base": 2, "domain": domain, "nice": False},
         "axis": {"labelExpr": "format(datum.value - 1, '+,.3~p')", "tickCount": 8,
                  "labelOverlap": True, "orient": "top"}}  # fmt: skip
    heads = json.dumps(list(chart.groups))
    weight = {"condition": {"test": f"indexof({heads}, datum.label) >= 0", "value": "bold"},
              "value": "normal"}  # fmt: skip
    axis = {"title": None, "ticks": False, "domain": False, "labelPadding": 6, "grid": False,
            "labelLimit": _LABEL, "minExtent": _LABEL - 70, "labelFontWeight": weight}  # fmt: skip
    y = {"field": "name", "type": "nominal", "sort": names, "scale": {"domain": names},
         "axis": axis}  # fmt: skip
    colours = {kind: COLOURS[i % len(COLOURS)] for i, kind in enumerate(kinds(chart))}
    digits = "abs(datum.error) < 10 ? ',.1f' : ',.0f'"
    text = f"(datum.error <= -0.05 ? '−' : '+') + format(abs(datum.error), {digits}) + ' %'"
    band = {"field": "low", "type": "quantitative"}
    return {
        "data": inline("name of at error tolerance low high", rows, "name of"),
        "transform": [{"calculate": text, "as": "text"}],
        "height": _HIGH * len(names),
        "encoding": {"y": y, "tooltip": tooltip(("name", "name"), ("of", "kind"),
                                              ("error", "error, %"),
                                              ("tolerance", "tolerance, %"))},
        "layer": [
            {"transform": [{"filter": "isValid(datum.low)"}],
             "mark": {"type": "bar", "height": _HIGH - 5, "color": "#c9d1da", "opacity": _BAND},
             "encoding": {"x": {**x, **band}, "x2": {"field": "high"}}},
            {"data": {"values": [{}]}, "mark": {"type": "rule", "style": "zero"},
             "encoding": {"x": {"datum": 1, "type": "quantitative"}, "y": {"value": 0},
                          "y2": {"value": "height"}, "tooltip": {"value": None}}},
            {"mark": {"type": "circle", "size": 46, "opacity": 0.85},
             "encoding": {"x": x, "color": colour_of(colours)}},
            {"transform": [{"filter": "isValid(datum.low)"}],
             "mark": {"type": "text", "style": "value", "align": "right"},
             "encoding": {"x": {"value": {"expr": "width"}}, "text": {"field": "text"}}},
        ],
    }  # fmt: skip
