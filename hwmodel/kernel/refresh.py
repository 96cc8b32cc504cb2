"""Kernel: which refresh is due, for which banks, what it needs (docs/scheduling.md: refresh)."""

from __future__ import annotations

from hwmodel.kernel.jit import inlined, rare
from hwmodel.kernel.kernel_names import PRE, PREA, REFAB, REFPB, Record
from hwmodel.kernel.ready import fits, ready
from hwmodel.kernel.timing import FOREVER, REFRESH_ALL_BANK


@inlined
def _due(c: Record, s: Record, k: int) -> int:
    """Tick at which the k-th refresh of every rank is due."""
    return s.phase + k * c.refresh_interval // c.refresh_sets


@inlined
def banks_in(c: Record) -> int:
    """How many banks a refresh set has."""
    return c.banks_per_rank if c.refresh == REFRESH_ALL_BANK else c.set_size


@inlined
def bank_of(c: Record, rank: int, which: int, i: int) -> int:
    """The i-th bank of a refresh set, flat."""
    if c.refresh == REFRESH_ALL_BANK:
        return rank * c.banks_per_rank + i
    return rank * c.banks_per_rank + c.sets[which, i]


@inlined
def waiting_in(c: Record, s: Record, rank: int, which: int) -> int:
    """Requests that wait for the banks of a refresh set."""
    total = 0
    for i in range(banks_in(c)):
        bank = bank_of(c, rank, which, i)
        total += s.queued[0, bank] + s.queued[1, bank]
        if s.active[bank] >= 0:
            total += 1
    return total


@inlined
def _settle(c: Record, s: Record, rank: int) -> int:
    """The set that an urgent refresh is for."""
    if c.idle_first == 0:
        return s.refresh_issued[rank] % c.refresh_sets
    best, fewest = -1, FOREVER
    for which in range(c.refresh_sets):
        if (s.refresh_done[rank] >> which) & 1 == 0:
            count = waiting_in(c, s, rank, which)
            if count < fewest:
                best, fewest = which, count
    return best


@inlined
def banks_of_rank(c: Record) -> int:
    """All banks of a rank, a bit mask; of 64 banks 1 << 64 would not fit."""
    return (1 << c.banks_per_rank) - 1 if c.banks_per_rank < 64 else -1


@rare
def update_refresh(c: Record, s: Record) -> None:
    """Book what has fallen due or become urgent, settle its set, block its banks, hold its rank."""
    while _due(c, s, s.refresh_due + 1) <= s.now:
        s.refresh_due += 1
    s.next_due = _due(c, s, s.refresh_due + 1)
    s.urgent, s.postponed = 0, 0
    for pc in range(c.pcs):
        blocked, held = 0, 0
        for rank in range(c.ranks // c.pcs * pc, c.ranks // c.pcs * (pc + 1)):
            if s.refresh_due == s.refresh_issued[rank]:
                continue
            urgent_at = _due(c, s, s.refresh_issued[rank] + 1) + c.patience
            if urgent_at > s.now:
                s.postponed |= 1 << rank
                s.next_due = min(s.next_due, urgent_at)
                continue
            s.urgent |= 1 << rank
            if s.refresh_set[rank] < 0:
                s.refresh_set[rank] = _settle(c, s, rank)
            which = s.refresh_set[rank]
            for i in range(banks_in(c)):
                blocked |= 1 << (bank_of(c, rank, which, i) - pc * c.banks_per_pc)
            second = _due(c, s, s.refresh_issued[rank] + 2) + c.patience
            if second <= s.now:
                held |= banks_of_rank(c) << (rank * c.banks_per_rank - pc * c.banks_per_pc)
            else:
                s.next_due = min(s.next_due, second)
        s.blocked[pc] = blocked
        s.held[pc] = held


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
def refresh_candidate(
    c: Record, s: Record, rank: int, which: int, pair_open: bool
) -> tuple[int, int, int]:
    """(tick, command, bank) of the next step of a refresh; tick FOREVER while there is none."""
    now, pc = s.now, c.pc_of[rank * c.banks_per_rank]
    pair = s.pair_bank[pc]
    whole = c.refresh == REFRESH_ALL_BANK
    base = bank_of(c, rank, which, 0)
    best, best_bank, at = FOREVER, base, now
    opened, busy = False, False
    for i in range(banks_in(c)):
        bank = bank_of(c, rank, which, i)
        if s.active[bank] >= 0 or pair == bank:
            busy = True
        elif s.open_row[bank] >= 0:
            opened = True
            if not whole:
                tick = max(now, ready(c, s, bank, PRE), s.bus_free[c.bus[pc, PRE]])
                if pair_open and not fits(c, s, PRE, pc, tick):
                    tick = FOREVER
                if tick < best or (tick == best and bank < best_bank):
                    best, best_bank = tick, bank
        elif not whole:
            at = max(at, ready(c, s, bank, REFPB))
    if whole:
        if busy:
            return FOREVER, REFAB, base
        command = PREA if opened else REFAB
        at = max(at, ready(c, s, base, command))
    else:
        if opened or busy:
            return best, PRE, best_bank
        command = REFPB
    at = max(at, s.bus_free[c.bus[pc, command]])
    if pair_open and not fits(c, s, command, pc, at):
        at = FOREVER
    return at, command, base


@inlined
def may_go_early(c: Record, s: Record, rank: int, which: int) -> bool:
    """Whether a refresh that is owed, but not urgent, may be for this set: its turn, and idle."""
    if c.idle_first == 0:
        if which != s.refresh_issued[rank] % c.refresh_sets:
            return False
    elif (s.refresh_done[rank] >> which) & 1 == 1:
        return False
    return waiting_in(c, s, rank, which) == 0
