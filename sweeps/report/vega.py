"""Charts as Vega-Lite specifications: one builder a form.

A specification holds its data as CSV, and no colour of text or paper: those are the theme's
(`LIGHT`, `DARK`). Where `live`, it answers to the pointer, and leaves out the names that its
parameter `off` lists; `controls` is one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sweeps.report.area_forms import lines
from sweeps.report.encoding import Spec
from sweeps.report.places_form import places
from sweeps.report.points_form import kinds, points
from sweeps.report.row_forms import bars
from sweeps.report.spans_form import spans
from sweeps.sections.chart import Bars, Chart, Lines, Places, Points, Spans

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
CONTROLS = "controls"
"""In `off`: the bars that stand back."""


def spec(chart: Chart, compared: Sequence[str] = (), live: bool = False) -> Spec:
    """The specification of a chart without its title; `compared`: what the run compares."""
    match chart:
        case Bars():
            found = bars(chart, compared)
        case Lines():
            found = lines(chart, compared, live)
        case Spans():
            found = spans(chart, compared)
        case Points():
            found = points(chart)
        case Places():
            found = places(chart, compared)
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
        case Bars():
            return chart.parts
        case Spans():
            return () if chart.y else chart.kinds
        case Points():
            return kinds(chart)
        case Places():
            return dict.fromkeys(each.name for each in chart.values)
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
        "params": [switch, *found.get("params", [])],
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
