"""Kernel: which command a channel issues next, and when (docs/controller.md: candidates)."""

from __future__ import annotations

from hwmodel.channel_state import DQ_MEMORY, FOREVER, Q_BANK, Q_KIND, Q_NEXT, Q_ROW, Q_SEQ
from hwmodel.issue import forget_rows, own
from hwmodel.jit import lowest_bit, part
from hwmodel.kernel_names import ACT2, CAS, PRE, PREA, RD, REFAB, REFPB, WR, Record
from hwmodel.timing import FCFS, FRFCFS, MAX_SEGMENTS, NEVER, REFRESH_ALL_BANK


@part
def _ready(c: Record, s: Record, bank: int, command: int) -> int:
    """Earliest tick of `command` to `bank` by its rows alone."""
    at = s.earliest[c.ancestors[bank, 0], command]
    for level in range(1, c.levels):
        other = s.earliest[c.ancestors[bank, level], command]
        if other > at:
            at = other
    return at


@part
def _rank_ready(c: Record, s: Record, bank: int, command: int) -> int:
    """Earliest tick of a rank command, by its rows alone."""
    at = NEVER
    for level in range(c.levels):
        if c.rank_level[level] == 1:
            at = max(at, s.earliest[c.ancestors[bank, level], command])
    return at


@part
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


@part
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


@part
def _fits(c: Record, s: Record, command: int, pc: int, tick: int) -> bool:
    """Whether `command` at `tick` leaves the bus free for the second step of every (other) open
    pair."""
    for other in range(c.pcs):
        if s.pair_bank[other] >= 0 and not (command == ACT2 and other == pc):
            mine = c.bus[pc, command]
            pair = c.bus[other, ACT2]
            if mine == pair and tick + c.slots[command] > s.pair_deadline[other]:
                return False
    return True


@part
def _column_candidate(c: Record, s: Record, pc: int, slot: int, pair_open: bool) -> tuple[int, int]:
    """(tick, command) of the column command of `slot`, or of the CAS that it needs first."""
    now = s.now
    kind, bank = s.slot[slot, Q_KIND], s.slot[slot, Q_BANK]
    command = RD + 2 * kind
    if c.closed == 1 and not _other_wants_row(s, slot):
        command += 1
    rows = _ready(c, s, bank, command)
    tick = max(now, rows, s.bus_free[c.bus[pc, command]])
    if c.check_dq == 1:
        tick = _dq_free(c, s, pc, kind, tick)
    if c.sync == 1:
        rank = c.rank_of[bank]
        until = s.sync_until[rank]
        if tick > until:
            command = CAS
            tick = max(
                now,
                until + 1,
                rows - c.slots[CAS],
                _rank_ready(c, s, bank, CAS),
                s.bus_free[c.bus[pc, CAS]],
            )
    if pair_open and not _fits(c, s, command, pc, tick):
        tick = FOREVER
    return tick, command


@part
def _refresh_candidate(c: Record, s: Record, rank: int, pair_open: bool) -> tuple[int, int, int]:
    """(tick, command, bank) of the next step of the oldest owed refresh of `rank`."""
    now = s.now
    per_rank = c.banks_per_rank
    base = rank * per_rank
    pc = c.pc_of[base]
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
            s.bus_free[c.bus[pc, command]],
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
            tick = max(now, _ready(c, s, bank, PRE), s.bus_free[c.bus[pc, PRE]])
            if pair_open and not _fits(c, s, PRE, pc, tick):
                tick = FOREVER
            if tick < best or (tick == best and bank < best_bank):
                best, best_bank = tick, bank
        else:
            ready = max(ready, _ready(c, s, bank, REFPB))
    if not closed:
        return best, PRE, best_bank
    tick = max(ready, s.bus_free[c.bus[pc, REFPB]])
    if pair_open and not _fits(c, s, REFPB, pc, tick):
        tick = FOREVER
    return tick, REFPB, base + c.sets[which, 0]


@part
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


@part
def _offer(s: Record, tick: int, order: int, seq: int, command: int, bank: int, slot: int) -> None:
    """Keep a candidate if it comes before the best one so far: by tick, class, age."""
    key = tick * 8 + order
    if tick < FOREVER and (key < s.best_key or (key == s.best_key and seq < s.best_seq)):
        s.best_key = key
        s.best_seq = seq
        s.best_command = command
        s.best_bank = bank
        s.best_slot = slot


@part
def _cannot_win(s: Record, tick: int, order: int, seq: int) -> bool:
    """Whether no candidate of this class and age at `tick` or later can be the best."""
    key = tick * 8 + order
    return key > s.best_key or (key == s.best_key and seq > s.best_seq)


@part
def _floor(c: Record, s: Record, pc: int, command: int) -> int:
    """Earliest tick of `command` in a pseudo-channel by what all its banks share."""
    at = max(s.now, s.bus_free[c.bus[pc, command]])
    bank = pc * c.banks_per_pc
    for level in range(c.shared_level, c.levels):
        at = max(at, s.earliest[c.ancestors[bank, level], command])
    return at


@part
def _offer_pairs(c: Record, s: Record) -> tuple[bool, bool]:
    """Offer the second steps. Returns (a pair is open, nothing else can come before the best)."""
    opened = False
    order = 5 if c.lazy == 1 else 0
    for pc in range(c.pcs):
        bank = s.pair_bank[pc]
        if bank < 0:
            continue
        opened = True
        floor = _floor(c, s, pc, ACT2)
        tick = own(c, s, bank, ACT2, floor)
        if c.pcs == 1 or _fits(c, s, ACT2, pc, tick):
            _offer(s, tick, order, s.slot[s.pair_slot[pc], Q_SEQ], ACT2, bank, s.pair_slot[pc])
        if c.lazy == 0 and c.one_bus == 1 and tick == max(s.now, s.bus_free[c.bus[0, ACT2]]):
            return True, True
    return opened, False


@part
def _offer_columns(
    c: Record, s: Record, pc: int, mask: int, kind: int, order: int, pair_open: bool
) -> int:
    """Offer the column commands of the banks in `mask`: of their activation-buffer requests
    (`kind` -1) or their oldest queued hits. Returns the banks whose row-hit limit is spent."""
    base, spent = pc * c.banks_per_pc, 0
    simple = c.closed == 0 and c.check_dq == 0 and not pair_open
    floors = (_floor(c, s, pc, RD), _floor(c, s, pc, WR)) if simple else (s.now, s.now)
    while mask != 0:
        low = lowest_bit(mask)
        mask &= mask - 1
        bank = base + low
        if kind < 0:
            slot = s.active[bank]
        else:
            slot = s.hit[kind, bank]
            if c.hit_limit > 0 and s.streak[bank] >= c.hit_limit and s.first[kind, bank] != slot:
                spent |= 1 << low
                continue
        seq = s.slot[slot, Q_SEQ]
        write = s.slot[slot, Q_KIND]
        floor = floors[1] if write == 1 else floors[0]
        runs = c.sync == 0 or floor <= s.sync_until[c.rank_of[bank]]
        if runs and _cannot_win(s, floor, order, seq):
            continue
        if simple:
            command = RD + 2 * write
            tick = own(c, s, bank, command, floor)
            if c.sync == 0 or tick <= s.sync_until[c.rank_of[bank]]:
                _offer(s, tick, order, seq, command, bank, slot)
                continue
        tick, command = _column_candidate(c, s, pc, slot, pair_open)
        _offer(s, tick, order, seq, command, bank, slot)
    return spent


@part
def _offer_rows(
    c: Record, s: Record, pc: int, mask: int, kind: int, order: int, pair_open: bool
) -> None:
    """Offer the PRE or ACT of the oldest requests of the banks in `mask`.

    Row commands can only get later until a bank's state changes, so the first tick found is kept as
    a bound, and banks are not looked at again while it cannot win (`note_row` lowers it).
    """
    room = c.activation_buffer == 0 or s.active_count[pc] < c.activation_buffer
    can_open = room and s.pair_bank[pc] < 0
    closing = s.close_bound[pc] * 8 + order <= s.best_key
    opening = can_open and s.open_bound[pc] * 8 + order <= s.best_key
    if not closing and not opening:
        return
    mask &= ~s.active_banks[pc]
    if not closing:
        mask &= ~s.open_banks[pc]
    if not opening:
        mask &= s.open_banks[pc]
    base, first = pc * c.banks_per_pc, c.first
    close_bound, open_bound = FOREVER >> 4, FOREVER >> 4
    close_at = _floor(c, s, pc, PRE)
    open_at = _floor(c, s, pc, first)
    if c.steps == 2:
        open_at = max(open_at, _floor(c, s, pc, ACT2) - c.slots[first])
    while mask != 0:
        bank = base + lowest_bit(mask)
        mask &= mask - 1
        slot = s.first[kind, bank]
        if s.open_row[bank] >= 0:
            if s.hit[kind, bank] == slot:
                continue
            command = PRE
            tick = own(c, s, bank, PRE, close_at)
            close_bound = min(close_bound, tick)
        else:
            command = first
            tick = own(c, s, bank, first, open_at)
            if c.steps == 2:
                tick = max(tick, own(c, s, bank, ACT2, tick) - c.slots[first])
            open_bound = min(open_bound, tick)
        if not pair_open or _fits(c, s, command, pc, tick):
            _offer(s, tick, order, s.slot[slot, Q_SEQ], command, bank, slot)
    if closing:
        s.close_bound[pc] = close_bound
    if opening:
        s.open_bound[pc] = open_bound


@part
def _offer_oldest(c: Record, s: Record, pc: int, allowed: int, pair_open: bool) -> None:
    """FCFS: offer the next command of the oldest request of the mode's queue, and no other."""
    slot = _oldest_of_queue(c, s, pc, s.mode[pc])
    if slot < 0:
        return
    bank = s.slot[slot, Q_BANK]
    if (allowed >> (bank - pc * c.banks_per_pc)) & 1 == 0:
        return
    if s.open_row[bank] == s.slot[slot, Q_ROW]:
        tick, command = _column_candidate(c, s, pc, slot, pair_open)
        _offer(s, tick, 3, s.slot[slot, Q_SEQ], command, bank, slot)
    else:
        forget_rows(s, pc)
        _offer_rows(c, s, pc, 1 << (bank - pc * c.banks_per_pc), s.mode[pc], 3, pair_open)


@part
def choose(c: Record, s: Record) -> None:
    """Find the next command: s.best_key (tick x 8 + class; FOREVER if there is none), s.best_*."""
    s.best_key = FOREVER
    s.best_seq = FOREVER
    pair_open = False
    if c.steps == 2:
        pair_open, decided = _offer_pairs(c, s)
        if decided:
            return
    if s.owed > 0:
        for rank in range(c.ranks):
            if s.refresh_owed[rank] > 0:
                tick, command, bank = _refresh_candidate(c, s, rank, pair_open)
                _offer(s, tick, 2, bank, command, bank, -1)
    for pc in range(c.pcs):
        kind = s.mode[pc]
        pair_bit = 0 if s.pair_bank[pc] < 0 else 1 << (s.pair_bank[pc] - pc * c.banks_per_pc)
        allowed = ~s.blocked[pc] & ~pair_bit
        if s.active_banks[pc] != 0:
            _offer_columns(c, s, pc, s.active_banks[pc] & ~pair_bit, -1, 1, pair_open)
        if c.scheduler == FCFS:
            _offer_oldest(c, s, pc, allowed, pair_open)
            continue
        hits = s.hit_banks[pc, kind] & allowed
        spent = _offer_columns(c, s, pc, hits, kind, 3, pair_open)
        order = 4 if c.scheduler == FRFCFS else 3
        mask = s.pending[pc, kind] & allowed
        if c.scheduler == FRFCFS:
            mask &= ~hits | spent
        _offer_rows(c, s, pc, mask, kind, order, pair_open)
