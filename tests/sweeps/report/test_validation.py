"""Does the validation page show every cell, and is its picture one?"""

from __future__ import annotations

from xml.etree import ElementTree

from policies.memory.measured import load_measurements
from policies.memory.measured_cells import ComparedCell
from sweeps.ask.validation import (
    causes,
    figures,
    grid,
    left,
    loaded,
    picture,
    record,
    sources,
    spec_of,
    summary,
)
from sweeps.report.drawing import svg

CELLS = load_measurements("u280-hbm2-channel").cells[:4]
FOUND = [
    ComparedCell(cell, cell.measured.value * 1.05, cell.measured.value * 0.03) for cell in CELLS
]


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
    found = [ComparedCell(cell, cell.measured.value, 1.0) for cell in (setting, CELLS[1])]
    assert summary(found).startswith("2 cells: 2 within (1 of which set a mechanism), 0 refuted")
    assert grid(found).rows[0][6] == "within (sets the mechanism)"


def test_a_derated_figure_stands_beside_the_simulated_one() -> None:
    half = ComparedCell(CELLS[0], CELLS[0].measured.value, 1.0, derate=0.5)
    table = grid([half, FOUND[1]])
    assert table.columns[-1] == "without derate"
    assert [row[-1] for row in table.rows] == ["26.54 GB/s (+100.0%)", "–"]


def test_the_picture_has_agreements_by_kind_and_the_rest_by_name_under_their_group() -> None:
    near = ComparedCell(CELLS[0], CELLS[0].measured.value * 1.02, CELLS[0].measured.value * 0.03)
    grouped = CELLS[1].model_copy(update={"cause": "x", "group": "missing mechanism"})
    far = ComparedCell(grouped, grouped.measured.value * 1.5, 1.0)
    drawn = picture({"u280": [near, FOUND[2], far]})
    rows = {group: list(named) for group, named in drawn.groups.items()}
    assert rows == {
        "within tolerance": ["bandwidth (1)"],
        "no cause known": [f"u280: {CELLS[2].what}"],
        "missing mechanism": [f"u280: {grouped.what}"],
    }
    root = ElementTree.fromstring(svg([drawn]))
    texts = ["".join(node.itertext()) for node in root.iter() if node.tag.endswith("text")]
    assert "+50 %" in texts and "+2.0 %" in texts


def test_what_to_doubt_first_is_counted_by_cause() -> None:
    fast, slow = (c.model_copy(update={"cause": "x", "group": "not comparable"}) for c in CELLS[:2])
    found = {"u280": [ComparedCell(fast, 2 * fast.measured.value, 0.1),
                      ComparedCell(slow, slow.measured.value / 4, 0.1)]}  # fmt: skip
    row = left(found)["not comparable"]
    assert row["refuted"] == 2 and row["widest"] == f"u280: {slow.what} (-75%)"
    assert row["median error"] == round(2**1.5, 4)
    assert figures(found)["two-sided"] == 2


def test_every_cause_that_ships_says_where_it_lies() -> None:
    for name in sources():
        for cell in spec_of(loaded(name)).cells:
            assert bool(cell.cause) == bool(cell.group), f"{name}: {cell.what}"


def test_the_record_keeps_candidates_and_their_figures() -> None:
    spec = load_measurements("u280-hbm2-channel")
    bare = record(spec, FOUND)["candidates"]
    assert bare == {name: {"set": settings} for name, settings in spec.candidates.items()}
    others = dict.fromkeys(spec.candidates, FOUND)
    for item in record(spec, FOUND, others)["candidates"].values():
        assert [cell["error"] for cell in item["cells"]] == [found.error for found in FOUND]
