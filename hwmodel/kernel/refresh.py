"""Kernel: which refresh is due, for which banks, what it needs (docs/scheduling.md: refresh)."""

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
def _due_at(c: Record, s: Record, k: int) -> int:
    """Tick at which the k-th refresh of every rank is due."""
    return s.phase + k * c.refresh_interval // c.refresh_sets


@inlined
def _settle(c: Record, s: Record, rank: int) -> int:
    """The set that an urgent refresh is for."""
    if c.idle_first == 0:
        return s.refresh_issued[rank] % c.refresh_sets
    best, fewest = -1, FOREVER
    for which in range(c.refresh_sets):
        if (s.refresh_done[rank] >> which) & 1 == 0:
            count = waiting_in(c, s, c.refresh == REFRESH_ALL_BANK, rank, which)
            if count < fewest:
                best, fewest = which, count
    return best


@called
def update_refresh(c: Record, s: Record) -> None:
    """Book what has fallen due or become urgent, settle its set, block its banks, hold its rank."""
    s.next_due = FOREVER
    if c.refresh != REFRESH_NONE:
        while _due_at(c, s, s.refresh_due + 1) <= s.now:
            s.refresh_due += 1
        s.next_due = _due_at(c, s, s.refresh_due + 1)
    s.urgent, s.postponed, s.maintained = 0, 0, 0
    for pc in range(c.pcs):
        s.blocked[pc] = 0
    whole = c.refresh == REFRESH_ALL_BANK
    for pc in range(c.pcs):
        blocked, act_blocked = 0, 0
        for rank in range(c.ranks // c.pcs * pc, c.ranks // c.pcs * (pc + 1)):
            blocked |= due(c, s, rank)
            if s.refresh_due == s.refresh_issued[rank]:
                continue
            urgent_at = _due_at(c, s, s.refresh_issued[rank] + 1) + c.patience
            if urgent_at > s.now:
                s.postponed |= 1 << rank
                s.next_due = min(s.next_due, urgent_at)
                continue
            s.urgent |= 1 << rank
            if s.refresh_set[rank] < 0:
                s.refresh_set[rank] = _settle(c, s, rank)
            which = s.refresh_set[rank]
            for i in range(banks_in(c, whole)):
                blocked |= 1 << (bank_of(c, whole, rank, which, i) - pc * c.banks_per_pc)
            second = _due_at(c, s, s.refresh_issued[rank] + 2) + c.patience
            if second <= s.now:
                act_blocked |= rank_mask(c, rank)
            else:
                s.next_due = min(s.next_due, second)
        s.blocked[pc] |= blocked
        s.act_blocked[pc] = act_blocked


@inlined
def refreshed(c: Record, s: Record, rank: int, which: int) -> None:
    """A refresh has been issued: of the whole rank, or of one of its sets."""
    s.refresh_issued[rank] += 1
    s.refresh_set[rank] = -1
    s.refresh_done[rank] |= 1 << which
    if s.refresh_issued[rank] % c.refresh_sets == 0:
        s.refresh_done[rank] = 0
    s.next_due = s.now  # what is owed next is settled when requests have entered


@inlined
def refresh_step(
    c: Record, s: Record, rank: int, which: int, pair_open: bool
) -> tuple[int, int, int]:
    """(tick, command, bank) of the next step of a refresh."""
    if c.refresh == REFRESH_ALL_BANK:
        return step_for_rank(c, s, REFAB, REFAB, 1, rank, pair_open)
    return step_for_set(c, s, REFPB, rank, which, pair_open)


@inlined
def may_go_early(c: Record, s: Record, rank: int, which: int) -> bool:
    """Whether a refresh that is owed, but not urgent, may be for this set: its turn, and idle."""
    if c.idle_first == 0:
        if which != s.refresh_issued[rank] % c.refresh_sets:
            return False
    elif (s.refresh_done[rank] >> which) & 1 == 1:
        return False
    return waiting_in(c, s, c.refresh == REFRESH_ALL_BANK, rank, which) == 0
