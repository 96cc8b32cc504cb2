"""The kernel of one DRAM channel: event-driven, one call a simulation, no allocation inside.

Semantics: docs/controller.md, held against `hwmodel.reference` command by command. The kernel never
ticks: each decision computes, for every bank with work, the earliest tick at which its next command is legal, and
jumps to the smallest. `c` is a CONSTANTS record, `s` a CHANNEL record (modified in place).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hwmodel.channel_state import (
    DQ_MEMORY,
    FOREVER,
    INBOX,
    LATENCY_BINS,
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
from hwmodel.jit import kernel, lowest_bit
from hwmodel.memory_spec import COMMANDS
from hwmodel.timing import (
    FCFS,
    FRFCFS,
    MAX_SEGMENTS,
    N_COMMANDS,
    NEVER,
    REFRESH_ALL_BANK,
    Int,
)

ACT, ACT1, ACT2, RD, RDA, WR, WRA, PRE, PREA, REFPB, REFAB, CAS = range(N_COMMANDS)
assert COMMANDS == (
    "ACT", "ACT1", "ACT2", "RD", "RDA", "WR", "WRA", "PRE", "PREA", "REFPB", "REFAB", "CAS",
)  # fmt: skip
FLAG_ACTIVATED, FLAG_PRECHARGED = 1, 2
# outcomes of `advance`
REACHED, WANTS_INPUT, LOG_FULL, DRAINED = 0, 1, 2, 3
Record = Any
"""A numpy record inside a kernel."""


@kernel
def _issue(c: Record, s: Record, command: int, bank: int, tick: int) -> None:
    """Book the rows, windows and bus of `command` to `bank` (any bank of its rank for rank commands)."""
    levels = c.levels
    whole_rank = command == PREA or command == REFAB or command == CAS
    for level in range(levels):
        if whole_rank and c.rank_level[level] == 0:
            continue
        node = c.ancestors[bank, level]
        if c.has_delay[level, command] == 1:
            for n in range(N_COMMANDS):
                at = tick + c.delay[level, command, n]
                if at > s.earliest[node, n]:
                    s.earliest[node, n] = at
        if c.siblings == 1:
            for other in range(c.sibling_range[node, 0], c.sibling_range[node, 1]):
                if other != node:
                    for n in range(N_COMMANDS):
                        at = tick + c.sibling_delay[level, command, n]
                        if at > s.earliest[other, n]:
                            s.earliest[other, n] = at
    for w in range(c.windows):
        if (c.window[w, 3] >> command) & 1:
            level = c.window[w, 0]
            node = c.ancestors[bank, level]
            instance = node - c.level_start[level]
            place = s.ring_at[w, instance]
            s.ring[w, instance, place] = tick
            place = place + 1 if place + 1 < c.window[w, 1] else 0
            s.ring_at[w, instance] = place
            at = s.ring[w, instance, place] + c.window[w, 2]
            for n in range(N_COMMANDS):
                if (c.window[w, 4] >> n) & 1 and at > s.earliest[node, n]:
                    s.earliest[node, n] = at
    bus = c.bus[command, 0] + c.bus[command, 1] * (bank // c.banks_per_pc)
    s.bus_free[bus] = tick + c.slots[command]
    s.commands[command] += 1


@kernel
def _ready(c: Record, s: Record, bank: int, command: int) -> int:
    """Earliest tick of `command` to `bank` by its rows alone."""
    at = s.earliest[c.ancestors[bank, 0], command]
    for level in range(1, c.levels):
        other = s.earliest[c.ancestors[bank, level], command]
        if other > at:
            at = other
    return at


@kernel
def _rank_ready(c: Record, s: Record, bank: int, command: int) -> int:
    """Earliest tick of a rank command, by its rows alone."""
    at = NEVER
    for level in range(c.levels):
        if c.rank_level[level] == 1:
            at = max(at, s.earliest[c.ancestors[bank, level], command])
    return at


@kernel
def _dq_free(c: Record, s: Record, pc: int, kind: int, tick: int) -> int:
    """Earliest tick >= `tick` at which a burst of `kind` finds its DQ segments free."""
    moved = True
    while moved:
        moved = False
        for i in range(DQ_MEMORY):
            at, other = s.dq[pc, i, 0], s.dq[pc, i, 1]
            if at == NEVER:
                continue
            for x in range(MAX_SEGMENTS):
                for y in range(MAX_SEGMENTS):
                    mine, theirs = c.segments[kind, x, 0], c.segments[other, y, 0]
                    if mine == NEVER or theirs == NEVER:
                        continue
                    if (
                        tick + mine < at + c.segments[other, y, 1]
                        and at + theirs < tick + c.segments[kind, x, 1]
                    ):
                        tick = at + c.segments[other, y, 1] - mine
                        moved = True
    return tick


@kernel
def _find_hit(s: Record, start: int, row: int) -> int:
    """First slot from `start` on (in age order) that wants `row`, or -1."""
    while start >= 0 and s.slot[start, Q_ROW] != row:
        start = s.slot[start, Q_NEXT]
    return start


@kernel
def _set_hit(s: Record, pc: int, kind: int, bank: int, bit: int, found: int) -> None:
    s.hit[kind, bank] = found
    if found >= 0:
        s.hit_banks[pc, kind] |= bit
    else:
        s.hit_banks[pc, kind] &= ~bit


@kernel
def _unlink(s: Record, pc: int, slot: int) -> None:
    """Take a request out of its queue (its slot is not freed)."""
    kind, bank = s.slot[slot, Q_KIND], s.slot[slot, Q_BANK]
    before, after = s.slot[slot, Q_PREV], s.slot[slot, Q_NEXT]
    if before >= 0:
        s.slot[before, Q_NEXT] = after
    else:
        s.first[kind, bank] = after
    if after >= 0:
        s.slot[after, Q_PREV] = before
    else:
        s.last[kind, bank] = before
    s.waiting[pc, kind] -= 1


@kernel
def _enter(c: Record, s: Record, completions: Int) -> None:
    """Let arrived requests into the queues, in order, while there is room."""
    while s.head != s.tail:
        place = s.head & (INBOX - 1)
        if s.inbox[0, place] > s.now:
            return
        burst = s.inbox[1, place] + s.offset
        column, bank, row = 0, 0, 0
        for f in range(c.n_fields):
            bits = ((burst >> c.fields[f, 0]) & c.fields[f, 1]) << c.fields[f, 2]
            where = c.fields[f, 3]
            if where == 0:
                column |= bits
            elif where == 1:
                bank |= bits
            else:
                row |= bits
        for h in range(c.n_hashes):
            bank ^= ((row >> c.hashes[h, 0]) & c.hashes[h, 1]) << c.hashes[h, 2]
        tag = s.inbox[3, place]
        kind = tag & 1
        pc = bank // c.banks_per_pc
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
            s.row_bound[pc] = NEVER
        s.last[kind, bank] = slot
        if s.hit[kind, bank] < 0 and s.open_row[bank] == row:
            _set_hit(s, pc, kind, bank, bit, slot)
        s.waiting[pc, kind] += 1
        if kind == 1 and completions.shape[1] > 1:  # a posted write is done for its engine
            done = (s.now + s.response) & (completions.shape[1] - 1)
            completions[tag >> 1, done] += c.burst_bytes
        s.offset += 1
        if s.offset == s.inbox[2, place]:
            s.offset = 0
            s.head += 1


@kernel
def _set_modes(c: Record, s: Record) -> None:
    """Serve reads or writes: watermarks of the write queue."""
    for pc in range(c.pcs):
        reads, writes, mode = s.waiting[pc, 0], s.waiting[pc, 1], s.mode[pc]
        if mode == 0:
            if writes > c.drain_high or (reads == 0 and writes > 0):
                s.mode[pc] = 1
                s.row_bound[pc] = NEVER
        elif (writes < c.drain_low and reads > 0) or writes == 0:
            s.mode[pc] = 0
            s.row_bound[pc] = NEVER


@kernel
def _update_refresh(c: Record, s: Record) -> None:
    """Book refreshes that have fallen due, and block the banks they need."""
    sets, interval = c.refresh_sets, c.refresh_interval
    per_rank = c.banks_per_rank
    ranks_per_pc = c.ranks // c.pcs
    while s.next_due <= s.now:
        s.refresh_due += 1
        for rank in range(c.ranks):
            s.refresh_owed[rank] += 1
        s.next_due = s.phase + (s.refresh_due + 1) * interval // sets
    s.owed = 0
    for pc in range(c.pcs):
        blocked = 0
        for r in range(ranks_per_pc):
            rank = pc * ranks_per_pc + r
            if s.refresh_owed[rank] == 0:
                continue
            s.owed += 1
            if c.refresh == REFRESH_ALL_BANK:
                blocked |= ((1 << per_rank) - 1) << (r * per_rank) if per_rank < 64 else -1
            else:
                which = s.refresh_issued[rank] % sets
                for i in range(c.set_size):
                    blocked |= 1 << (r * per_rank + c.sets[which, i])
        s.blocked[pc] = blocked
        s.row_bound[pc] = NEVER


@kernel
def _other_wants_row(s: Record, slot: int) -> bool:
    """Whether another queued or activated request is for the same bank and row."""
    bank, row = s.slot[slot, Q_BANK], s.slot[slot, Q_ROW]
    for kind in range(2):
        other = s.first[kind, bank]
        while other >= 0:
            if other != slot and s.slot[other, Q_ROW] == row:
                return True
            other = s.slot[other, Q_NEXT]
    waiting = s.active[bank]
    return waiting >= 0 and waiting != slot and s.slot[waiting, Q_ROW] == row


@kernel
def _fits(c: Record, s: Record, command: int, pc: int, tick: int) -> bool:
    """Whether `command` at `tick` leaves the bus free for the second step of every (other) open pair."""
    for other in range(c.pcs):
        if s.pair_bank[other] >= 0 and not (command == ACT2 and other == pc):
            mine = c.bus[command, 0] + c.bus[command, 1] * pc
            pair = c.bus[ACT2, 0] + c.bus[ACT2, 1] * other
            if mine == pair and tick + c.slots[command] > s.pair_deadline[other]:
                return False
    return True


@kernel
def _column_candidate(
    c: Record, s: Record, pc: int, slot: int, pair_open: bool
) -> tuple[int, int]:
    """(tick, command) of the column command of `slot`, or of the CAS that it needs first."""
    now = s.now
    kind, bank = s.slot[slot, Q_KIND], s.slot[slot, Q_BANK]
    command = RD + 2 * kind
    if c.closed == 1 and not _other_wants_row(s, slot):
        command += 1
    rows = _ready(c, s, bank, command)
    tick = max(now, rows, s.bus_free[c.bus[command, 0] + c.bus[command, 1] * pc])
    if c.check_dq == 1:
        tick = _dq_free(c, s, pc, kind, tick)
    if c.sync == 1:
        rank = bank // c.banks_per_rank
        until = s.sync_until[rank]
        if tick > until:
            command = CAS
            tick = max(
                now,
                until + 1,
                rows - c.slots[CAS],
                _rank_ready(c, s, bank, CAS),
                s.bus_free[c.bus[CAS, 0] + c.bus[CAS, 1] * pc],
            )
    if pair_open and not _fits(c, s, command, pc, tick):
        tick = FOREVER
    return tick, command


@kernel
def _row_candidate(
    c: Record, s: Record, pc: int, bank: int, pair_open: bool
) -> tuple[int, int]:
    """(tick, command) of the PRE or ACT that the bank's oldest request needs; FOREVER if none may be."""
    now = s.now
    if s.open_row[bank] >= 0:
        if s.active[bank] >= 0:
            return FOREVER, PRE
        command = PRE
        tick = _ready(c, s, bank, PRE)
    else:
        room = c.activation_buffer
        if s.pair_bank[pc] >= 0 or (room > 0 and s.active_count[pc] >= room):
            return FOREVER, PRE
        command = c.first
        tick = _ready(c, s, bank, command)
        if c.steps == 2:
            tick = max(tick, _ready(c, s, bank, ACT2) - c.slots[command])
    tick = max(now, tick, s.bus_free[c.bus[command, 0] + c.bus[command, 1] * pc])
    if pair_open and not _fits(c, s, command, pc, tick):
        tick = FOREVER
    return tick, command


@kernel
def _refresh_candidate(
    c: Record, s: Record, rank: int, pair_open: bool
) -> tuple[int, int, int]:
    """(tick, command, bank) of the next step of the oldest owed refresh of `rank`."""
    now = s.now
    per_rank = c.banks_per_rank
    base = rank * per_rank
    pc = base // c.banks_per_pc
    pair = s.pair_bank[pc]
    if c.refresh == REFRESH_ALL_BANK:
        if pair >= base and pair < base + per_rank:
            return FOREVER, REFAB, base
        command = REFAB
        for bank in range(base, base + per_rank):
            if s.active[bank] >= 0:
                return FOREVER, REFAB, base
            if s.open_row[bank] >= 0:
                command = PREA
        tick = max(
            now,
            _rank_ready(c, s, base, command),
            s.bus_free[c.bus[command, 0] + c.bus[command, 1] * pc],
        )
        if pair_open and not _fits(c, s, command, pc, tick):
            tick = FOREVER
        return tick, command, base
    which = s.refresh_issued[rank] % c.refresh_sets
    best, best_bank, ready, closed = FOREVER, base, now, True
    for i in range(c.set_size):
        bank = base + c.sets[which, i]
        if s.active[bank] >= 0 or pair == bank:
            closed = False
        elif s.open_row[bank] >= 0:
            closed = False
            tick = max(
                now, _ready(c, s, bank, PRE), s.bus_free[c.bus[PRE, 0] + c.bus[PRE, 1] * pc]
            )
            if pair_open and not _fits(c, s, PRE, pc, tick):
                tick = FOREVER
            if tick < best or (tick == best and bank < best_bank):
                best, best_bank = tick, bank
        else:
            ready = max(ready, _ready(c, s, bank, REFPB))
    if not closed:
        return best, PRE, best_bank
    tick = max(ready, s.bus_free[c.bus[REFPB, 0] + c.bus[REFPB, 1] * pc])
    if pair_open and not _fits(c, s, REFPB, pc, tick):
        tick = FOREVER
    return tick, REFPB, base + c.sets[which, 0]


@kernel
def _oldest_of_queue(c: Record, s: Record, pc: int, kind: int) -> int:
    """Slot of the oldest request of a queue, or -1 (for FCFS)."""
    oldest = -1
    base = pc * c.banks_per_pc
    mask = s.pending[pc, kind]
    while mask != 0:
        slot = s.first[kind, base + lowest_bit(mask)]
        mask &= mask - 1
        if oldest < 0 or s.slot[slot, Q_SEQ] < s.slot[oldest, Q_SEQ]:
            oldest = slot
    return oldest


@kernel
def _choose(c: Record, s: Record) -> tuple[int, int, int, int]:
    """(key = tick x 8 + class, command, bank, slot) of the next command; key >= FOREVER if none."""
    now = s.now
    key, seq, command, bank, slot = FOREVER, FOREVER, 0, 0, -1
    per_pc = c.banks_per_pc
    column_class = 3
    row_class = 4 if c.scheduler == FRFCFS else 3
    pair_open = False
    if c.steps == 2:
        for pc in range(c.pcs):
            pair = s.pair_bank[pc]
            if pair < 0:
                continue
            pair_open = True
            tick = max(
                now, _ready(c, s, pair, ACT2), s.bus_free[c.bus[ACT2, 0] + c.bus[ACT2, 1] * pc]
            )
            this = tick * 8 + (5 if c.lazy == 1 else 0)
            which = s.pair_slot[pc]
            age = s.slot[which, Q_SEQ]
            if c.pcs > 1 and not _fits(c, s, ACT2, pc, tick):
                continue
            if this < key or (this == key and age < seq):
                key, seq, command, bank, slot = this, age, ACT2, pair, which
            if c.lazy == 0 and c.one_bus == 1:
                return key, command, bank, slot  # nothing can be earlier on the only bus
    if s.owed > 0:
        for rank in range(c.ranks):
            if s.refresh_owed[rank] > 0:
                tick, what, where = _refresh_candidate(c, s, rank, pair_open)
                this = tick * 8 + 2
                if tick < FOREVER and (this < key or (this == key and where < seq)):
                    key, seq, command, bank, slot = this, where, what, where, -1
    for pc in range(c.pcs):
        base = pc * per_pc
        kind = s.mode[pc]
        pair = s.pair_bank[pc]
        allowed = ~s.blocked[pc]
        if pair >= 0:
            allowed &= ~(1 << (pair - base))
            waiting_active = s.active_banks[pc] & ~(1 << (pair - base))
        else:
            waiting_active = s.active_banks[pc]
        while waiting_active != 0:
            which = s.active[base + lowest_bit(waiting_active)]
            waiting_active &= waiting_active - 1
            tick, what = _column_candidate(c, s, pc, which, pair_open)
            this, age = tick * 8 + 1, s.slot[which, Q_SEQ]
            if tick < FOREVER and (this < key or (this == key and age < seq)):
                key, seq, command, bank, slot = this, age, what, s.slot[which, Q_BANK], which
        if c.scheduler == FCFS:
            which = _oldest_of_queue(c, s, pc, kind)
            if which >= 0 and (allowed >> (s.slot[which, Q_BANK] - base)) & 1:
                where = s.slot[which, Q_BANK]
                if s.open_row[where] == s.slot[which, Q_ROW]:
                    tick, what = _column_candidate(c, s, pc, which, pair_open)
                else:
                    tick, what = _row_candidate(c, s, pc, where, pair_open)
                this, age = tick * 8 + 3, s.slot[which, Q_SEQ]
                if tick < FOREVER and (this < key or (this == key and age < seq)):
                    key, seq, command, bank, slot = this, age, what, where, which
            continue
        limit = c.hit_limit
        hits = s.hit_banks[pc, kind] & allowed
        spent = 0
        mask = hits
        while mask != 0:
            low = lowest_bit(mask)
            where = base + low
            mask &= mask - 1
            which = s.hit[kind, where]
            if limit > 0 and s.streak[where] >= limit and s.first[kind, where] != which:
                spent |= 1 << low
                continue
            tick, what = _column_candidate(c, s, pc, which, pair_open)
            this, age = tick * 8 + column_class, s.slot[which, Q_SEQ]
            if tick < FOREVER and (this < key or (this == key and age < seq)):
                key, seq, command, bank, slot = this, age, what, where, which
        # rows can only get later: skip them while their last bound cannot win
        if s.row_bound[pc] * 8 + row_class > key:
            continue
        bound = FOREVER
        mask = s.pending[pc, kind] & allowed
        if c.scheduler == FRFCFS:
            mask &= ~hits | spent
        while mask != 0:
            where = base + lowest_bit(mask)
            mask &= mask - 1
            which = s.first[kind, where]
            if s.open_row[where] >= 0 and s.hit[kind, where] == which:
                continue
            tick, what = _row_candidate(c, s, pc, where, pair_open)
            if tick < bound:
                bound = tick
            this, age = tick * 8 + row_class, s.slot[which, Q_SEQ]
            if tick < FOREVER and (this < key or (this == key and age < seq)):
                key, seq, command, bank, slot = this, age, what, where, which
        if not pair_open:
            s.row_bound[pc] = min(bound, FOREVER >> 4)
    return key, command, bank, slot


@kernel
def _open(c: Record, s: Record, pc: int, bank: int, row: int) -> None:
    """The bank's row is open: find the queued requests that hit it."""
    s.open_row[bank] = row
    s.streak[bank] = 0
    bit = 1 << (bank - pc * c.banks_per_pc)
    for kind in range(2):
        _set_hit(s, pc, kind, bank, bit, _find_hit(s, s.first[kind, bank], row))


@kernel
def _close(c: Record, s: Record, pc: int, bank: int) -> None:
    s.open_row[bank] = -1
    bit = 1 << (bank - pc * c.banks_per_pc)
    s.hit[0, bank] = -1
    s.hit[1, bank] = -1
    s.hit_banks[pc, 0] &= ~bit
    s.hit_banks[pc, 1] &= ~bit


@kernel
def _activate(c: Record, s: Record, pc: int, bank: int, slot: int, tick: int) -> None:
    """First (or only) step of an activation for `slot`."""
    s.slot[slot, Q_FLAGS] |= FLAG_ACTIVATED
    bit = 1 << (bank - pc * c.banks_per_pc)
    if c.activation_buffer > 0:
        kind = s.slot[slot, Q_KIND]
        _unlink(s, pc, slot)
        if s.first[kind, bank] < 0:
            s.pending[pc, kind] &= ~bit
        s.active[bank] = slot
        s.active_banks[pc] |= bit
        s.active_count[pc] += 1
    if c.steps == 2:
        s.pair_bank[pc] = bank
        s.pair_slot[pc] = slot
        s.pair_deadline[pc] = tick + c.max_gap
    else:
        _open(c, s, pc, bank, s.slot[slot, Q_ROW])


@kernel
def _serve(
    c: Record, s: Record, pc: int, bank: int, slot: int, command: int, tick: int,
    completions: Int,
) -> None:  # fmt: skip
    """The column command of `slot` is issued: book its data and let it go."""
    kind = s.slot[slot, Q_KIND]
    bit = 1 << (bank - pc * c.banks_per_pc)
    end = tick + c.data_end[kind]
    s.end = max(s.end, end)
    flags = s.slot[slot, Q_FLAGS]
    if flags & FLAG_PRECHARGED:
        s.conflicts += 1
    elif flags & FLAG_ACTIVATED:
        s.misses += 1
    else:
        s.hits += 1
    s.bytes += c.burst_bytes
    s.requests += 1
    if kind == 0:
        wait = end - s.slot[slot, Q_TIME]
        s.latency[min(wait, LATENCY_BINS - 1)] += 1
        s.latency_sum += wait
        s.latency_max = max(s.latency_max, wait)
        s.reads += 1
        if completions.shape[1] > 1:
            done = (end + s.response) & (completions.shape[1] - 1)
            completions[s.slot[slot, Q_TAG], done] += c.burst_bytes
    if c.sync == 1:
        rank = bank // c.banks_per_rank
        s.sync_until[rank] = max(s.sync_until[rank], tick + c.hold[1 + kind])
    if c.check_dq == 1:
        at = s.dq_at[pc]
        s.dq[pc, at, 0] = tick
        s.dq[pc, at, 1] = kind
        s.dq_at[pc] = at + 1 if at + 1 < DQ_MEMORY else 0
    s.streak[bank] += 1
    if s.active[bank] == slot:
        s.active[bank] = -1
        s.active_banks[pc] &= ~bit
        s.active_count[pc] -= 1
        s.row_bound[pc] = NEVER
    else:
        was_oldest = s.first[kind, bank] == slot
        later = s.slot[slot, Q_NEXT]
        _unlink(s, pc, slot)
        if s.first[kind, bank] < 0:
            s.pending[pc, kind] &= ~bit
        if s.hit[kind, bank] == slot:
            _set_hit(s, pc, kind, bank, bit, _find_hit(s, later, s.open_row[bank]))
        if s.hit[kind, bank] < 0 or (was_oldest and s.hit[kind, bank] != s.first[kind, bank]):
            s.row_bound[pc] = NEVER
    if c.hit_limit > 0 and s.streak[bank] >= c.hit_limit:
        s.row_bound[pc] = NEVER
    if command == RDA or command == WRA:
        _close(c, s, pc, bank)
        s.row_bound[pc] = NEVER
    s.free[pc, s.free_count[pc]] = slot
    s.free_count[pc] += 1


@kernel
def _apply(
    c: Record, s: Record, command: int, bank: int, slot: int, tick: int, completions: Int
) -> None:  # fmt: skip
    """Issue the chosen command and change the state of banks, queues and refresh."""
    pc = bank // c.banks_per_pc
    if command == REFPB:
        rank = bank // c.banks_per_rank
        base = rank * c.banks_per_rank
        which = s.refresh_issued[rank] % c.refresh_sets
        for i in range(1, c.set_size):
            node = c.ancestors[base + c.sets[which, i], 0]
            for n in range(N_COMMANDS):
                at = tick + c.delay[0, REFPB, n]
                if at > s.earliest[node, n]:
                    s.earliest[node, n] = at
    _issue(c, s, command, bank, tick)
    if command >= RD and command <= WRA:
        _serve(c, s, pc, bank, slot, command, tick, completions)
        return
    s.row_bound[pc] = NEVER
    if command == c.first:
        _activate(c, s, pc, bank, slot, tick)
    elif command == ACT2:
        s.pair_bank[pc] = -1
        _open(c, s, pc, bank, s.slot[slot, Q_ROW])
    elif command == PRE:
        _close(c, s, pc, bank)
        if slot >= 0:
            s.slot[slot, Q_FLAGS] |= FLAG_PRECHARGED
    elif command == PREA:
        for other in range(bank, bank + c.banks_per_rank):
            _close(c, s, pc, other)
    elif command == CAS:
        rank = bank // c.banks_per_rank
        s.sync_until[rank] = max(s.sync_until[rank], tick + c.hold[0])
    else:
        rank = bank // c.banks_per_rank
        s.refresh_owed[rank] -= 1
        s.refresh_issued[rank] += 1
        _update_refresh(c, s)


@kernel
def _write_log(s: Record, line: Int, tick: int, command: int, bank: int, slot: int) -> None:
    line[0], line[1], line[2], line[3], line[4] = tick, command, bank, -1, -1
    if slot >= 0 and command <= ACT2:
        line[3] = s.slot[slot, Q_ROW]
    elif command >= RD and command <= WRA:
        line[3], line[4] = s.slot[slot, Q_ROW], s.slot[slot, Q_COLUMN]


@kernel
def advance(c: Record, s: Record, until: int, log: Int, completions: Int) -> int:
    """Run the channel up to (not including) tick `until`.

    `completions` (engines, ring size) collects bytes returned to each engine by tick modulo the ring; shape (1, 1)
    where nobody waits. Returns REACHED, WANTS_INPUT (inbox empty and the stream not closed), LOG_FULL or DRAINED.
    """
    while True:
        if s.now >= until:
            return REACHED
        _enter(c, s, completions)
        empty = s.head == s.tail
        if empty and s.stream_closed == 0:
            return WANTS_INPUT
        if s.now >= s.next_due:
            _update_refresh(c, s)
        _set_modes(c, s)
        idle = True
        for pc in range(c.pcs):
            if s.waiting[pc, 0] + s.waiting[pc, 1] + s.active_count[pc] > 0:
                idle = False
        if idle and empty and s.stream_closed == 1:
            return DRAINED
        key, command, bank, slot = _choose(c, s)
        tick = key >> 3
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
        _apply(c, s, command, bank, slot, tick, completions)


@kernel
def feed(
    constants: Any, states: Any, channel: int, arrival: Int, burst: Int, write: Int, start: int,
    log: Int,
) -> tuple[int, int]:  # fmt: skip
    """Give an open-loop stream to one channel, from request `start` on, and run it.

    `arrival` (n,) ticks, or (1,) for a stream that arrives as fast as it is taken; `burst` (n,) burst indices;
    `write` (n,) 0 or 1. Returns (outcome, requests taken): WANTS_INPUT when all were taken and the stream is
    not closed, LOG_FULL when `log` has to be emptied first, DRAINED at the end.
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
