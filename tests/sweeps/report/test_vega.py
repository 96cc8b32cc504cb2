"""Is every chart a valid Vega-Lite specification that draws what its record holds?"""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import altair
import pytest
import vl_convert

from sweeps.analyse.statistics import Interval
from sweeps.report.drawing import FORMS, VEGA_LITE, svg
from sweeps.report.palette import COLOURS, colours
from sweeps.report.vega import DARK, Spec, spec
from sweeps.sections.chart import (
    Axis,
    Bar,
    Bars,
    Chart,
    Dot,
    Lines,
    Points,
    RowSpan,
    Series,
    Spans,
)
from tests.rotation import rotated, shared

COMPARED = ("static", "paged", "paged block=32")
ONE = Interval(5.0, -math.inf, math.inf, 1)


def some(mean: float, half: float) -> Interval:
    return Interval(mean, mean - half, mean + half, 3)


RATES = Bars(
    "Output tokens/s",
    [Bar("static", some(400, 50)), Bar("paged", Interval(1200, 0, 6200, 5)),
     Bar("paged (analytic)", ONE, True)],
)  # fmt: skip
CAUSES = Bars(
    "paged over static, %",
    [Bar("reservation of memory for tokens that never come", some(1.0, 0.5)),
     Bar("holes", some(-0.25, 0.1), True), Bar("paged over static", some(0.5, 0.2))],
    "To scale in logarithms.", relative=True, waterfall=True,
)  # fmt: skip
LINES = Lines(
    "two & two", Axis("time, s"), Axis("requests"),
    [Series("static", [0, 1, 2], [3, 4, 5], [2, 3, 4], [4, 5, 6]), Series("paged", [0, 1], [1, 9])],
)  # fmt: skip
CHARTS: dict[str, Chart] = {
    "timeline": Spans(
        "commands", Axis("clocks"), ["bus", "bank 0"],
        [RowSpan("bank 0", 2, 9, "row open"), RowSpan("bank 0", 3, 4, "RD", "column 5"),
         RowSpan("bus", 7, 19, "RD"), RowSpan("bus", 30, 34, "RD")],
        {"RD": COLOURS[2], "WR": COLOURS[1], "row open": "#cde"}, frozenset({"row open"}), (3, 13),
    ),
    "dots": Points(
        "Error, %",
        {"within": {"bandwidth (2)": [Dot(0.01, "bandwidth", 0.03), Dot(-0.02, "latency", 0.03)]},
         "kernels": {"a: a step": [Dot(-0.5, "decode", 0.1)]}},
    ),
    "bars": RATES,
    "bars without intervals": Bars("Importance, %", [Bar("a", ONE), Bar("b", ONE)]),
    "waterfall": CAUSES,
    "tornado": replace(CAUSES, waterfall=False),
    "shares": Bars.stacked("Step, %", ["weights", "KV"],
                           {"static": [0.6, 0.4], "paged": [1.0, 0.0]}),
    "stacks": Bars.stacked("mJ", ["read", "refresh"], {"static": [6.0, 4.0]}, share=False),
    "lines": LINES,
    "band": Lines("b", Axis("n", zero=False), Axis("tokens"),
                  [Series("10 to 90 %", [1, 2], [3, 4], [1, 2], [5, 6], band=True),
                   Series("median", [1, 2], [3, 4])]),
    "steps": Lines("s", Axis("trial"), Axis("value", zero=False),
                   [Series("best", [0, 1], [3, 4], steps=True), Series("all", [0, 1], [3, 1])],
                   form="points"),
    "points": Lines("bandwidth", Axis("extent", "bytes"), Axis("GB/s"),
                    [Series("static", [16384], [250.0], [240.0], [260.0]),
                     Series("paged", [4096, 2**21], [100.0, 260.0])], form="points"),
    "named points": Lines("map", Axis("GiB", "log"), Axis("GB/s", "log"),
                          [Series("paged wins", [24, 80], [300, 2000], names=["l4", "a100"])],
                          form="points"),
    "named points on a line": Lines("map", Axis("GiB"), Axis("GB/s"), [
        Series("a", [24, 80], [300, 300], names=["l4", ""])], form="points"),
    "curves": Lines("TTFT, s", Axis("time, s", "log"), Axis("share of requests, %"), [
        Series("static", [1, 20, 300], [0, 50, 100]), Series("paged", [2, 4, 5], [0, 50, 100])],
        form="quantiles"),
    "patches": Spans("memory", Axis("time, s", tight=True), [], [
        RowSpan("", 0, 1, "3", low=0, high=10), RowSpan("", 1, 3, "12", low=5, high=9)], {},
        y=Axis("slot"), holder="request"),
    "regions": Spans("who", Axis("ratio", "log"), ["bf16", "int8"], [
        RowSpan("bf16", 0.1, 0.5, "static", lead=0.3), RowSpan("bf16", 0.5, 1, "paged", lead=0.02),
        RowSpan("int8", 0.1, 1, "paged", lead=0.7)], dict.fromkeys(["static", "paged", "odma"], ""),
        ties={"bf16": some(0.5, 0.1)}),
}  # fmt: skip


def data(found: Spec) -> list[dict[str, str]]:
    return list(csv.DictReader(found["data"]["values"].splitlines()))


def texts(picture: bytes) -> list[str]:
    root = ElementTree.fromstring(picture)
    return ["".join(node.itertext()) for node in root.iter() if node.tag.endswith("text")]


def scales(found: Any) -> dict[str, str]:
    """Every colour of a specification by what has it."""
    known: dict[str, str] = {}
    for part in found.values() if isinstance(found, dict) else found:
        known |= scales(part) if isinstance(part, (dict, list)) else {}
    if isinstance(found, dict) and isinstance(found.get("color"), dict):
        scale = found["color"].get("scale", {})
        known |= dict(zip(scale.get("domain", ()), scale.get("range", ()), strict=True))
    return known


@pytest.mark.parametrize(("name", "live"), rotated([*CHARTS], [False, True]))
def test_every_chart_is_valid_and_compiles(name: str, live: bool) -> None:
    found = spec(CHARTS[name], COMPARED, live)
    altair.Chart.from_dict(found, validate=True)
    altair.Chart.from_dict({**found, "config": DARK}, validate=True)
    assert vl_convert.vegalite_to_vega(found, VEGA_LITE)["marks"]


@pytest.mark.parametrize("name", shared(CHARTS))
def test_every_chart_is_a_picture_of_each_kind(name: str) -> None:
    starts = {".svg": b"<svg", ".png": b"\x89PNG", ".pdf": b"%PDF"}
    for ending, form in FORMS.items():
        assert form([CHARTS[name]], COMPARED).startswith(starts[ending])


def test_what_is_drawn_is_what_the_record_holds() -> None:
    assert [(row["name"], row["value"], row.get("low", "")) for row in data(spec(RATES))] == [
        ("static", "400", "350"), ("paged", "1200", "0"), ("paged (analytic)", "5", ""),
    ]  # fmt: skip
    shares = data(spec(CHARTS["shares"]))
    assert [(row["part"], float(row["start"]), float(row["end"])) for row in shares] == [
        ("weights", 0, 60), ("KV", 60, 100), ("weights", 0, 100),
    ]  # fmt: skip
    assert {"static", "paged (analytic)", "400.0", "1,200"} <= set(texts(svg([RATES])))
    spans = [(row["name"], row["start"], row["end"]) for row in data(spec(CHARTS["timeline"]))]
    assert spans == [("bank 0", "3", "9"), ("bank 0", "3", "4"), ("bus", "7", "13")]


def test_a_policy_has_one_colour_in_every_chart() -> None:
    for name in ("bars", "lines", "points", "curves", "regions"):
        found = scales(spec(CHARTS[name], COMPARED))
        assert found["paged"] == COLOURS[1] and found["static"] == COLOURS[0]
    assert scales(spec(CHARTS["named points"], COMPARED)) == {"paged wins": COLOURS[1]}
    assert "paged (analytic)" not in scales(spec(RATES, COMPARED))
    assert len(set(colours(COMPARED).values())) == len(COMPARED)
    assert colours(("paged", "static"))["paged"] == colours(("odma", "paged"))["paged"]


def test_what_is_switched_off_is_not_drawn() -> None:
    found = spec(RATES, COMPARED, live=True) | {"width": 400}
    for off, left in (
        ([], {"static", "paged", "paged (analytic)"}),
        (["paged"], {"static"}),
        (["controls"], {"static", "paged"}),
    ):
        found["params"] = [{"name": "off", "value": off}]
        drawn = texts(vl_convert.vegalite_to_svg(found, VEGA_LITE).encode())
        assert {text for text in drawn if text[0].isalpha()} == left
    assert "params" not in spec(RATES, COMPARED)
