"""Are the models where measurements say that they are, and are mistakes in these placed?"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from hwmodel.description.library import names
from policies.memory.attention_read import AttentionRead
from policies.memory.measured import MeasurementSpec, compare, load_measurements
from policies.memory.measured_cells import ComparedCell, Quantity, Tolerance
from policies.memory.measured_steps import Decode
from tests.rotation import long

QUICK = ("bandwidth", "latency", "energy")
CARD = "llama-2-7b-a100-80gb"


def only(spec: MeasurementSpec, *places: int) -> MeasurementSpec:
    """The measurements with these cells alone."""
    return spec.model_copy(update={"cells": [spec.cells[at] for at in places]})


@pytest.mark.parametrize("part", [0, *long(1, 2, 3, 4, 5)])
@pytest.mark.parametrize("name", names("measurements"))
def test_no_agreement_is_lost(name: str, part: int) -> None:
    """Of the cells that take a second or less, all but step times: each sixth."""
    spec = load_measurements(name)
    quick = [i for i, cell in enumerate(spec.cells) if cell.agrees and cell.kind in QUICK][part::6]
    found = compare(only(spec, *quick))
    assert [f"{item.cell.what}: {item.error:+.1%}" for item in found if item.lost] == []


@pytest.mark.long
@pytest.mark.parametrize("name", names("measurements"))
def test_no_agreement_on_step_times_is_lost(name: str) -> None:
    spec = load_measurements(name)
    kept = [i for i, cell in enumerate(spec.cells) if cell.agrees and cell.kind not in QUICK]
    found = compare(only(spec, *kept))
    assert [f"{item.cell.what}: {item.error:+.1%}" for item in found if item.lost] == []


def test_verdicts_by_hand() -> None:
    cell = load_measurements(CARD).cells[0]
    measured = cell.measured.value

    def verdict(error: float, stands: str = "measured", agrees: bool = False) -> tuple[str, bool]:
        changed = cell.model_copy(update={"stands": stands, "agrees": agrees})
        item = ComparedCell(changed, measured * (1 + error), measured * 0.1)
        assert item.error == pytest.approx(error)
        return item.verdict, item.lost

    assert verdict(0.09) == verdict(-0.09, agrees=True) == ("within", False)
    assert verdict(0.11) == ("refuted", False)
    assert verdict(-0.11, agrees=True) == ("refuted", True)
    whole, just = 0.125, cell.model_copy(update={"measured": Quantity(8.0, "GB/s")})
    for stands, told in (("measured", "within"), ("lower_limit", "lower limit")):
        edge = just.model_copy(update={"stands": stands})
        assert ComparedCell(edge, 8.0 - whole, whole).verdict == told  # as far as it may be
    # a lower limit of a rate is an upper limit of a time
    assert verdict(-0.5, "lower_limit") == verdict(0.09, "lower_limit") == ("lower limit", False)
    assert verdict(0.11, "lower_limit") == ("refuted", False)
    assert verdict(0.5, "input") == ("input", False)


def test_a_prediction_is_open_until_it_is_measured_and_judged_by_its_own_interval() -> None:
    cell = load_measurements("register-2026-11").cells[0]
    low, high = (each.value for each in cell.interval or ())
    assert ComparedCell(cell, 100 * high, 50.0).verdict == "open"
    for measured, verdict in ((low, "within"), (high, "within"), (0.99 * low, "refuted"),
                              (1.01 * high, "refuted")):  # fmt: skip
        known = cell.model_copy(update={"measured": Quantity(measured, cell.stated.unit)})
        assert ComparedCell(known, 1.0, 50.0).verdict == verdict


@pytest.mark.parametrize("read", [
    partial(Decode, batch=1, context=64),
    partial(AttentionRead, sequences=8, tokens=64, kv_heads=2, block=16),
])  # fmt: skip
def test_a_rate_is_beyond_a_shorter_read(read: Any) -> None:
    assert read(since=63).since == 63
    with pytest.raises(ValueError, match="expected a shorter"):
        read(since=64)


def test_how_is_a_figure_written() -> None:
    figures = [(14.0, "GB/s"), (2.5, "x"), (12.345, "%"), (1234.5, "tokens/s"), (999.96, "ms")]
    assert [str(Quantity(*each)) for each in figures] == [
        "14 GB/s", "2.5x", "12.35%", "1,234 tokens/s", "1000 ms"
    ]  # fmt: skip
    share, absolute = (Tolerance(within=within, reason="") for within in ("3%", "2ns"))
    measured = Quantity(50.0, "ns")
    assert (share.around(measured), absolute.around(measured)) == (1.5, 2.0)
