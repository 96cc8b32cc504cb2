"""Kernel: which refresh is due, for which banks, what it needs (docs/scheduling.md: refresh)."""

from __future__ import annotations

from hwmodel.kernel.jit import called, inlined
from hwmodel.kernel.kernel_names import PERIODIC, PRE, PREA, REFAB, REFPB, RFM, RFMAB, Record
from hwmodel.kernel.ready import fits, ready
from hwmodel.kernel.timing import FOREVER, REFRESH_ALL_BANK, REFRESH_NONE


@inlined
def _due(c: Record, s: Record, k: int) -> int:
    """Tick at which the k-th refresh of every rank is due."""
    return s.phase + k * c.refresh_interval // c.refresh_sets


@inlined
def banks_in(c: Record, whole: bool) -> int:
    """How many banks a refresh set has; `whole`: the rank is the set."""
    return c.banks_per_rank if whole else c.set_size


@inlined
def bank_of(c: Record, whole: bool, rank: int, which: int, i: int) -> int:
    """The i-th bank of a refresh set, flat."""
    return rank * c.banks_per_rank + (i if whole else c.sets[which, i])


@inlined
def waiting_in(c: Record, s: Record, whole: bool, rank: int, which: int) -> int:
    """Requests that wait for the banks of a refresh set."""
    total = 0
    for i in range(banks_in(c, whole)):
        bank = bank_of(c, whole, rank, which, i)
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
            count = waiting_in(c, s, c.refresh == REFRESH_ALL_BANK, rank, which)
            if count < fewest:
                best, fewest = which, count
    return best


@inlined
def banks_of_rank(c: Record) -> int:
    """All banks of a rank, a bit mask; of 64 banks 1 << 64 would not fit."""
    return (1 << c.banks_per_rank) - 1 if c.banks_per_rank < 64 else -1


@inlined
def _manage(c: Record, s: Record, rank: int) -> int:
    """Book which sets of a rank owe an RFM; the banks of those that are urgent, a bit mask of the
    pseudo-channel."""
    owed, urgent, blocked = 0, 0, 0
    first = c.pc_of[rank * c.banks_per_rank] * c.banks_per_pc
    for which in range(c.rfm_sets):
        most, most_closed = 0, 0  # an open row may be read on: only activations are counted
        for i in range(c.set_size):
            bank = bank_of(c, False, rank, which, i)
            most = max(most, s.raa[bank])
            if s.open_row[bank] < 0:
                most_closed = max(most_closed, s.raa[bank])
        if most_closed >= c.raammt:
            urgent |= 1 << which
            for i in range(c.set_size):
                blocked |= 1 << (bank_of(c, False, rank, which, i) - first)
        elif most >= c.raaimt:
            owed |= 1 << which
    s.rfm_owed[rank], s.rfm_urgent[rank] = owed, urgent
    if (owed | urgent) != 0:
        s.maintained |= 1 << rank
    return blocked


@called
def lower_counters(c: Record, s: Record, command: int, rank: int, which: int) -> None:
    """A refresh or an RFM takes its share off the activations of its banks."""
    less = c.raa_by_rfm if command == RFM or command == RFMAB else c.raa_by_refresh
    whole = command == REFAB or command == RFMAB
    for i in range(banks_in(c, whole)):
        bank = bank_of(c, whole, rank, which, i)
        s.raa[bank] = max(0, s.raa[bank] - less)
    s.next_due = s.now


@called
def update_refresh(c: Record, s: Record) -> None:
    """Book what has fallen due or become urgent, settle its set, block its banks, hold its rank."""
    s.next_due = FOREVER
    if c.refresh != REFRESH_NONE:
        while _due(c, s, s.refresh_due + 1) <= s.now:
            s.refresh_due += 1
        s.next_due = _due(c, s, s.refresh_due + 1)
    s.urgent, s.postponed, s.maintained = 0, 0, 0
    whole = c.refresh == REFRESH_ALL_BANK
    for pc in range(c.pcs):
        blocked, act_blocked = 0, 0
        for rank in range(c.ranks // c.pcs * pc, c.ranks // c.pcs * (pc + 1)):
            if c.raaimt > 0:
                blocked |= _manage(c, s, rank)
            for p in range(c.n_periodic):
                if s.periodic_due[rank, p] > s.now:
                    s.next_due = min(s.next_due, s.periodic_due[rank, p])
                    continue
                s.maintained |= 1 << rank
                blocked |= banks_of_rank(c) << (rank * c.banks_per_rank - pc * c.banks_per_pc)
            if c.alert_from > 0 and s.back_off_at[rank] <= s.now:
                s.maintained |= 1 << rank
                blocked |= banks_of_rank(c) << (rank * c.banks_per_rank - pc * c.banks_per_pc)
            elif c.alert_from > 0:
                s.next_due = min(s.next_due, s.back_off_at[rank])
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
            for i in range(banks_in(c, whole)):
                blocked |= 1 << (bank_of(c, whole, rank, which, i) - pc * c.banks_per_pc)
            second = _due(c, s, s.refresh_issued[rank] + 2) + c.patience
            if second <= s.now:
                act_blocked |= banks_of_rank(c) << (rank * c.banks_per_rank - pc * c.banks_per_pc)
            else:
                s.next_due = min(s.next_due, second)
        s.blocked[pc] = blocked
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
def refresh_candidate(
    c: Record, s: Record, command: int, rank: int, which: int, pair_open: bool
) -> tuple[int, int, int]:
    """(tick, command, bank) of the next step of a refresh, an RFM or a command at intervals; tick
    FOREVER while there is none."""
    now, pc = s.now, c.pc_of[rank * c.banks_per_rank]
    pair = s.pair_bank[pc]
    whole = command != REFPB and command != RFM
    base = bank_of(c, whole, rank, which, 0)
    best, best_bank, at = FOREVER, base, now
    opened, busy = False, False
    for i in range(banks_in(c, whole)):
        bank = bank_of(c, whole, rank, which, i)
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
            if command == RFM:  # waits for what a REFPB waits for, and for rows of its own
                at = max(at, ready(c, s, bank, RFM))
    if whole:
        if command < PERIODIC or c.periodic_closed[command - PERIODIC] == 1:
            if busy:
                return FOREVER, REFAB, base
            if opened:
                command = PREA
        at = max(at, ready(c, s, base, c.lane[command]))
        if command == RFMAB:  # as an RFM does of REFPB
            at = max(at, ready(c, s, base, REFAB))
    elif opened or busy:
        return best, PRE, best_bank
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
    return waiting_in(c, s, c.refresh == REFRESH_ALL_BANK, rank, which) == 0
