"""Kernel: the column commands of queued hits, one after another, while nothing else can come first.

`choose` leaves in `columns_only_until` the first tick at which anything but a column command of a
queued hit may be legal. Column commands put all else off, never forward: until that tick, and as
long as no other bank comes to want a row command, no refresh falls due and the mode stays, each
next command is the first hit's. What column commands delay at their banks counts from the last one
of each, and is booked when the series ends.
"""

from __future__ import annotations

from hwmodel.kernel.channel_state import (
    INBOX,
    Q_FLAGS,
    Q_NEXT,
    Q_PREV,
    Q_ROW,
    Q_SEQ,
    RUN_TICK,
)
from hwmodel.kernel.issue import book_data, count_columns, write_log
from hwmodel.kernel.jit import called, inlined
from hwmodel.kernel.kernel_names import FLAG_RMW, RD, WRITE, Record
from hwmodel.kernel.lanes import first_ready, lowest_bit, packed_age, postpone, postpone_all, put
from hwmodel.kernel.queues import (
    count_write,
    enter,
    enter_behind,
    leave_otherwise,
    put_age,
    set_modes,
)
from hwmodel.kernel.ready import delay_banks, floor
from hwmodel.kernel.timing import FOREVER, NEVER, OLDEST_READY, Int


@inlined
def _first_hit(c: Record, s: Record) -> tuple[int, int]:
    """(tick, bank) of the first column command; NEVER where a bank wants another command of which
    `columns_only_until` does not tell."""
    first, bank, age = FOREVER, -1, FOREVER
    for pc in range(c.pcs):
        kind, allowed = s.mode[pc], ~s.blocked[pc]
        hits = s.hit_banks[pc, kind] & allowed & (~s.hit_cap_reached[pc] | s.in_order[pc, kind])
        wanted = s.pending[pc, kind] & allowed
        wanted &= ~(s.in_order[pc, kind] if c.scheduler == OLDEST_READY else hits)
        if wanted & ~s.row_wanted[pc] != 0 or (kind == WRITE and s.masked > 0):
            return NEVER, -1
        if hits == 0:
            continue
        command, start = RD + 2 * kind, pc * c.banks_per_pc
        at = floor(c, s, pc, command)
        tick, there = first_ready(s.ready[command], s.hit_age[kind], start, hits, at)
        if c.sync == 1 and tick > s.sync_until[c.rank_of[there]]:
            return NEVER, -1
        if tick <= first:
            seq = s.slot[s.hit[kind, there], Q_SEQ]
            if tick < first or seq < age:
                first, bank, age = tick, there, seq
    return first, bank


@inlined
def _delay_columns(c: Record, s: Record, pc: int, command: int, bank: int, tick: int) -> None:
    """Book what `command` puts off at once: what the pseudo-channel shares, and itself."""
    postpone_all(s.floor[pc], c.pc_delay[command], tick)
    if c.pcs > 1:
        postpone_all(s.floor[1 - pc], c.channel_delay[command], tick)
    for r in range(c.n_again[command]):
        at = tick + c.again[command, r, 1]
        postpone(s.ready[command], pc * c.banks_per_pc, c.reach[c.again[command, r, 0], bank], at)


@inlined
def _end_series(
    c: Record, s: Record, kind: int, served: int, banks: int, other_kind: int, other_served: int,
    other_banks: int,
) -> None:  # fmt: skip
    """Count the column commands of both pseudo-channels, and book what the last one of each bank of
    a mask puts off."""
    for pc in range(c.pcs):
        if pc == 1:
            kind, served, banks = other_kind, other_served, other_banks
        count_columns(c, s, RD + 2 * kind, kind, served, served)
        while banks != 0:
            bit = banks & -banks
            bank = pc * c.banks_per_pc + lowest_bit(banks)
            banks ^= bit
            command = RD + 2 * kind
            delay_banks(c, s, command, bank, s.last_use[bank], c.n_bank_rules[command])
            s.end = max(s.end, s.last_use[bank] + c.data_end[kind])
            if s.first[kind, bank] >= 0:
                put_age(s.first_age[kind], bank, bit, s.slot[s.first[kind, bank], Q_SEQ])


@inlined
def _leave(c: Record, s: Record, pc: int, kind: int, bank: int, bit: int, slot: int) -> None:
    """Take a hit out of its queue, and free its slot; `first_age` is put at the end."""
    after = s.slot[slot, Q_NEXT]
    if after >= 0 and s.first[kind, bank] == slot and s.slot[after, Q_ROW] == s.open_row[bank]:
        s.first[kind, bank], s.hit[kind, bank] = after, after
        s.slot[after, Q_PREV] = -1
        put(s.hit_age[kind], bank, packed_age(s.slot[after, Q_SEQ], lowest_bit(bit)))
        s.waiting[pc, kind] -= 1
        s.queued[kind, bank] -= 1
        s.stalled, s.left_at = 0, s.now
    else:
        leave_otherwise(c, s, pc, bank, bit, slot)
    s.free[pc, s.free_count[pc]] = slot
    s.free_count[pc] += 1


@inlined
def _serve_hit(
    c: Record, s: Record, pc: int, bank: int, slot: int, kind: int, tick: int, completions: Int
) -> None:
    """Issue the column command of a hit, but for what is counted and booked at the end."""
    command, bit = RD + 2 * kind, 1 << (bank - pc * c.banks_per_pc)
    s.now = tick
    s.bus_free[c.bus[pc, command]] = tick + c.slots[command]
    _delay_columns(c, s, pc, command, bank, tick)
    if kind == WRITE:
        count_write(c, s, slot, -1)
    book_data(c, s, pc, bank, slot, kind, tick, completions)
    s.bank_commands[bank, 1 + kind] += 1
    s.streak[bank] += 1
    s.last_use[bank] = tick
    _leave(c, s, pc, kind, bank, bit, slot)
    if s.streak[bank] == c.hit_limit:
        s.hit_cap_reached[pc] |= bit


@inlined
def _end(c: Record, s: Record, until: int) -> int:
    """The first tick at which something else may come before the next hit."""
    if s.head == s.tail:
        return until if s.stream_closed == 1 else s.now
    arrival = s.inbox[RUN_TICK, s.head & (INBOX - 1)]
    if arrival > s.now:
        return min(until, arrival)
    if c.late_entry == 1 and s.left_at == s.now:
        return min(until, s.now + 1)
    return until


@called
def _enter_any(c: Record, s: Record, completions: Int) -> None:
    """`enter`, called: a series seldom needs it."""
    enter(c, s, completions)


@called
def serve_hits(c: Record, s: Record, until: int, log: Int, completions: Int) -> None:
    """Issue column commands from the tick of one on, as `advance` would, up to (not including) tick
    `until` at most."""
    until = min(until, s.next_due, s.columns_only_until)
    mode, other_mode = s.mode[0], s.mode[1]
    served, other_served, used, other_used = 0, 0, 0, 0
    while True:
        late = c.late_entry == 1 and s.left_at == s.now
        if not late and not enter_behind(c, s, completions):
            _enter_any(c, s, completions)
        set_modes(c, s)
        if s.mode[0] != mode or s.mode[1] != other_mode:
            break
        end = _end(c, s, until)
        late = late and end == s.now + 1 and end < until  # a request enters then
        if late and c.one_bus == 1:  # which takes no command before
            s.now = end
            continue
        tick, bank = _first_hit(c, s)
        if late and tick >= end:
            s.now = end
            continue
        if tick >= end or tick < s.now or (log.shape[0] > 0 and s.logged >= log.shape[0]):
            break
        pc = c.pc_of[bank]
        kind = mode if pc == 0 else other_mode
        slot = s.hit[kind, bank]
        if s.slot[slot, Q_FLAGS] & FLAG_RMW != 0:
            break
        write_log(s, log, tick, RD + 2 * kind, bank, slot)
        _serve_hit(c, s, pc, bank, slot, kind, tick, completions)
        if pc == 0:
            served += 1
            used |= 1 << bank
        else:
            other_served += 1
            other_used |= 1 << (bank - c.banks_per_pc)
    _end_series(c, s, mode, served, used, other_mode, other_served, other_used)
