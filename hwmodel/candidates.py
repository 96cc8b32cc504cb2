"""Kernel: which command a channel issues next, and when (docs/controller.md: candidates)."""

from __future__ import annotations

from hwmodel.channel_state import DQ_MEMORY, FOREVER, Q_BANK, Q_KIND, Q_NEXT, Q_ROW, Q_SEQ
from hwmodel.jit import kernel, lowest_bit
from hwmodel.kernel_names import ACT2, CAS, PRE, PREA, RD, REFAB, REFPB, Record
from hwmodel.timing import FCFS, FRFCFS, MAX_SEGMENTS, NEVER, REFRESH_ALL_BANK


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
    """Whether `command` at `tick` leaves the bus free for the second step of every (other) open
    pair."""
    for other in range(c.pcs):
        if s.pair_bank[other] >= 0 and not (command == ACT2 and other == pc):
            mine = c.bus[command, 0] + c.bus[command, 1] * pc
            pair = c.bus[ACT2, 0] + c.bus[ACT2, 1] * other
            if mine == pair and tick + c.slots[command] > s.pair_deadline[other]:
                return False
    return True


@kernel
def _column_candidate(c: Record, s: Record, pc: int, slot: int, pair_open: bool) -> tuple[int, int]:
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
def _row_candidate(c: Record, s: Record, pc: int, bank: int, pair_open: bool) -> tuple[int, int]:
    """(tick, command) of the PRE or ACT that the bank's oldest request needs; FOREVER if none
    may be."""
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
def _refresh_candidate(c: Record, s: Record, rank: int, pair_open: bool) -> tuple[int, int, int]:
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
            tick = max(now, _ready(c, s, bank, PRE), s.bus_free[c.bus[PRE, 0] + c.bus[PRE, 1] * pc])
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
def choose(c: Record, s: Record) -> tuple[int, int, int, int]:
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
            if c.lazy == 0 and c.one_bus == 1 and tick == max(now, s.bus_free[c.bus[ACT2, 0]]):
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
