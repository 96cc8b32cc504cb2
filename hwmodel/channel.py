"""The kernel of one DRAM channel: event-driven, one call a simulation, no allocation inside.

Semantics: docs/controller.md, held against `hwmodel.reference` command by command. The kernel
never ticks: each decision computes, for every bank with work, the earliest tick at which its next
command is legal, and jumps to the smallest. `c` is a CONSTANTS record, `s` a CHANNEL record
(modified in place).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hwmodel.candidates import choose
from hwmodel.channel_state import (
    FOREVER,
    INBOX,
    Q_BANK,
    Q_COLUMN,
    Q_FLAGS,
    Q_KIND,
    Q_NEXT,
    Q_PREV,
    Q_ROW,
    Q_SEQ,
    Q_TAG,
    Q_TIME,
)
from hwmodel.issue import apply, forget_rows, note_row, set_hit, update_refresh
from hwmodel.jit import kernel, part
from hwmodel.kernel_names import ACT2, DRAINED, LOG_FULL, RD, REACHED, WANTS_INPUT, WRA, Record
from hwmodel.timing import LOW_BITS, Int


@part
def _decode_high(c: Record, s: Record, high: int) -> None:
    """Column, flat bank and row by the upper bits of a burst index; kept for the next burst."""
    s.high = high
    s.high_column, s.high_bank, s.high_row = 0, 0, 0
    burst = high << LOW_BITS
    for f in range(c.n_fields):
        bits = ((burst >> c.fields[f, 0]) & c.fields[f, 1]) << c.fields[f, 2]
        where = c.fields[f, 3]
        if where == 0:
            s.high_column |= bits
        elif where == 1:
            s.high_bank |= bits
        else:
            s.high_row |= bits


@part
def _enter(c: Record, s: Record, completions: Int) -> None:
    """Let arrived requests into the queues, in order, while there is room."""
    while s.head != s.tail:
        place = s.head & (INBOX - 1)
        if s.inbox[0, place] > s.now:
            return
        burst = s.inbox[1, place] + s.offset
        if burst >> LOW_BITS != s.high:
            _decode_high(c, s, burst >> LOW_BITS)
        low = burst & ((1 << LOW_BITS) - 1)
        column = s.high_column | c.low[low, 0]
        bank = s.high_bank | c.low[low, 1]
        row = s.high_row | c.low[low, 2]
        for h in range(c.n_hashes):
            bank ^= ((row >> c.hashes[h, 0]) & c.hashes[h, 1]) << c.hashes[h, 2]
        tag = s.inbox[3, place]
        kind = tag & 1
        pc = c.pc_of[bank]
        if s.waiting[pc, kind] >= c.queue[kind]:
            return
        s.free_count[pc] -= 1
        slot = s.free[pc, s.free_count[pc]]
        s.slot[slot, Q_ROW] = row
        s.slot[slot, Q_COLUMN] = column
        s.slot[slot, Q_BANK] = bank
        s.slot[slot, Q_SEQ] = s.seq
        s.slot[slot, Q_TIME] = s.now
        s.slot[slot, Q_FLAGS] = 0
        s.slot[slot, Q_TAG] = tag >> 1
        s.slot[slot, Q_KIND] = kind
        s.seq += 1
        before = s.last[kind, bank]
        s.slot[slot, Q_NEXT] = -1
        s.slot[slot, Q_PREV] = before
        bit = 1 << (bank - pc * c.banks_per_pc)
        if before >= 0:
            s.slot[before, Q_NEXT] = slot
        else:
            s.first[kind, bank] = slot
            s.pending[pc, kind] |= bit
            note_row(c, s, pc, bank)
        s.last[kind, bank] = slot
        if s.hit[kind, bank] < 0 and s.open_row[bank] == row:
            set_hit(s, pc, kind, bank, bit, slot)
        s.waiting[pc, kind] += 1
        if kind == 1 and completions.shape[1] > 1:  # a posted write is done for its engine
            done = (s.now + s.response) & (completions.shape[1] - 1)
            completions[tag >> 1, done] += c.burst_bytes
        s.offset += 1
        if s.offset == s.inbox[2, place]:
            s.offset = 0
            s.head += 1


@part
def _set_modes(c: Record, s: Record) -> None:
    """Serve reads or writes: watermarks of the write queue."""
    for pc in range(c.pcs):
        reads, writes, mode = s.waiting[pc, 0], s.waiting[pc, 1], s.mode[pc]
        if mode == 0:
            if writes > c.drain_high or (reads == 0 and writes > 0):
                s.mode[pc] = 1
                forget_rows(s, pc)
        elif (writes < c.drain_low and reads > 0) or writes == 0:
            s.mode[pc] = 0
            forget_rows(s, pc)


@part
def _write_log(s: Record, line: Int, tick: int, command: int, bank: int, slot: int) -> None:
    line[0], line[1], line[2], line[3], line[4] = tick, command, bank, -1, -1
    if slot >= 0 and command <= ACT2:
        line[3] = s.slot[slot, Q_ROW]
    elif command >= RD and command <= WRA:
        line[3], line[4] = s.slot[slot, Q_ROW], s.slot[slot, Q_COLUMN]


@kernel
def advance(c: Record, s: Record, until: int, log: Int, completions: Int) -> int:
    """Run the channel up to (not including) tick `until`.

    `completions` (engines, ring size) collects bytes returned to each engine by tick modulo the
    ring; shape (1, 1) where nobody waits. Returns REACHED, WANTS_INPUT (inbox empty and the stream
    not closed), LOG_FULL or DRAINED.
    """
    while True:
        if s.now >= until:
            return REACHED
        _enter(c, s, completions)
        empty = s.head == s.tail
        if empty and s.stream_closed == 0:
            return WANTS_INPUT
        if s.now >= s.next_due:
            update_refresh(c, s)
        _set_modes(c, s)
        idle = True
        for pc in range(c.pcs):
            if s.waiting[pc, 0] + s.waiting[pc, 1] + s.active_count[pc] > 0:
                idle = False
        if idle and empty and s.stream_closed == 1:
            return DRAINED
        choose(c, s)
        tick = s.best_key >> 3
        command, bank, slot = s.best_command, s.best_bank, s.best_slot
        event = s.next_due
        if not empty:
            arrival = s.inbox[0, s.head & (INBOX - 1)]
            if arrival > s.now:
                event = min(event, arrival)
        if event <= tick:
            s.now = min(event, until)
            continue
        if tick >= until:
            s.now = until
            return REACHED
        if log.shape[0] > 0:
            if s.logged >= log.shape[0]:
                return LOG_FULL
            _write_log(s, log[s.logged], tick, command, bank, slot)
            s.logged += 1
        s.now = tick
        apply(c, s, command, bank, slot, tick, completions)


@kernel
def feed(
    constants: Any, states: Any, channel: int, arrival: Int, burst: Int, write: Int, start: int,
    log: Int,
) -> tuple[int, int]:  # fmt: skip
    """Give an open-loop stream to one channel, from request `start` on, and run it.

    `arrival` (n,) ticks, or (1,) for a stream that arrives as fast as it is taken; `burst` (n,)
    burst indices; `write` (n,) 0 or 1. Returns (outcome, requests taken): WANTS_INPUT when all
    were taken and the stream is not closed, LOG_FULL when `log` has to be emptied first, DRAINED
    at the end.
    """
    c, s = constants[0], states[channel]
    completions = np.zeros((1, 1), np.int64)
    timed = arrival.shape[0] == burst.shape[0]
    while True:
        while start < burst.shape[0] and s.tail - s.head < INBOX:
            place = s.tail & (INBOX - 1)
            s.inbox[0, place] = arrival[start] if timed else 0
            s.inbox[1, place] = burst[start]
            s.inbox[2, place] = 1
            s.inbox[3, place] = write[start]
            s.tail += 1
            start += 1
        outcome = advance(c, s, FOREVER, log, completions)
        if outcome != WANTS_INPUT or start >= burst.shape[0]:
            return outcome, start
