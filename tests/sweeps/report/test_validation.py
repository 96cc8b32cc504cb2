"""Does the validation page show every cell, and is its picture one?"""

from __future__ import annotations

from xml.etree import ElementTree

from policies.memory.measured import Compared, load_measurements
from sweeps.report.chart import Axis, Lines, Series
from sweeps.report.drawing import figure
from sweeps.report.svg import svg
from sweeps.report.validation import causes, errors, grid, record, summary

CELLS = load_measurements("u280-hbm2-channel").cells[:4]
FOUND = [Compared(cell, cell.measured.value * 1.05, cell.measured.value * 0.03) for cell in CELLS]


def test_the_table_and_the_record_agree() -> None:
    spec = load_measurements("u280-hbm2-channel")
    cells = record(spec, FOUND)["cells"]
    assert [row[6].removesuffix(", LOST") for row in grid(FOUND).rows] == [
        cell["verdict"] for cell in cells
    ]
    assert summary(FOUND) == "4 cells: 0 within, 4 refuted, 0 lower limit, 0 input"
    assert list(causes(FOUND)) == [cell["what"] for cell in cells if cell["cause"]]


def test_a_derated_figure_stands_beside_the_simulated_one() -> None:
    half = Compared(CELLS[0], CELLS[0].measured.value, 1.0, derate=0.5)
    table = grid([half, FOUND[1]])
    assert table.columns[-1] == "without derate"
    assert [row[-1] for row in table.rows] == ["26.54 GB/s (+100.0%)", "–"]


def test_whiskers_reach_none_where_the_model_is_within() -> None:
    near = Compared(CELLS[0], CELLS[0].measured.value * 1.02, CELLS[0].measured.value * 0.03)
    far, inside = errors({"u280": [FOUND[0], near]}).bars
    assert far.value.low > 0 > inside.value.low


def test_the_picture_is_well_formed_and_has_the_bars_of_the_page() -> None:
    chart = errors({"u280": FOUND})
    root = ElementTree.fromstring(svg(chart))
    drawn = [node for node in root.iter() if node.tag.endswith("svg") and node is not root]
    assert len(drawn) == len(FOUND)
    assert "+5.0 %" in svg(chart) and "+5.0 %" in figure(chart, "x")


def test_the_picture_of_lines_is_well_formed_and_has_each_series() -> None:
    series = [Series(name, [0, 1, 2], [3, high, 5]) for name, high in (("a", 4), ("b", 9))]
    root = ElementTree.fromstring(svg(Lines("two & two", Axis("s"), Axis("requests"), series)))
    texts = [node.text for node in root.iter() if node.tag.endswith("text")]
    assert {"two & two", "a", "b", "s"} <= set(texts)
    assert sum(node.get("class") == "curve" for node in root.iter()) == 2
