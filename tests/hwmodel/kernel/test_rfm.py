"""Refresh management: closed forms, limits, what off means, and mistakes."""

from __future__ import annotations

import numpy as np
import pytest

from hwmodel.measure.refresh_cost import hammered, worst_case
from hwmodel.oracle.audit import audit
from hwmodel.oracle.command_log import CODE
from hwmodel.specs.memory_spec import MemorySpec, row_delay
from tests.hwmodel.memories import SHIPPED, spec
from tests.hwmodel.one_channel import ChannelResult, simulate_channel

MANAGED = [name for name in SHIPPED if spec(name).refresh.management]
ON = {"controller__refresh_management": "rfm"}
ACTIVATIONS = 2000


def hammer(memory: MemorySpec) -> ChannelResult:
    """Two rows of a bank in turn, one request at a time."""
    address = np.resize(np.array(hammered(memory), np.int64), ACTIVATIONS)
    nothing = np.zeros(ACTIVATIONS, np.int64)
    return simulate_channel(memory, nothing, address, nothing)


def count(result: ChannelResult, name: str) -> int:
    return int((result.commands.command == CODE[name]).sum())


@pytest.mark.parametrize("name", ["lpddr5-6400-x16", "lpddr6-10667-x12", "hbm3-6.4"])
def test_each_rfm_of_a_hammered_bank_takes_trfm_and_comes_after_raaimt_activations(
    name: str,
) -> None:
    """JEDEC's tax of a bank, tRFM / (RAAIMT x tRC + tRFM), to the tick: RFMs beyond RAAMMT."""
    quiet = {"controller__refresh": "none", "controller__read_queue": 1}
    off, on = (hammer(spec(name, **quiet, **more)) for more in ({}, ON))
    memory = spec(name, **quiet, **ON)
    limits = memory.refresh.management
    assert limits is not None
    scopes = ("bank",)
    takes = max(row_delay(memory, c, memory.activate_command, scopes) for c in ("RFM", "REFPB"))
    rfms = count(on, "RFM")
    assert rfms == -(-(ACTIVATIONS - limits.RAAMMT) // limits.RAAIMT)
    assert on.end_tick - off.end_tick == rfms * takes
    cycle = row_delay(memory, "ACT", "ACT", scopes)
    assert worst_case(memory) == pytest.approx(80 * cycle / (80 * cycle + takes))


@pytest.mark.parametrize("name", MANAGED)
def test_refresh_and_rfms_share_a_hammered_bank_as_the_closed_form_says(name: str) -> None:
    change = {"controller__read_queue": 1, "refresh__management__RAAIMT": 16}
    off, on = (hammer(spec(name, **change, **more)) for more in ({}, ON))
    assert off.end_tick / on.end_tick == pytest.approx(worst_case(spec(name, **change)), abs=0.03)


@pytest.mark.parametrize("name", MANAGED)
def test_no_bank_has_more_than_raammt_activations_and_the_auditor_sees_where_it_would(
    name: str,
) -> None:
    memory = spec(name, controller__read_queue=1, refresh__management__RAAIMT=8, **ON)
    on, off = hammer(memory), hammer(spec(name, controller__read_queue=1))
    assert count(on, "RFM") > 0
    assert audit(memory, on.commands, end_tick=on.end_tick) == []
    found = audit(memory, off.commands, end_tick=off.end_tick)
    assert found and all(v.rule.startswith("RFM: activation of a bank at") for v in found)


def test_an_rfm_that_nothing_asks_for_is_found() -> None:
    memory = spec("hbm3-6.4", controller__read_queue=1, refresh__management__RAAIMT=8, **ON)
    eased = spec("hbm3-6.4", controller__read_queue=1, refresh__management__RAAIMT=200, **ON)
    rules = {v.rule for v in audit(eased, hammer(memory).commands)}
    assert rules == {"RFM: no bank of the set is at 200"}


def test_refresh_alone_keeps_a_bank_below_raaimt_where_a_round_has_fewer_activations() -> None:
    """tREFI / tRC = 65 activations of LPDDR5 between two refreshes of a bank: fewer than 80."""
    assert count(hammer(spec("lpddr5-6400-x16", controller__read_queue=1, **ON)), "RFM") == 0
