"""The specification of a timeline: stretches of rows over one axis."""

from __future__ import annotations

from sweeps.report.chart import Timeline
from sweeps.report.encoding import Spec, axis_of, colour_of, inline, tooltip

_HIGH, _THICK, _BEHIND = 16, 12, 14
"""Pixels of a row, of what is in it, and of what lies behind that."""


def timeline(chart: Timeline) -> Spec:
    """Rectangles in the colour of their kind, the pale ones behind, in rows from the top."""
    low, high = chart.ends
    rows = [
        (name, max(start, low), min(end, high), kind, told, start, end, "p" * (kind in chart.pale))
        for name, start, end, kind, told in chart.spans
        if end > low and start < high
    ]  # fmt: skip
    used = {row[3] for row in rows}
    domain = {kind: colour for kind, colour in chart.kinds.items() if kind in used}
    x = axis_of(chart.x, ())
    x["scale"] = {"domain": [low, high], "nice": False, "zero": False}
    x["axis"] |= {"tickCount": 10}
    axis = {"title": None, "ticks": False, "domain": False, "labelPadding": 6, "grid": False}
    y = {"field": "name", "type": "nominal", "sort": chart.names, "axis": axis,
         "scale": {"domain": chart.names}}  # fmt: skip
    shown = tooltip(("name", "row"), ("of", "what"), ("place", "place"), ("begin", "from"),
                    ("until", "until"))  # fmt: skip
    colour = {**colour_of(domain), "legend": {"columns": len(domain) or 1}}
    return {
        "data": inline(
            "name start end of place begin until pale", rows, "name of place pale"
        ),
        "height": _HIGH * len(chart.names),
        "encoding": {"y": y, "x": {**x, "field": "start"}, "x2": {"field": "end"},
                     "color": colour, "tooltip": shown},
        "layer": [
            {"transform": [{"filter": "datum.pale"}],
             "mark": {"type": "bar", "height": _BEHIND}},
            {"transform": [{"filter": "!datum.pale"}],
             "mark": {"type": "bar", "height": _THICK}},
        ],
    }  # fmt: skip
