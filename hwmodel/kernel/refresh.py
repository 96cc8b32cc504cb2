"""Kernel: which refresh is due, for which banks, what it needs (rules.md: refresh)."""

from __future__ import annotations

from hwmodel.kernel.hooks import due
from hwmodel.kernel.jit import called, inlined
from hwmodel.kernel.kernel_names import REFAB, REFPB, Record
from hwmodel.kernel.limits import FOREVER, REFRESH_ALL_BANK, REFRESH_NONE
from hwmodel.kernel.maintenance import (
    bank_of,
    banks_in,
    rank_mask,
    step_for_rank,
    step_for_set,
    waiting_in,
)


@inlined
def _due_at(memory: Record, state: Record, k: int) -> int:
    """Tick at which the k-th refresh of every rank is due."""
    return state.phase + k * memory.refresh_interval // memory.refresh_sets


@inlined
def _settle(memory: Record, state: Record, rank: int) -> int:
    """The set that an urgent refresh is for."""
    if memory.idle_first == 0:
        return state.refresh_issued[rank] % memory.refresh_sets
    best, fewest = -1, FOREVER
    for which in range(memory.refresh_sets):
        if (state.refresh_done[rank] >> which) & 1 == 0:
            count = waiting_in(memory, state, memory.refresh == REFRESH_ALL_BANK, rank, which)
            if count < fewest:
                best, fewest = which, count
    return best


@called
def update_refresh(memory: Record, state: Record) -> None:
    """Book what has fallen due or become urgent, settle its set, block its banks, hold its rank."""
    state.next_due = FOREVER
    if memory.refresh != REFRESH_NONE:
        while _due_at(memory, state, state.refresh_due + 1) <= state.now:
            state.refresh_due += 1
        state.next_due = _due_at(memory, state, state.refresh_due + 1)
    state.urgent, state.postponed, state.maintained = 0, 0, 0
    for pc in range(memory.pcs):
        state.blocked[pc], state.choice_kept[pc] = 0, 0
    whole = memory.refresh == REFRESH_ALL_BANK
    for pc in range(memory.pcs):
        blocked, act_blocked = 0, 0
        for rank in range(memory.ranks // memory.pcs * pc, memory.ranks // memory.pcs * (pc + 1)):
            blocked |= due(memory, state, rank)
            if state.refresh_due == state.refresh_issued[rank]:
                continue
            urgent_at = _due_at(memory, state, state.refresh_issued[rank] + 1) + memory.patience
            if urgent_at > state.now:
                state.postponed |= 1 << rank
                state.next_due = min(state.next_due, urgent_at)
                continue
            state.urgent |= 1 << rank
            if state.refresh_set[rank] < 0:
                state.refresh_set[rank] = _settle(memory, state, rank)
            which = state.refresh_set[rank]
            for i in range(banks_in(memory, whole)):
                blocked |= 1 << (bank_of(memory, whole, rank, which, i) - pc * memory.banks_per_pc)
            second = _due_at(memory, state, state.refresh_issued[rank] + 2) + memory.patience
            if second <= state.now:
                act_blocked |= rank_mask(memory, rank)
            else:
                state.next_due = min(state.next_due, second)
        state.blocked[pc] |= blocked
        state.act_blocked[pc] = act_blocked


@inlined
def refreshed(memory: Record, state: Record, rank: int, which: int) -> None:
    """A refresh has been issued: of the whole rank, or of one of its sets."""
    state.refresh_issued[rank] += 1
    state.refresh_set[rank] = -1
    state.refresh_done[rank] |= 1 << which
    if state.refresh_issued[rank] % memory.refresh_sets == 0:
        state.refresh_done[rank] = 0
    state.next_due = state.now  # what is owed next is settled when requests have entered


@inlined
def refresh_step(
    memory: Record, state: Record, rank: int, which: int, pair_open: bool
) -> tuple[int, int, int]:
    """(tick, command, bank) of the next step of a refresh."""
    if memory.refresh == REFRESH_ALL_BANK:
        return step_for_rank(memory, state, REFAB, REFAB, 1, rank, pair_open)
    return step_for_set(memory, state, REFPB, rank, which, pair_open)


@inlined
def may_go_early(memory: Record, state: Record, rank: int, which: int) -> bool:
    """Whether a refresh that is owed, but not urgent, may be for this set: its turn, and idle."""
    if memory.idle_first == 0:
        if which != state.refresh_issued[rank] % memory.refresh_sets:
            return False
    elif (state.refresh_done[rank] >> which) & 1 == 1:
        return False
    return waiting_in(memory, state, memory.refresh == REFRESH_ALL_BANK, rank, which) == 0
