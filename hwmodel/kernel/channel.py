"""The kernel of one DRAM channel: event-driven, no allocation inside; drivers call it.

Semantics: tests/hwmodel/oracle/rules.md, held against `tests.hwmodel.oracle.reference`
command by command. The kernel never ticks: the earliest tick of each command at each bank is kept
as commands are issued, and each decision jumps to the first candidate's. In all parts of kernels
`memory` is a CONSTANTS record, `state` a CHANNEL record (modified in place).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hwmodel.kernel.candidates import choose
from hwmodel.kernel.channel_state import CHANNEL, INBOX, MOST_POWER_EVENTS, RUN_TICK
from hwmodel.kernel.compiling import CONSTANT_FIELDS
from hwmodel.kernel.host import array_at
from hwmodel.kernel.issue import apply, write_log
from hwmodel.kernel.jit import c_function, called, inlined, once
from hwmodel.kernel.kernel_names import (
    CLASS_BITS,
    DRAINED,
    LOG_FULL,
    RD,
    REACHED,
    WANTS_INPUT,
    Record,
)
from hwmodel.kernel.limits import Int
from hwmodel.kernel.power import nothing_waits, stirred
from hwmodel.kernel.queues import enter, set_modes
from hwmodel.kernel.refresh import update_refresh

SLICE = 1 << 22
"""Ticks after which a simulation returns to Python, which then sees a signal: under a second."""


@inlined
def _waits_a_tick(memory: Record, state: Record) -> bool:
    """Whether a request enters one tick later, before the one bus takes another command."""
    if memory.late_entry == 0 or state.left_at != state.now or memory.one_bus == 0:
        return False
    taken = state.bus_free[memory.bus[0, RD]] > state.now
    return taken and state.inbox[RUN_TICK, state.head & (INBOX - 1)] <= state.now


@called
def _write_power_events(state: Record, log: Int) -> None:
    """Log the entries and exits that come before the next command."""
    for i in range(state.power_events):
        write_log(state, log, state.power_event[i, 0], state.power_event[i, 1], 0, -1)
    state.power_events = 0


@called
def advance(memory: Record, state: Record, until: int, log: Int, completions: Int) -> int:
    """Run the channel up to (not including) tick `until`.

    `completions` (engines, ring size) collects bytes returned to each engine by tick modulo the
    ring; shape (1, 1) where none waits. `log` (n, 5) takes tick, command, bank, row, column; (n, 6)
    in its last column, of column commands, the row of `completions`; (n, 3) tick, command and that
    row, of column commands alone. Returns REACHED, WANTS_INPUT (inbox empty and the stream not
    closed), LOG_FULL or DRAINED.
    """
    while True:
        if state.now >= until:
            return REACHED
        enter(memory, state, completions)
        empty = state.head == state.tail
        if empty and state.stream_closed == 0:
            return WANTS_INPUT
        if state.now >= state.next_due:
            update_refresh(memory, state)
        set_modes(memory, state)
        if not empty and _waits_a_tick(memory, state):
            state.now += 1
            continue
        if empty and nothing_waits(memory, state):
            return DRAINED
        key, _, command, bank, slot = choose(memory, state)
        tick = key >> CLASS_BITS
        event = state.next_due
        if not empty:
            arrival = state.inbox[RUN_TICK, state.head & (INBOX - 1)]
            if arrival > state.now:
                event = min(event, arrival)
            elif memory.late_entry == 1 and state.left_at == state.now:
                event = min(event, state.now + 1)
        if event <= tick:
            state.now = min(event, until)
            continue
        if tick >= until:
            state.now = until
            return REACHED
        if log.shape[0] > 0 and state.logged + MOST_POWER_EVENTS * memory.sleeps >= log.shape[0]:
            return LOG_FULL
        if memory.sleeps == 1:
            stirred(memory, state, command, tick)
            if state.power_events > 0:
                _write_power_events(state, log)
        write_log(state, log, tick, command, bank, slot)
        state.now = tick
        order = key & ((1 << CLASS_BITS) - 1)
        apply(memory, state, command, order, bank, slot, completions)


@once
def runner(kind: np.dtype[np.void]) -> Any:
    """`advance` as drivers call it, by its address: for CONSTANTS of a type, the addresses of a
    channel's records, and arrays as their address, rows and row length."""

    def bankwise_advance(
        constants: int, state: int, until: int, log: int, log_rows: int, log_fields: int,
        completions: int, completion_rows: int, completion_ticks: int,
    ) -> int:  # fmt: skip
        return advance(
            array_at(constants, (1,), kind)[0],
            array_at(state, (1,), CHANNEL)[0],
            until,
            array_at(log, (log_rows, log_fields), np.int64),
            array_at(completions, (completion_rows, completion_ticks), np.int64),
        )

    # NOTE: kinds that different processes compiled would share a symbol, and the first one loaded
    # would serve all: the number by which Numba tells them apart is that of a process.
    shape = next((name for name in kind.names or () if name in CONSTANT_FIELDS), "any")
    bankwise_advance.__qualname__ = f"bankwise_advance_{shape}"
    return c_function(9)(bankwise_advance)()
