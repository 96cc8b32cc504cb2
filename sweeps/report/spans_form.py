"""The specification of spans: in rows as they come, in rows with leads, and over two axes."""

from __future__ import annotations

from collections.abc import Sequence

from sweeps.report.encoding import Spec, axis_of, colour_of, inline, tooltip
from sweeps.report.palette import COLOURS, colours
from sweeps.report.row_forms import THICK, names_axis, whiskers
from sweeps.sections.chart import Spans

_HIGH, _THICK, _BEHIND = 16, 12, 14
"""Pixels of a row, of what is in it, and of what lies behind that."""


_AREA = 420
"""Pixels of an area over two axes, as high."""
_UNSURE = 0.12
"""Shade of a lead that is not significant."""
_LEADS = (0.05, 0.2, 0.6)
"""Where the shade of a lead changes."""
_SHADES = (0.3, 0.55, 0.8, 1.0)


def spans(chart: Spans, compared: Sequence[str]) -> Spec:
    """Stretches in the colour of their kind."""
    if chart.y is not None:
        return _areas(chart)
    return _leads(chart, compared) if chart.led else _timeline(chart)


def _timeline(chart: Spans) -> Spec:
    """The pale ones behind, in rows from the top."""
    each = [end for span in chart.spans for end in span[1:3]]
    low, high = chart.ends or (min(each, default=0.0), max(each, default=1.0))
    rows = [
        (name, max(start, low), min(end, high), kind, told, start, end, "p" * (kind in chart.pale))
        for name, start, end, kind, told, *_ in chart.spans
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
    return {
        "data": inline(
            "name start end of place begin until pale", rows, "name of place pale"
        ),
        "height": _HIGH * len(chart.names),
        "encoding": {"y": y, "x": {**x, "field": "start"}, "x2": {"field": "end"},
                     "color": colour_of(domain), "tooltip": shown},
        "layer": [
            {"transform": [{"filter": "datum.pale"}],
             "mark": {"type": "bar", "height": _BEHIND}},
            {"transform": [{"filter": "!datum.pale"}],
             "mark": {"type": "bar", "height": _THICK}},
        ],
    }  # fmt: skip


def _leads(chart: Spans, compared: Sequence[str]) -> Spec:
    """Stretches of a logarithmic axis in the colour of who leads, with ties."""
    rows, tied = [], set[str]()
    for span in chart.spans:
        tie = None if span.row in tied else chart.ties.get(span.row)
        tied.add(span.row)
        ends = (None,) * 3 if tie is None else (tie.mean, tie.low, tie.high)
        rows.append((span.row, span.kind, span.start, span.end, span.lead,
                     "pale" * (not span.sure), *ends))  # fmt: skip
    used = {row[1] for row in rows}
    known = colours(compared, list(chart.kinds))
    domain = {name: known[name] for name in chart.kinds if name in used}
    y, height = names_axis(chart.names)
    x = {"field": "from", "type": "quantitative", "title": chart.x.label,
         "scale": {"type": "log", "nice": False},
         "axis": {"format": ",~r", "tickCount": 6, "labelOverlap": True}}  # fmt: skip
    leads = {"type": "threshold", "domain": list(_LEADS), "range": list(_SHADES)}
    told = tooltip(("name", "case"), ("of", "leads"), ("lead", "lead, share"), ("from", "from"),
                 ("until", "until"))  # fmt: skip
    ties = {"transform": [{"filter": "isValid(datum.tie)"}]}
    at = tooltip(("name", "case"), ("tie", "tie at"), ("low", "interval from"), ("high", "to"))
    return {
        "data": inline("name of from until lead pale tie low high", rows, "name of pale"),
        "height": height,
        "encoding": {"y": y},
        "layer": [
            {"mark": {"type": "rect", "height": THICK},
             "encoding": {"x": x, "x2": {"field": "until"}, "color": colour_of(domain),
                          "opacity": {"condition": {"test": "datum.pale", "value": _UNSURE},
                                      "field": "lead", "type": "quantitative", "scale": leads,
                                      "legend": {"title": "leads by", "format": ".0%"}},
                          "tooltip": told}},
            whiskers(x, min(row[2] for row in rows), max(row[3] for row in rows)),
            {**ties, "mark": {"type": "tick", "style": "whisker", "thickness": 2},
             "encoding": {"x": {**x, "field": "tie"}, "tooltip": at}},
        ],
    }  # fmt: skip


def _areas(chart: Spans) -> Spec:
    """Rectangles over two axes, in the colours in turn by kind, which is a number."""
    assert chart.y is not None
    rows = [
        (each.start, each.end, each.low, each.high, each.kind, int(each.kind) % len(COLOURS))
        for each in chart.spans
    ]
    domain = {str(i): colour for i, colour in enumerate(COLOURS)}
    return {
        "data": inline("left right low high holder turn", rows, "turn"),
        "height": _AREA,
        "mark": {"type": "rect"},
        "encoding": {
            "x": {**axis_of(chart.x, ()), "field": "left"}, "x2": {"field": "right"},
            "y": {**axis_of(chart.y, ()), "field": "low"}, "y2": {"field": "high"},
            "color": colour_of(domain, False, "turn"),
            "tooltip": tooltip(("holder", chart.holder), ("left", f"from {chart.x.label}"),
                             ("right", "until"), ("low", f"from {chart.y.label}"),
                             ("high", "until")),
        },
    }  # fmt: skip
