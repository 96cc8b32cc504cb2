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
from sweeps.sections.section import Section
from tests.sweeps.report.golden import held, text_of

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
    found.append(ComparedCell(setting, 2 * setting.measured.value, 0.1))
    assert summary(found).startswith("3 cells: 2 within (1 of which set a mechanism), 1 refuted")
    assert grid(found).rows[0][6] == "within (sets the mechanism)"


def test_what_is_compared_is_told_as_it_was_last_looked_at() -> None:
    """Derated; within; of a known cause and of none; far too fast and far too slow."""
    half = ComparedCell(CELLS[0], CELLS[0].measured.value, 1.0, derate=0.5)
    near = ComparedCell(CELLS[0], CELLS[0].measured.value * 1.02, CELLS[0].measured.value * 0.03)
    far, fast, slow = (
        ComparedCell(
            CELLS[i].model_copy(update={"cause": "x", "group": why}),
            CELLS[i].measured.value * times, 0.1,
        )
        for i, why, times in ((1, "missing mechanism", 1.5), (0, "not comparable", 2),
                              (1, "not comparable", 0.25))
    )  # fmt: skip
    drawn = picture({"u280": [near, FOUND[2], far]})
    held("validation", text_of(Section("", [grid([half, FOUND[1]]), drawn])))
    texts = set(ElementTree.fromstring(svg([drawn])).itertext())
    assert {"+50 %", "+2.0 %"} <= texts
    doubted = {"u280": [fast, slow]}
    row = left(doubted)["not comparable"]
    assert row["refuted"] == 2 and row["widest"] == f"u280: {slow.cell.what} (-75%)"
    assert row["median error"] == round(2**1.5, 4)
    assert figures(doubted)["two-sided"] == 2


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
