"""Where dropping parameters pays, by burst and way: the picture of docs/bursts.md."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.figures import Value

WAYS = ("dropping", "fp8 KV", "five cards", "migration", "lending", "swap")
MOST = 50.0
"""Where the colours end."""


def rows_of(values: Mapping[str, Value]) -> list[dict[str, Any]]:
    """A row for each burst and way: times sooner, and whether its interval leaves 1 out. values:
    those of a part, by key."""
    found = []
    for key, value in values.items():
        table, _, rest = key.partition("/")
        burst, _, way = rest.rpartition("/")
        if table != "sooner" or way not in WAYS or not isinstance(value, list):
            continue
        mean, low, high = value
        sure = low > 1 or high < 1
        found.append({
            "burst": burst, "way": way, "times": mean, "sure": sure,
            "text": f"{mean:.1f}" if mean < 9.95 else f"{mean:.0f}",
        })  # fmt: skip
    return found


def picture(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """A Vega-Lite description: bursts downwards, ways to the right, times sooner as colour."""
    where = {
        "y": {"field": "burst", "type": "nominal", "title": None, "sort": None,
              "axis": {"labelLimit": 320}},
        "x": {"field": "way", "type": "nominal", "title": None, "sort": list(WAYS),
              "axis": {"orient": "top", "labelAngle": 0}},
    }  # fmt: skip
    colour = {
        "field": "times", "type": "quantitative", "title": "times sooner",
        "scale": {"type": "log", "domain": [1 / MOST, 1, MOST], "clamp": True,
                  "range": ["#2166ac", "#f7f7f7", "#b2182b"]},
        "legend": {"values": [0.02, 0.1, 1, 10, 50]},
    }  # fmt: skip
    white = {"condition": {"test": "datum.times > 15", "value": "white"}, "value": "black"}
    said = {**where, "text": {"field": "text"}, "color": white}
    numbers = [
        {"transform": [{"filter": test}], "encoding": said,
         "mark": {"type": "text", "fontSize": 12, "fontWeight": weight}}
        for test, weight in (("datum.sure", "bold"), ("!datum.sure", "normal"))
    ]  # fmt: skip
    return {
        "background": "white", "padding": {"left": 60, "right": 30, "top": 10, "bottom": 10},
        "title": {
            "text": "How many times sooner the 99th percentile of first tokens comes",
            "subtitle": "than with four replicas; bold: the 95 % interval leaves 1 out",
        },
        "data": {"values": rows},
        "width": {"step": 78}, "height": {"step": 26},
        "layer": [{"mark": "rect", "encoding": {**where, "color": colour}}, *numbers],
    }  # fmt: skip


def draw(values: Mapping[str, Value], file: Path) -> None:
    """Write the picture of a part's values as SVG."""
    import vl_convert  # heavy

    file.write_text(vl_convert.vegalite_to_svg(picture(rows_of(values))), encoding="utf-8")
