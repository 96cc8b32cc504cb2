"""Per-row activation counting: closed forms, limits, what resets a counter, and mistakes."""

from __future__ import annotations

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.measure.c_host import image
from hwmodel.measure.channels import Channels
from hwmodel.measure.refresh_cost import alert_cost, alert_worst_case, hammered
from hwmodel.oracle.audit import audit
from hwmodel.oracle.command_log import CODE
from hwmodel.specs.device import load_device
from hwmodel.specs.memory_spec import MemorySpec
from tests.hwmodel.memories import spec
from tests.hwmodel.one_channel import ChannelResult, simulate_channel

NAME = "ddr5-4800-x32-prac"
ON = {"controller__row_counting": "prac"}
QUIET = {"controller__refresh": "none", "controller__read_queue": 1}
ACTIVATIONS = 2000


def made(threshold: int = 16, **more: object) -> MemorySpec:
    return spec(NAME, refresh__alerts__threshold=threshold, **{**QUIET, **more})


def hammer(memory: MemorySpec, rows: int = 2) -> ChannelResult:
    """Rows of a bank in turn, one request at a time."""
    o = memory.organisation
    step = o.capacity_bytes // o.rows * 32  # rows that hash to one bank
    address = np.resize(step * np.arange(rows), ACTIVATIONS).astype(np.int64)
    nothing = np.zeros(ACTIVATIONS, np.int64)
    return simulate_channel(memory, nothing, address, nothing)


def count(result: ChannelResult, name: str) -> int:
    return int((result.commands.command == CODE[name]).sum())


@pytest.mark.parametrize("rfms", [1, 2, 4])
@pytest.mark.parametrize("threshold", [16, 100])
def test_a_back_off_of_a_hammered_bank_takes_its_rfms_and_no_tick_more(
    threshold: int, rfms: int
) -> None:
    """Two rows in turn: each alert takes 2 N - 1 activations, three more go on for 180 ns, and the
    RFMABs reset both rows, or with one RFMAB the row that has more."""
    more = {"refresh__alerts__rfms": rfms}
    memory = made(threshold, **more, **ON)
    off, on = hammer(made(threshold, **more)), hammer(memory)
    backs, rest = divmod(count(on, "RFMAB"), rfms)
    assert rest == 0
    assert on.end_tick - off.end_tick == backs * rfms * memory.ticks("tRFMab")
    if rfms > 1:
        every = 2 * threshold - 1 + 3
        assert backs == (ACTIVATIONS + 1 - 4) // every  # the last row stays open
        cycle = off.end_tick / ACTIVATIONS
        takes = rfms * memory.ticks("tRFMab")
        expected = every * cycle / (every * cycle + takes)
        assert alert_worst_case(memory) == pytest.approx(expected, rel=1e-3)


def test_where_every_row_is_critical_a_rank_works_for_the_delay_and_the_reaction_alone() -> None:
    """Many rows one below the threshold, then all once more: seven activations between back-offs of
    four, four of the delay and three within 180 ns."""
    memory = made(2, **ON)
    on = hammer(memory, 400)
    activations = np.flatnonzero(np.isin(on.commands.command, [CODE["ACT"], CODE["RFMAB"]]))
    code = on.commands.command[activations]
    first = np.flatnonzero(code == CODE["RFMAB"])
    runs = np.diff(first)[np.diff(first) > 1] - 1
    assert set(runs[:20].tolist()) == {7}


def test_refreshes_that_reset_rows_keep_a_slow_hammer_from_the_threshold() -> None:
    """Of one refresh a turn each resets all rows: 68 activations fit between two."""
    refreshed = {"controller__refresh": "all_bank", **ON}
    kept = hammer(made(100, **refreshed))
    reset = {"refresh__alerts__reset": "refresh", "refresh__alerts__refreshes": 1}
    assert count(kept, "RFMAB") > 0
    assert count(hammer(made(100, **refreshed, **reset)), "RFMAB") == 0
    late = {**reset, "refresh__alerts__refreshes": 8192}
    assert count(hammer(made(100, **refreshed, **late)), "RFMAB") == count(kept, "RFMAB")


def test_the_auditor_sees_an_alert_that_is_not_answered_and_an_rfmab_that_nothing_asks_for() -> (
    None
):
    memory, eased = made(**ON), made(300, **ON)
    on, off = hammer(memory), hammer(made())
    assert audit(memory, on.commands, end_tick=on.end_tick) == []
    rules = {v.rule for v in audit(memory, off.commands, limit=10**6)}
    assert "alert: activation in a back-off" in rules
    assert all(rule.startswith("alert: ") for rule in rules)
    assert {v.rule for v in audit(eased, on.commands)} == {"alert: RFMAB outside a back-off"}


def test_a_refresh_that_no_back_off_excuses_is_missed() -> None:
    refreshed = {"controller__refresh": "all_bank", **ON}
    often, never = made(16, **refreshed), made(100_000, **refreshed)
    log = hammer(often).commands
    assert audit(often, log) == [] and CODE["RFMAB"] in log.command
    log = hammer(never).commands
    ninth = np.flatnonzero(log.command == CODE["REFAB"])[8]
    without = log.take(np.arange(len(log.tick)) != ninth)
    rules = {violation.rule for violation in audit(never, without)}
    assert "refresh debt: rank 0 more than 1 behind" in rules


def test_a_snapshot_has_counters_of_its_own() -> None:
    settings = ["controller.row_counting=prac", "controller.read_queue=1"]
    device = load_device(NAME, [*settings, "refresh.alerts.threshold=16"])
    channels = Channels(device, keep_commands=True)
    address = np.resize(np.array(hammered(channels.device.memory)), 28)
    channels.submit(0, address)
    channels.drain()
    before = channels.snapshot()
    logs = []
    for _ in range(2):
        channels.submit(channels.now, address)
        channels.drain()
        logs.append(channels.commands()[0].command)
        channels.restore(before)
    assert CODE["RFMAB"] in logs[0]
    np.testing.assert_array_equal(*logs)
    with pytest.raises(DescriptionError, match="expected none for a C host"):
        image(channels)


def test_alerts_cost_ordinary_streams_nothing_and_a_hammered_bank_what_the_closed_form_says() -> (
    None
):
    memory = spec(NAME, controller__refresh="none")
    costs = alert_cost(memory, 2 << 20)
    assert costs["in order"] == costs["64 B"] == {"share": 1.0, "alerts": 0.0}
    strict = made(64, controller__read_queue=64)
    hard = alert_cost(strict, 2 << 20)["row pair"]["share"]
    assert hard == pytest.approx(alert_worst_case(strict), abs=0.01)
