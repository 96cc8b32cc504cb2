"""What a simulation was too short to meet: RFMs and alerts, whose counters begin with 0."""

from __future__ import annotations

import ctypes

import numpy as np
from numpy.typing import NDArray

from hwmodel.specs.commands import COMMANDS
from hwmodel.specs.memory_spec import MemorySpec, row_delay

MATTERS = 0.005
"""Share of its time that RFMs have to take of the busiest bank before they are missed
(assumed)."""
HAMMERED = 16
"""Activations of one row within a simulation from which on it is taken to go on like that
(assumed); streams that open a row once or twice in passing do not."""


def unmet(
    memory: MemorySpec, constants: NDArray[np.void], states: NDArray[np.void], ticks: int
) -> str:
    """What would come if the channels went on for long as they did for `ticks`, and did not come;
    empty: nothing."""
    tick_ns = float(memory.tick_clock.ns_of_ticks(1))
    if memory.managed and (need := _rfm_after(memory, constants[0], states, ticks)):
        return f"RFMs are due at this rate after {need * tick_ns:,.0f} ns"
    if memory.alerts and (need := _alert_after(memory, constants[0], states, ticks)):
        return f"an alert is due at this rate after {need * tick_ns:,.0f} ns"
    return ""


def _rfm_after(memory: MemorySpec, c: np.void, states: NDArray[np.void], ticks: int) -> int:
    """Ticks after which the busiest bank is at its limit; 0 where RFMs were met or take little."""
    banks = memory.organisation.bank_numbers
    interval, limits = memory.refresh_ticks(), memory.refresh.management
    assert limits is not None
    off = int(c["raa_by_refresh"]) * ticks / interval if interval else 0.0
    more = np.maximum(states["bank_commands"][:, :banks, 0] - off, 0.0)
    due = float(more.sum()) / int(c["raa_by_rfm"])
    takes = row_delay(memory, "RFM", memory.activate_command, ("bank", "rank", "pseudochannel"))
    takes = takes or row_delay(memory, "REFPB", memory.activate_command, ("bank", "rank"))
    met = int(states["commands"][:, COMMANDS.index("RFM")].sum()) * len(memory.refresh_sets()[0])
    each = float(more.max()) / int(c["raa_by_rfm"])  # of the busiest bank
    if each * takes <= MATTERS * ticks or 2 * met >= due:
        return 0
    return int(limits.RAAMMT * ticks / more.max())


def _alert_after(memory: MemorySpec, c: np.void, states: NDArray[np.void], ticks: int) -> int:
    """Ticks after which the row of most activations alerts; 0 where one did, or none is in time."""
    alerts = memory.alerts
    assert alerts is not None
    if states["alerts"].any():
        return 0
    rows = ctypes.c_int32 * int(c["rows_counted"])
    most = max(
        int(np.ctypeslib.as_array(rows.from_address(int(place))).max())
        for place in states["row_counts"]
    )
    need = alerts.threshold * ticks // max(most, 1)
    if alerts.reset == "refresh" and memory.refresh_ticks():
        in_time = need < alerts.refreshes * memory.refresh_ticks()
    else:
        in_time = True
    return need if most >= HAMMERED and in_time else 0
