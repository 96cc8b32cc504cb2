"""The specification of places: a line a competitor along one axis, at chosen values of the others.

The axis and the values are parameters of Vega's own, each bound to a list to choose from.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from sweeps.report.encoding import Spec, axis_of, colour_of, inline, tooltip
from sweeps.report.palette import colours
from sweeps.sections.chart import Places

_HIGH = 300
"""Pixels."""


def places(chart: Places, compared: Sequence[str]) -> Spec:
    """Points joined along the chosen axis; values in between are not known."""
    labels = list(chart.axes)
    names = list(dict.fromkeys(each.name for each in chart.values))
    fields = [f"at{i}" for i in range(len(labels))]
    order = [value for values in chart.axes.values() for value in values]
    alike = [
        {"filter": f"along === {json.dumps(label)} || datum.{field} === of{i}"}
        for i, (label, field) in enumerate(zip(labels, fields, strict=True))
    ]
    place = "datum.of"
    for label, field in zip(labels, fields, strict=True):
        place = f"along === {json.dumps(label)} ? datum.{field} : {place}"
    words = " ".join(["of", *fields])
    x = {"field": "place", "type": "ordinal", "sort": [*order, *names], "title": None,
         "scale": {"type": "point", "padding": 0.3}, "axis": {"labelAngle": 0,
         "labelOverlap": True, "grid": False}}  # fmt: skip
    y = axis_of(chart.y, [each.value.mean for each in chart.values]) | {"title": None}
    return {
        "data": inline(f"of {' '.join(fields)} y low high".replace("  ", " "),
                       chart.rows(), words),
        "params": _params(chart),
        "transform": [*alike, {"calculate": place, "as": "place"}],
        "height": _HIGH,
        "encoding": {"x": x, "color": colour_of(colours(compared, names)),
                     "tooltip": tooltip(("of", "name"), ("place", "at"), ("y", chart.y.label),
                                        ("low", "low"), ("high", "high"))},
        "layer": [
            {"mark": {"type": "line"}, "encoding": {"y": {**y, "field": "y"}}},
            {"mark": {"type": "rule"}, "transform": [{"filter": "isValid(datum.low)"}],
             "encoding": {"y": {**y, "field": "low"}, "y2": {"field": "high"}}},
            {"mark": {"type": "point", "filled": True, "size": 60},
             "encoding": {"y": {**y, "field": "y"}}},
        ],
    }  # fmt: skip


def _params(chart: Places) -> list[Spec]:
    """The axis that is drawn along, the longest at first, and of each axis the value elsewhere: to
    choose from where there are several."""
    labels = sorted(chart.axes, key=lambda label: -len(chart.axes[label]))
    lists = {"along": labels, **{f"of{i}": each for i, each in enumerate(chart.axes.values())}}
    words = ["along", *chart.axes]
    return [
        {"name": name, "value": next(iter(options), "")}
        | ({"bind": {"input": "select", "options": options, "name": f"{word} "}}
           if len(labels) > 1 else {})
        for word, (name, options) in zip(words, lists.items(), strict=True)
    ]  # fmt: skip
