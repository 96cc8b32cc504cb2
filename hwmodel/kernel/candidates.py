"""Kernel: which command a channel issues next, and when (docs/controller.md: candidates)."""

from __future__ import annotations

from hwmodel.kernel.channel_state import FOREVER, Q_BANK, Q_KIND, Q_ROW, Q_SEQ
from hwmodel.kernel.jit import lowest_bit, part
from hwmodel.kernel.kernel_names import ACT2, CAS, PRE, RD, WR, Record
from hwmodel.kernel.pages import unwanted_banks, wanted_again
from hwmodel.kernel.ready import dq_free, fits, floor, forget_rows, own, rank_ready, ready
from hwmodel.kernel.refresh import may_go_early, refresh_candidate
from hwmodel.kernel.timing import FCFS, FRFCFS, PAGE_CLOSED, PAGE_TIMEOUT


@part
def _column_candidate(c: Record, s: Record, pc: int, slot: int, pair_open: bool) -> tuple[int, int]:
    """(tick, command) of the column command of `slot`, or of the CAS that it needs first."""
    now = s.now
    kind, bank = s.slot[slot, Q_KIND], s.slot[slot, Q_BANK]
    command = RD + 2 * kind
    if c.page_policy == PAGE_CLOSED and not wanted_again(s, slot):
        command += 1
    rows = ready(c, s, bank, command)
    tick = max(now, rows, s.bus_free[c.bus[pc, command]])
    if c.check_dq == 1:
        tick = dq_free(c, s, pc, kind, tick)
    if c.sync == 1:
        rank = c.rank_of[bank]
        until = s.sync_until[rank]
        if tick > until:
            command = CAS
            tick = max(
                now,
                until + 1,
                rows - c.slots[CAS],
                rank_ready(c, s, bank, CAS),
                s.bus_free[c.bus[pc, CAS]],
            )
    if pair_open and not fits(c, s, command, pc, tick):
        tick = FOREVER
    return tick, command


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
def _offer_pairs(c: Record, s: Record) -> tuple[bool, bool]:
    """Offer the second steps. Returns (a pair is open, nothing else can come before the best)."""
    opened = False
    order = 5 if c.lazy == 1 else 0
    for pc in range(c.pcs):
        bank = s.pair_bank[pc]
        if bank < 0:
            continue
        opened = True
        tick = own(c, s, bank, ACT2, floor(c, s, pc, ACT2))
        if c.pcs == 1 or fits(c, s, ACT2, pc, tick):
            _offer(s, tick, order, s.slot[s.pair_slot[pc], Q_SEQ], ACT2, bank, s.pair_slot[pc])
        if c.lazy == 0 and c.one_bus == 1 and tick == max(s.now, s.bus_free[c.bus[0, ACT2]]):
            return True, True
    return opened, False


@part
def _plain_columns(c: Record) -> bool:
    """Whether rows and bus alone say when a column command is legal, and which it is."""
    return c.page_policy != PAGE_CLOSED and c.check_dq == 0


@part
def _is_spent(c: Record, s: Record, kind: int, bank: int) -> bool:
    """Whether a bank has served its limit of row hits while an older request waits."""
    return (
        c.hit_limit > 0
        and s.streak[bank] >= c.hit_limit
        and s.first[kind, bank] != s.hit[kind, bank]
    )


@part
def _oldest_wins(c: Record, s: Record, pc: int, kind: int, hits: int, pair_open: bool) -> bool:
    """Offer the column command of the oldest request of the queue, if no other column command of
    the queue can come before it."""
    slot = s.oldest[pc, kind]
    if slot < 0 or c.shared_queue == 1 or not _plain_columns(c):
        return False
    bank = s.slot[slot, Q_BANK]
    low = bank - pc * c.banks_per_pc
    if (hits >> low) & 1 == 0 or s.hit[kind, bank] != slot:
        return False
    command = RD + 2 * kind
    at = floor(c, s, pc, command)
    if own(c, s, bank, command, at) > at:
        return False
    if c.sync == 1 and at > s.sync_until[c.rank_of[bank]]:
        return False
    if pair_open and not fits(c, s, command, pc, at):
        return False
    _offer(s, at, 3, s.slot[slot, Q_SEQ], command, bank, slot)
    return True


@part
def _offer_columns(
    c: Record, s: Record, pc: int, mask: int, kind: int, order: int, pair_open: bool
) -> None:
    """Offer the column commands of the banks in `mask`: of their activation-buffer requests
    (`kind` -1) or their oldest queued hits."""
    base = pc * c.banks_per_pc
    simple = _plain_columns(c)
    floors = (floor(c, s, pc, RD), floor(c, s, pc, WR)) if simple else (s.now, s.now)
    while mask != 0:
        bank = base + lowest_bit(mask)
        mask &= mask - 1
        if kind < 0:
            slot = s.active[bank]
        else:
            slot = s.hit[kind, bank]
            if _is_spent(c, s, kind, bank):
                continue
        seq = s.slot[slot, Q_SEQ]
        write = s.slot[slot, Q_KIND]
        at = floors[1] if write == 1 else floors[0]
        runs = c.sync == 0 or at <= s.sync_until[c.rank_of[bank]]
        if runs and _cannot_win(s, at, order, seq):
            continue
        if simple:
            command = RD + 2 * write
            tick = own(c, s, bank, command, at)
            if c.sync == 0 or tick <= s.sync_until[c.rank_of[bank]]:
                if not pair_open or fits(c, s, command, pc, tick):
                    _offer(s, tick, order, seq, command, bank, slot)
                continue
        tick, command = _column_candidate(c, s, pc, slot, pair_open)
        _offer(s, tick, order, seq, command, bank, slot)


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
    mask &= ~s.active_banks[pc] & (s.open_banks[pc] | ~s.held[pc])
    if not closing:
        mask &= ~s.open_banks[pc]
    if not opening:
        mask &= s.open_banks[pc]
    base, first = pc * c.banks_per_pc, c.first
    close_bound, open_bound = FOREVER >> 4, FOREVER >> 4
    close_at = floor(c, s, pc, PRE)
    open_at = floor(c, s, pc, first)
    if c.steps == 2:
        open_at = max(open_at, floor(c, s, pc, ACT2) - c.slots[first])
    while mask != 0:
        bank = base + lowest_bit(mask)
        mask &= mask - 1
        slot = s.first[kind, bank]
        if s.open_row[bank] >= 0:
            hit = s.hit[kind, bank]
            if hit == slot:
                continue
            if hit >= 0 and c.scheduler == FRFCFS and not _is_spent(c, s, kind, bank):
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
        if not pair_open or fits(c, s, command, pc, tick):
            _offer(s, tick, order, s.slot[slot, Q_SEQ], command, bank, slot)
    if closing:
        s.close_bound[pc] = close_bound
    if opening:
        s.open_bound[pc] = open_bound


@part
def _offer_oldest(c: Record, s: Record, pc: int, allowed: int, pair_open: bool) -> None:
    """FCFS: offer the next command of the oldest request of the mode's queue, and no other."""
    slot = s.oldest[pc, s.mode[pc]]
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
def _offer_refreshes(c: Record, s: Record, pair_open: bool) -> None:
    """Offer the next steps of urgent refreshes, and of owed ones whose banks are idle."""
    for rank in range(c.ranks):
        if (s.urgent >> rank) & 1 == 1:
            which = s.refresh_set[rank]
            tick, command, bank = refresh_candidate(c, s, rank, which, pair_open)
            _offer(s, tick, 2, bank, command, bank, -1 - which)
        elif (s.postponed >> rank) & 1 == 1:
            for which in range(c.refresh_sets):
                if may_go_early(c, s, rank, which):
                    tick, command, bank = refresh_candidate(c, s, rank, which, pair_open)
                    _offer(s, tick, 6, bank, command, bank, -1 - which)


@part
def _offer_timeouts(c: Record, s: Record, pc: int, pair_open: bool) -> None:
    """Offer PRE to banks whose row nothing waits for, when their time is over."""
    mask = unwanted_banks(c, s, pc)
    at = floor(c, s, pc, PRE)
    while mask != 0:
        bank = pc * c.banks_per_pc + lowest_bit(mask)
        mask &= mask - 1
        tick = max(own(c, s, bank, PRE, at), s.last_use[bank] + s.timeout[bank])
        if not pair_open or fits(c, s, PRE, pc, tick):
            _offer(s, tick, 7, bank, PRE, bank, -1)


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
    if (s.urgent | s.postponed) != 0:
        _offer_refreshes(c, s, pair_open)
    for pc in range(c.pcs):
        kind = s.mode[pc]
        pair_bit = 0 if s.pair_bank[pc] < 0 else 1 << (s.pair_bank[pc] - pc * c.banks_per_pc)
        allowed = ~s.blocked[pc] & ~pair_bit
        if c.page_policy >= PAGE_TIMEOUT:
            _offer_timeouts(c, s, pc, pair_open)
        if s.active_banks[pc] != 0:
            _offer_columns(c, s, pc, s.active_banks[pc] & ~pair_bit, -1, 1, pair_open)
        if c.scheduler == FCFS:
            _offer_oldest(c, s, pc, allowed, pair_open)
            continue
        hits = s.hit_banks[pc, kind] & allowed
        if not _oldest_wins(c, s, pc, kind, hits, pair_open):
            _offer_columns(c, s, pc, hits, kind, 3, pair_open)
        order = 4 if c.scheduler == FRFCFS else 3
        _offer_rows(c, s, pc, s.pending[pc, kind] & allowed, kind, order, pair_open)
