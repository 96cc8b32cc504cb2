"""Kernel: rows open and close, and close for want of use (docs/scheduling.md: page policy)."""

from __future__ import annotations

from hwmodel.kernel.channel_state import Q_BANK, Q_FLAGS, Q_NEXT, Q_ROW
from hwmodel.kernel.hooks import closed, opened
from hwmodel.kernel.jit import inlined
from hwmodel.kernel.kernel_names import FLAG_RMW, Record
from hwmodel.kernel.limits import PAGE_ADAPTIVE
from hwmodel.kernel.queues import find_hit, set_hit


@inlined
def open_row(c: Record, s: Record, pc: int, bank: int, row: int) -> None:
    """The bank's row is open: find the queued requests that hit it."""
    s.open_row[bank] = row
    s.streak[bank] = 0
    s.last_use[bank] = s.now
    bit = 1 << (bank - pc * c.banks_per_pc)
    s.open_banks[pc] |= bit
    for kind in range(2):
        set_hit(s, pc, kind, bank, bit, find_hit(s, s.first[kind, bank], row))
    s.hit_cap_reached[pc] &= ~bit
    s.bank_commands[bank, 0] += 1
    opened(c, s, bank)
    rank = c.rank_of[bank]
    if s.rank_open[rank] == 0:
        s.active_since[rank] = s.now
    s.rank_open[rank] += 1
    if c.page_policy == PAGE_ADAPTIVE:
        if s.timed_out_row[bank] == row:
            s.timeout[bank] = min(2 * s.timeout[bank], 16 * c.page_timeout)
        s.timed_out_row[bank] = -1


@inlined
def close_row(c: Record, s: Record, pc: int, bank: int) -> None:
    """The bank is closed, if it was open."""
    row = s.open_row[bank]
    if row < 0:
        return
    s.open_row[bank] = -1
    bit = 1 << (bank - pc * c.banks_per_pc)
    s.open_banks[pc] &= ~bit
    closed(c, s, bank, row)
    for queue in range(2):
        s.hit[queue, bank] = -1
        s.hit_banks[pc, queue] &= ~bit
        s.in_order[pc, queue] &= ~bit
    rank = c.rank_of[bank]
    s.rank_open[rank] -= 1
    if s.rank_open[rank] == 0:
        s.active_ticks[rank] += s.now - s.active_since[rank]
        s.active_since[rank] = -1


@inlined
def shorten_timeout(c: Record, s: Record, bank: int) -> None:
    """A request had to wait for the row to close."""
    if c.page_policy == PAGE_ADAPTIVE:
        s.timeout[bank] = max(s.timeout[bank] // 2, max(1, c.page_timeout // 16))


@inlined
def wanted_again(s: Record, slot: int) -> bool:
    """Whether another waiting request, or the write that follows this read, is for the same bank
    and row."""
    if s.slot[slot, Q_FLAGS] & FLAG_RMW != 0:
        return True
    bank, row = s.slot[slot, Q_BANK], s.slot[slot, Q_ROW]
    for kind in range(2):
        other = s.first[kind, bank]
        while other >= 0:
            if other != slot and s.slot[other, Q_ROW] == row:
                return True
            other = s.slot[other, Q_NEXT]
    waiting = s.active[bank]
    return waiting >= 0 and waiting != slot and s.slot[waiting, Q_ROW] == row


@inlined
def unwanted_banks(c: Record, s: Record, pc: int) -> int:
    """Open banks, a bit mask, for whose row no request waits."""
    hits = s.hit_banks[pc, 0] | s.hit_banks[pc, 1]
    return s.open_banks[pc] & ~(hits | s.active_banks[pc] | s.blocked[pc])
