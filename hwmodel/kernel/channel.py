"""The kernel of one DRAM channel: event-driven, one call a simulation, no allocation inside.

Semantics: docs/controller.md and docs/scheduling.md, held against `hwmodel.oracle.reference`
command by command. The kernel never ticks: the earliest tick of each command at each bank is kept
as commands are issued, and each decision jumps to the first candidate's. `c` is a CONSTANTS record,
`s` a CHANNEL record (modified in place).
"""

from __future__ import annotations

from typing import Any

from hwmodel.kernel.candidates import choose
from hwmodel.kernel.channel_state import (
    INBOX,
    MOST_NAPS,
    Q_COLUMN,
    Q_ROW,
    Q_TAG,
    RUN_BURSTS,
    RUN_FIRST,
    RUN_KIND,
    RUN_TICK,
)
from hwmodel.kernel.issue import apply
from hwmodel.kernel.jit import inlined, rare, simulation
from hwmodel.kernel.kernel_names import (
    ACT2,
    CLASS_BITS,
    DRAINED,
    LOG_FULL,
    MWRA,
    RD,
    REACHED,
    WANTS_INPUT,
    Record,
)
from hwmodel.kernel.power import nothing_waits, stirred
from hwmodel.kernel.queues import enter, set_modes
from hwmodel.kernel.refresh import update_refresh
from hwmodel.kernel.timing import Int

SLICE = 1 << 22
"""Ticks after which a simulation returns to Python, which then sees a signal: under a second."""
_FED_AT_ONCE = 256
"""Requests of a stream given to a channel between two looks at it, of the INBOX it has."""


@inlined
def _write_log(s: Record, line: Int, tick: int, command: int, bank: int, slot: int) -> None:
    line[0], line[1], line[2], line[3], line[4] = tick, command, bank, -1, -1
    if slot >= 0 and command <= ACT2:
        line[3] = s.slot[slot, Q_ROW]
    elif command >= RD and command <= MWRA:
        line[3], line[4] = s.slot[slot, Q_ROW], s.slot[slot, Q_COLUMN]
        if line.shape[0] > 5:
            line[5] = s.slot[slot, Q_TAG]


@rare
def _write_naps(s: Record, log: Int) -> None:
    """Log the entries and exits that come before the next command."""
    for i in range(s.naps if log.shape[0] > 0 and log.shape[1] > 3 else 0):
        _write_log(s, log[s.logged], s.nap[i, 0], s.nap[i, 1], 0, -1)
        s.logged += 1
    s.naps = 0


@simulation
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
        if empty and nothing_waits(c, s):
            return DRAINED
        key, _, command, bank, slot = choose(c, s)
        tick = key >> CLASS_BITS
        event = s.next_due
        if not empty:
            arrival = s.inbox[RUN_TICK, s.head & (INBOX - 1)]
            if arrival > s.now:
                event = min(event, arrival)
            elif c.late_entry == 1 and s.left == s.now:
                event = min(event, s.now + 1)
        if event <= tick:
            s.now = min(event, until)
            continue
        if tick >= until:
            s.now = until
            return REACHED
        if log.shape[0] > 0 and s.logged + MOST_NAPS * c.sleeps >= log.shape[0]:
            return LOG_FULL
        if c.sleeps == 1:
            stirred(c, s, command, tick)
            if s.naps > 0:
                _write_naps(s, log)
        if log.shape[0] > 0:
            if log.shape[1] > 3:
                _write_log(s, log[s.logged], tick, command, bank, slot)
                s.logged += 1
            elif command >= RD and command <= MWRA:
                log[s.logged, 0], log[s.logged, 1] = tick, command
                log[s.logged, 2] = s.slot[slot, Q_TAG]
                s.logged += 1
        s.now = tick
        apply(c, s, command, key & ((1 << CLASS_BITS) - 1), bank, slot, completions)


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
        if s.head == s.tail:
            s.head, s.tail = 0, 0  # the start of the inbox stays in the cache
        while start < burst.shape[0] and s.tail - s.head < _FED_AT_ONCE:
            place = s.tail & (INBOX - 1)
            s.inbox[RUN_TICK, place] = arrival[start] if timed else 0
            s.inbox[RUN_FIRST, place] = burst[start]
            s.inbox[RUN_BURSTS, place] = 1
            s.inbox[RUN_KIND, place] = kind[start]  # RUN_ROW stays 0: no engine waits
            s.tail += 1
            start += 1
        outcome = advance(c, s, s.now + SLICE, log, completions)
        if outcome != WANTS_INPUT or start >= burst.shape[0]:
            return outcome, start
