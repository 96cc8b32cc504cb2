"""Kernel: rows open and close, and close for want of use (rules.md: page policy)."""

from __future__ import annotations

from hwmodel.kernel.bank_place import rank_of
from hwmodel.kernel.channel_state import Q_BANK, Q_FLAGS, Q_NEXT, Q_ROW
from hwmodel.kernel.hooks import closed, opened
from hwmodel.kernel.jit import inlined
from hwmodel.kernel.kernel_names import FLAG_RMW, Record
from hwmodel.kernel.limits import PAGE_ADAPTIVE
from hwmodel.kernel.queues import find_hit, set_hit


@inlined
def open_row(memory: Record, state: Record, pc: int, bank: int, row: int) -> None:
    """The bank's row is open: find the queued requests that hit it."""
    state.open_row[bank] = row
    state.streak[bank] = 0
    state.last_use[bank] = state.now
    bit = 1 << (bank - pc * memory.banks_per_pc)
    state.open_banks[pc] |= bit
    for kind in range(2):
        set_hit(state, pc, kind, bank, bit, find_hit(state, state.first[kind, bank], row))
    state.hit_cap_reached[pc] &= ~bit
    state.bank_commands[bank, 0] += 1
    opened(memory, state, bank)
    rank = rank_of(memory, bank)
    if state.rank_open[rank] == 0:
        state.active_since[rank] = state.now
    state.rank_open[rank] += 1
    if memory.page_policy == PAGE_ADAPTIVE:
        if state.timed_out_row[bank] == row:
            state.timeout[bank] = min(2 * state.timeout[bank], 16 * memory.page_timeout)
        state.timed_out_row[bank] = -1


@inlined
def close_row(memory: Record, state: Record, pc: int, bank: int) -> None:
    """The bank is closed, if it was open."""
    row = state.open_row[bank]
    if row < 0:
        return
    state.open_row[bank] = -1
    bit = 1 << (bank - pc * memory.banks_per_pc)
    state.open_banks[pc] &= ~bit
    closed(memory, state, bank, row)
    for queue in range(2):
        state.hit[queue, bank] = -1
        state.hit_banks[pc, queue] &= ~bit
        state.in_order[pc, queue] &= ~bit
    rank = rank_of(memory, bank)
    state.rank_open[rank] -= 1
    if state.rank_open[rank] == 0:
        state.active_ticks[rank] += state.now - state.active_since[rank]
        state.active_since[rank] = -1


@inlined
def shorten_timeout(memory: Record, state: Record, bank: int) -> None:
    """A request had to wait for the row to close."""
    if memory.page_policy == PAGE_ADAPTIVE:
        state.timeout[bank] = max(state.timeout[bank] // 2, max(1, memory.page_timeout // 16))


@inlined
def wanted_again(state: Record, slot: int) -> bool:
    """Whether another waiting request, or the write that follows this read, is for the same bank
    and row."""
    if state.slot[slot, Q_FLAGS] & FLAG_RMW != 0:
        return True
    bank, row = state.slot[slot, Q_BANK], state.slot[slot, Q_ROW]
    for kind in range(2):
        other = state.first[kind, bank]
        while other >= 0:
            if other != slot and state.slot[other, Q_ROW] == row:
                return True
            other = state.slot[other, Q_NEXT]
    waiting = state.active[bank]
    return waiting >= 0 and waiting != slot and state.slot[waiting, Q_ROW] == row


@inlined
def unwanted_banks(memory: Record, state: Record, pc: int) -> int:
    """Open banks, a bit mask, for whose row no request waits."""
    hits = state.hit_banks[pc, 0] | state.hit_banks[pc, 1]
    return state.open_banks[pc] & ~(hits | state.active_banks[pc] | state.blocked[pc])
