"""Does the validation page show every cell, and is its picture one?"""

from __future__ import annotations

from xml.etree import ElementTree

from policies.memory.measured import Compared, load_measurements
from sweeps.report.drawing import svg
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


def test_agreements_that_set_a_mechanism_are_counted_apart() -> None:
    setting = CELLS[0].model_copy(update={"sets": "collected writes"})
    found = [Compared(cell, cell.measured.value, 1.0) for cell in (setting, CELLS[1])]
    assert summary(found).startswith("2 cells: 2 within (1 of which set a mechanism), 0 refuted")
    assert grid(found).rows[0][6] == "within (sets the mechanism)"


def test_a_derated_figure_stands_beside_the_simulated_one() -> None:
    half = Compared(CELLS[0], CELLS[0].measured.value, 1.0, derate=0.5)
    table = grid([half, FOUND[1]])
    assert table.columns[-1] == "without derate"
    assert [row[-1] for row in table.rows] == ["26.54 GB/s (+100.0%)", "–"]


def test_whiskers_reach_none_where_the_model_is_within() -> None:
    near = Compared(CELLS[0], CELLS[0].measured.value * 1.02, CELLS[0].measured.value * 0.03)
    far, inside = errors({"u280": [FOUND[0], near]}).bars
    assert far.value.low > 0 > inside.value.low


def test_the_picture_names_every_cell_and_its_error() -> None:
    root = ElementTree.fromstring(svg([errors({"u280": FOUND})]))
    texts = ["".join(node.itertext()) for node in root.iter() if node.tag.endswith("text")]
    assert texts.count("+5.0 %") == len(FOUND)
