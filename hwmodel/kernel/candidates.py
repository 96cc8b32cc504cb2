"""Kernel: which command a channel issues next, and when (docs/scheduling.md: candidates).

FR-FCFS asks of all queued requests which may go first, and then which is oldest. Here banks stand
for requests: of a bank only its oldest hit, or its oldest request, can be first, so a bit mask of
banks is a set of candidates. Masks that the queues keep up to date (`pending`, `hit_banks`,
`in_order`, `open_banks`) are combined by `and` into those that want a column command, a PRE or an
ACT; `first_ready` then finds the earliest and among those the oldest of a mask, sixteen banks at
a time. A loop over a mask takes its lowest bit and clears it: `mask &= mask - 1`.
"""

from __future__ import annotations

from hwmodel.kernel.channel_state import Q_BANK, Q_FLAGS, Q_KIND, Q_SEQ
from hwmodel.kernel.hooks import offer
from hwmodel.kernel.jit import called, inlined
from hwmodel.kernel.kernel_names import (
    ACT2,
    BUFFERED,
    CAS,
    CLASS_BITS,
    COLUMN,
    EAGER_ACT2,
    FLAG_MASKED,
    LAZY_ACT2,
    MWR,
    OWED_REFRESH,
    PRE,
    RD,
    ROW,
    TIMEOUT,
    URGENT_REFRESH,
    WR,
    Record,
)
from hwmodel.kernel.lanes import BANKS_OF_PC, first_ready, least, lowest_bit
from hwmodel.kernel.limits import (
    FCFS,
    FOREVER,
    FRFCFS,
    OLDEST_READY,
    PAGE_CLOSED,
    PAGE_TIMEOUT,
    Int,
)
from hwmodel.kernel.maintenance import Candidate, banks_of_rank, first_of
from hwmodel.kernel.pages import unwanted_banks, wanted_again
from hwmodel.kernel.ready import dq_free, fits, floor, ready
from hwmodel.kernel.refresh import may_go_early, refresh_step


@inlined
def _column_candidate(c: Record, s: Record, pc: int, slot: int, pair_open: bool) -> tuple[int, int]:
    """(tick, command) of the column command of `slot`, or of the CAS that it needs first."""
    now = s.now
    kind, bank = s.slot[slot, Q_KIND], s.slot[slot, Q_BANK]
    command = RD + 2 * kind  # numbered RD, RDA, WR, WRA, MWR, MWRA
    if c.page_policy == PAGE_CLOSED and not wanted_again(s, slot):
        command += 1  # its A form
    rows = ready(c, s, bank, command)
    if c.masked_writes == 1 and s.slot[slot, Q_FLAGS] & FLAG_MASKED:
        command += MWR - WR
        rows = max(rows, ready(c, s, bank, command))
    tick = max(now, rows, s.bus_free[c.bus[pc, command]])
    if c.check_dq == 1:
        tick = dq_free(c, s, pc, kind, tick)
    if c.sync == 1:
        until = s.sync_until[c.rank_of[bank]]
        if tick > until:
            command = CAS
            tick = max(until + 1, rows - c.slots[CAS], ready(c, s, bank, CAS), floor(c, s, pc, CAS))
    if pair_open and not fits(c, s, command, pc, tick):
        tick = FOREVER
    return tick, command


@inlined
def _pairs(c: Record, s: Record, best: Candidate) -> tuple[Candidate, bool, bool]:
    """The second steps; whether a pair is open, and nothing else can come before the best."""
    opened = False
    order = LAZY_ACT2 if c.lazy == 1 else EAGER_ACT2
    for pc in range(c.pcs):
        bank = s.pair_bank[pc]
        if bank < 0:
            continue
        opened = True
        slot = s.pair_slot[pc]
        at = floor(c, s, pc, ACT2)
        tick = max(at, s.ready[ACT2, bank])
        if c.pcs == 1 or fits(c, s, ACT2, pc, tick):
            best = first_of(best, tick, order, s.slot[slot, Q_SEQ], ACT2, bank, slot)
        if c.lazy == 0 and c.one_bus == 1 and tick == max(s.now, s.bus_free[c.bus[0, ACT2]]):
            return best, True, True
    return best, opened, False


@called
def _each_column(
    c: Record, s: Record, pc: int, slots: Int, mask: int, order: int, pair_open: bool,
    best: Candidate,
) -> Candidate:  # fmt: skip
    """The column commands, or CAS, for the requests `slots` (banks,) of the banks of a mask."""
    while mask != 0:
        bank = pc * c.banks_per_pc + lowest_bit(mask)
        mask &= mask - 1
        slot = slots[bank]
        tick, command = _column_candidate(c, s, pc, slot, pair_open)
        best = first_of(best, tick, order, s.slot[slot, Q_SEQ], command, bank, slot)
    return best


@inlined
def _columns_of_rank(
    c: Record, s: Record, pc: int, kind: int, slots: Int, ages: Int, mask: int, order: int,
    pair_open: bool, best: Candidate,
) -> Candidate:  # fmt: skip
    """As `_columns`, of banks of one data clock."""
    if c.plain_columns == 0 or (kind == 1 and s.masked > 0):
        return _each_column(c, s, pc, slots, mask, order, pair_open, best)
    start, command = pc * c.banks_per_pc, RD + 2 * kind
    at = floor(c, s, pc, command)
    if c.check_dq == 1:
        at = dq_free(c, s, pc, kind, at)
    if c.sync == 0 and (at << CLASS_BITS) | order > best[0]:
        return best  # not even the first tick of the bus is before the best candidate
    tick, bank = first_ready(s.ready[command], ages, start, mask, at)
    if c.check_dq == 1 and tick > at:  # free beats were looked for from `at` on
        at = dq_free(c, s, pc, kind, tick)
        tick, bank = first_ready(s.ready[command], ages, start, mask, at)
    if c.sync == 1 and tick > s.sync_until[c.rank_of[bank]]:
        return _each_column(c, s, pc, slots, mask, order, pair_open, best)
    if pair_open and not fits(c, s, command, pc, tick):
        return best
    slot = slots[bank]
    return first_of(best, tick, order, s.slot[slot, Q_SEQ], command, bank, slot)


@inlined
def _columns(
    c: Record, s: Record, pc: int, kind: int, slots: Int, ages: Int, mask: int, order: int,
    pair_open: bool, best: Candidate,
) -> Candidate:  # fmt: skip
    """The column commands, or CAS, for the requests `slots` (banks,), of one kind and of packed
    ages `ages`, of the banks of a mask."""
    for clock in range(c.data_clocks):
        banks = mask
        if c.data_clocks > 1:
            banks &= banks_of_rank(c) << (clock * c.banks_per_rank)
        if banks != 0:
            best = _columns_of_rank(
                c, s, pc, kind, slots, ages, banks, order, pair_open, best
            )  # fmt: skip
    return best


@called
def _buffered(c: Record, s: Record, pc: int, pair_open: bool, best: Candidate) -> Candidate:
    """The column commands, or CAS, of the activation buffer."""
    pair_bit = 0 if s.pair_bank[pc] < 0 else 1 << (s.pair_bank[pc] - pc * c.banks_per_pc)
    for kind in range(2):
        mask = s.active_banks[pc] & ~pair_bit
        mask &= s.active_writes[pc] if kind == 1 else ~s.active_writes[pc]
        best = _columns(
            c, s, pc, kind, s.active, s.active_age, mask, BUFFERED, pair_open, best
        )  # fmt: skip
    return best


@inlined
def _rows(
    c: Record, s: Record, pc: int, kind: int, mask: int, command: int, order: int,
    pair_open: bool, best: Candidate,
) -> Candidate:  # fmt: skip
    """A row command of the oldest requests of the banks of a mask."""
    if mask == 0:
        return best
    at = floor(c, s, pc, command)
    if (at << CLASS_BITS) | order > best[0]:
        return best
    start = pc * c.banks_per_pc
    tick, bank = first_ready(s.ready[command], s.first_age[kind], start, mask, at)
    if pair_open and not fits(c, s, command, pc, tick):
        return best
    slot = s.first[kind, bank]
    return first_of(best, tick, order, s.slot[slot, Q_SEQ], command, bank, slot)


@called
def _refreshes(c: Record, s: Record, pair_open: bool, best: Candidate) -> Candidate:
    """The next steps of urgent refreshes, of owed ones whose banks are idle, and of mechanisms."""
    for rank in range(c.ranks):
        if (s.urgent >> rank) & 1 == 1:
            which = s.refresh_set[rank]
            tick, command, bank = refresh_step(c, s, rank, which, pair_open)
            best = first_of(best, tick, URGENT_REFRESH, bank, command, bank, -1 - which)
        elif (s.postponed >> rank) & 1 == 1:
            for which in range(c.refresh_sets):
                if may_go_early(c, s, rank, which):
                    tick, command, bank = refresh_step(c, s, rank, which, pair_open)
                    best = first_of(best, tick, OWED_REFRESH, bank, command, bank, -1 - which)
        if (s.maintained >> rank) & 1 == 1:
            best = offer(c, s, rank, pair_open, best)
    return best


@called
def _timeouts(c: Record, s: Record, pc: int, pair_open: bool, best: Candidate) -> Candidate:
    """PRE of banks whose row nothing waits for, when their time is over."""
    mask = unwanted_banks(c, s, pc)
    at = floor(c, s, pc, PRE)
    while mask != 0:
        bank = pc * c.banks_per_pc + lowest_bit(mask)
        mask &= mask - 1
        tick = max(at, s.ready[PRE, bank], s.last_use[bank] + s.timeout[bank])
        if not pair_open or fits(c, s, PRE, pc, tick):
            best = first_of(best, tick, TIMEOUT, bank, PRE, bank, -1)
    return best


@inlined
def _requests(c: Record, s: Record, pc: int, pair_open: bool, best: Candidate) -> Candidate:
    """What the queued requests of a pseudo-channel's mode offer."""
    kind = s.mode[pc]
    pair_bit = 0 if s.pair_bank[pc] < 0 else 1 << (s.pair_bank[pc] - pc * c.banks_per_pc)
    allowed = ~s.blocked[pc] & ~pair_bit  # by urgent refreshes, and by its ACT2 to come
    pending = s.pending[pc, kind] & allowed
    hits = s.hit_banks[pc, kind] & allowed
    if c.scheduler == FCFS:
        # the oldest request alone: its bank is in the low bits of its age
        age = least(s.first_age[kind], pc * c.banks_per_pc, s.pending[pc, kind])
        pending &= 1 << (age & (BANKS_OF_PC - 1))
        hits = s.in_order[pc, kind] & pending
    else:  # a bank that served its limit of hits goes on only with its oldest request
        hits &= ~s.hit_cap_reached[pc] | s.in_order[pc, kind]
    best = _columns(
        c, s, pc, kind, s.hit[kind], s.hit_age[kind], hits, COLUMN, pair_open, best
    )  # fmt: skip
    # FR-FCFS: column commands before row commands at one tick, and no row command for a bank with
    # a hit; oldest-ready: by age alone, and none for a bank whose oldest request hits
    order = ROW if c.scheduler == FRFCFS else COLUMN
    pending &= ~(s.in_order[pc, kind] if c.scheduler == OLDEST_READY else hits)
    # another row is open, and no activated request waits for it
    closing = pending & s.open_banks[pc] & ~s.active_banks[pc]
    best = _rows(c, s, pc, kind, closing, PRE, order, pair_open, best)
    room = c.activation_buffer == 0 or s.active_count[pc] < c.activation_buffer
    if room and s.pair_bank[pc] < 0:
        opening = pending & ~s.open_banks[pc] & ~s.act_blocked[pc]
        best = _rows(c, s, pc, kind, opening, c.first, order, pair_open, best)
    return best


@inlined
def choose(c: Record, s: Record) -> Candidate:
    """The next command."""
    best = (FOREVER, FOREVER, -1, -1, -1)
    pair_open, drains = False, False
    if s.pairs > 0:
        best, pair_open, decided = _pairs(c, s, best)
        if decided:
            return best
    if (s.urgent | s.postponed | s.maintained) != 0:
        best = _refreshes(c, s, pair_open, best)
    for pc in range(c.pcs):
        if c.page_policy >= PAGE_TIMEOUT:
            best = _timeouts(c, s, pc, pair_open, best)
        if s.active_banks[pc] != 0:
            best = _buffered(c, s, pc, pair_open, best)
            drains |= s.active_banks[pc] & s.blocked[pc] != 0
    if drains:  # what could put off a request whose bank has to be free
        return best
    for pc in range(c.pcs):
        if s.pending[pc, s.mode[pc]] != 0:
            best = _requests(c, s, pc, pair_open, best)
    return best
