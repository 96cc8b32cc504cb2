"""The kernel of one DRAM channel: event-driven, one call a simulation, no allocation inside.

Semantics: docs/controller.md and docs/scheduling.md, held against `tests.hwmodel.oracle.reference`
command by command. The kernel never ticks: the earliest tick of each command at each bank is kept
as commands are issued, and each decision jumps to the first candidate's. `c` is a CONSTANTS record,
`s` a CHANNEL record (modified in place).
"""

from __future__ import annotations

from typing import Any

from hwmodel.kernel.candidates import choose
from hwmodel.kernel.channel_state import INBOX, MOST_POWER_EVENTS, RUN_TICK
from hwmodel.kernel.inbox import put
from hwmodel.kernel.inline_ecc import UNASKED, access_to_checks
from hwmodel.kernel.issue import apply, write_log
from hwmodel.kernel.jit import called, inlined, simulation
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
_FED_AT_ONCE = 256
"""Requests of a stream given to a channel between two looks at it, of the INBOX it has."""


@inlined
def _waits_a_tick(c: Record, s: Record) -> bool:
    """Whether a request enters one tick later, before the one bus takes another command."""
    if c.late_entry == 0 or s.left_at != s.now or c.one_bus == 0:
        return False
    taken = s.bus_free[c.bus[0, RD]] > s.now
    return taken and s.inbox[RUN_TICK, s.head & (INBOX - 1)] <= s.now


@called
def _write_power_events(s: Record, log: Int) -> None:
    """Log the entries and exits that come before the next command."""
    for i in range(s.power_events):
        write_log(s, log, s.power_event[i, 0], s.power_event[i, 1], 0, -1)
    s.power_events = 0


@called
def advance(c: Record, s: Record, until: int, log: Int, completions: Int) -> int:
    """Run the channel up to (not including) tick `until`.

    `completions` (engines, ring size) collects bytes returned to each engine by tick modulo the
    ring; shape (1, 1) where none waits. `log` (n, 5) takes tick, command, bank, row, column; (n, 6)
    in its last column, of column commands, the row of `completions`; (n, 3) tick, command and that
    row, of column commands alone. Returns REACHED, WANTS_INPUT (inbox empty and the stream not
    closed), LOG_FULL or DRAINED.
    """
    while True:
        if s.now >= until:
            return REACHED
        enter(c, s, completions)
        empty = s.head == s.tail
        if empty and s.stream_closed == 0:
            return WANTS_INPUT
        if s.now >= s.next_due:
            update_refresh(c, s)
        set_modes(c, s)
        if not empty and _waits_a_tick(c, s):
            s.now += 1
            continue
        if empty and nothing_waits(c, s):
            return DRAINED
        key, _, command, bank, slot = choose(c, s)
        tick = key >> CLASS_BITS
        event = s.next_due
        if not empty:
            arrival = s.inbox[RUN_TICK, s.head & (INBOX - 1)]
            if arrival > s.now:
                event = min(event, arrival)
            elif c.late_entry == 1 and s.left_at == s.now:
                event = min(event, s.now + 1)
        if event <= tick:
            s.now = min(event, until)
            continue
        if tick >= until:
            s.now = until
            return REACHED
        if log.shape[0] > 0 and s.logged + MOST_POWER_EVENTS * c.sleeps >= log.shape[0]:
            return LOG_FULL
        if c.sleeps == 1:
            stirred(c, s, command, tick)
            if s.power_events > 0:
                _write_power_events(s, log)
        write_log(s, log, tick, command, bank, slot)
        s.now = tick
        order = key & ((1 << CLASS_BITS) - 1)
        apply(c, s, command, order, bank, slot, completions)


@simulation
def feed(
    constants: Any, states: Any, channel: int, arrival: Int, burst: Int, kind: Int, start: int,
    log: Int, completions: Int,
) -> tuple[int, int]:  # fmt: skip
    """Give an open-loop stream to one channel, from request `start` on, and run it.

    `arrival` (n,) ticks, or (1,) for a stream that arrives as fast as it is taken; `burst` (n,)
    burst indices; `kind` (n,) READ, WRITE or PARTIAL_WRITE; `completions` of shape (1, 1).
    Returns (outcome, requests taken): WANTS_INPUT when all were taken and the stream is not closed,
    LOG_FULL when `log` has to be emptied first, REACHED after SLICE ticks, DRAINED at the end.
    """
    c, s = constants[0], states[channel]
    timed = arrival.shape[0] == burst.shape[0]
    while True:
        while start < burst.shape[0] and s.tail - s.head < _FED_AT_ONCE:
            first = start
            start += 1
            while (
                start < burst.shape[0] and burst[start] == burst[start - 1] + 1
                and kind[start] == kind[first] and (not timed or arrival[start] == arrival[first])
                and (c.protects == 0 or burst[start] % c.protects != 0)
            ):  # fmt: skip
                start += 1
            tick = arrival[first] if timed else 0
            if c.protects > 0:
                check, last = burst[first] // c.protects, burst[start - 1]
                asked = access_to_checks(c, s, check, burst[first], last, kind[first])
                if asked != UNASKED:
                    put(s, tick, c.first_check + check, 1, asked, 0)
            put(s, tick, burst[first], start - first, kind[first], 0)  # no engine waits
        outcome = advance(c, s, s.now + SLICE, log, completions)
        if outcome != WANTS_INPUT or start >= burst.shape[0]:
            return outcome, start
