"""Kernel: which command a channel issues next, and when (rules.md: candidates).

FR-FCFS asks of all queued requests which may go first, and then which is oldest. Here banks stand
for requests: of a bank only its oldest hit, or its oldest request, can be first, so a bit mask of
banks is a set of candidates. Masks that the queues keep up to date (`pending`, `hit_banks`,
`in_order`, `open_banks`) are combined by `and` into those that want a column command, a PRE or an
ACT; `first_ready` then finds the earliest and among those the oldest of a mask, sixteen banks at
a time. A loop over a mask takes its lowest bit and clears it: `mask &= mask - 1`.
"""

from __future__ import annotations

from hwmodel.kernel.bank_place import rank_of
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
    MWRA,
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

_NONE = (FOREVER, FOREVER, 0, -1, -1)


@inlined
def _column_candidate(
    memory: Record, state: Record, pc: int, slot: int, pair_open: bool
) -> tuple[int, int]:
    """(tick, command) of the column command of `slot`, or of the CAS that it needs first."""
    now = state.now
    kind, bank = state.slot[slot, Q_KIND], state.slot[slot, Q_BANK]
    command = RD + 2 * kind  # numbered RD, RDA, WR, WRA, MWR, MWRA
    if memory.page_policy == PAGE_CLOSED and not wanted_again(state, slot):
        command += 1  # its A form
    rows = ready(memory, state, bank, command)
    if memory.masked_writes == 1 and state.slot[slot, Q_FLAGS] & FLAG_MASKED:
        command += MWR - WR
        rows = max(rows, ready(memory, state, bank, command))
    tick = max(now, rows, state.bus_free[memory.bus[pc, command]])
    if memory.check_dq == 1:
        tick = dq_free(memory, state, pc, kind, tick)
    if memory.sync == 1:
        until = state.sync_until[rank_of(memory, bank)]
        if tick > until:
            command = CAS
            tick = max(
                until + 1,
                rows - memory.slots[CAS],
                ready(memory, state, bank, CAS),
                floor(memory, state, pc, CAS),
            )
    if pair_open and not fits(memory, state, command, pc, tick):
        tick = FOREVER
    return tick, command


@inlined
def _pairs(memory: Record, state: Record, best: Candidate) -> tuple[Candidate, bool, bool]:
    """The second steps; whether a pair is open, and nothing else can come before the best."""
    opened = False
    order = LAZY_ACT2 if memory.lazy == 1 else EAGER_ACT2
    for pc in range(memory.pcs):
        bank = state.pair_bank[pc]
        if bank < 0:
            continue
        opened = True
        slot = state.pair_slot[pc]
        at = floor(memory, state, pc, ACT2)
        tick = max(at, state.ready[ACT2, bank])
        if memory.pcs == 1 or fits(memory, state, ACT2, pc, tick):
            best = first_of(best, tick, order, state.slot[slot, Q_SEQ], ACT2, bank, slot)
        if (
            memory.lazy == 0
            and memory.one_bus == 1
            and tick == max(state.now, state.bus_free[memory.bus[0, ACT2]])
        ):
            return best, True, True
    return best, opened, False


@called
def _each_column(
    memory: Record, state: Record, pc: int, slots: Int, ages: Int, mask: int, order: int,
    pair_open: bool, best: Candidate,
) -> Candidate:  # fmt: skip
    """The column commands, or CAS, for the requests `slots` (banks,) of the banks of a mask."""
    while mask != 0:
        bank = pc * memory.banks_per_pc + lowest_bit(mask)
        mask &= mask - 1
        slot = slots[bank]
        tick, command = _column_candidate(memory, state, pc, slot, pair_open)
        best = first_of(best, tick, order, ages[bank], command, bank, slot)
    return best


@inlined
def _columns_of_rank(
    memory: Record, state: Record, pc: int, kind: int, slots: Int, ages: Int, mask: int, order: int,
    pair_open: bool, best: Candidate,
) -> Candidate:  # fmt: skip
    """As `_columns`, of banks of one data clock."""
    if memory.plain_columns == 0 or (kind == 1 and state.masked > 0):
        return _each_column(memory, state, pc, slots, ages, mask, order, pair_open, best)
    start, command = pc * memory.banks_per_pc, RD + 2 * kind
    at = floor(memory, state, pc, command)
    if memory.check_dq == 1:
        at = dq_free(memory, state, pc, kind, at)
    if memory.sync == 0 and (at << CLASS_BITS) | order > best[0]:
        return best  # not even the first tick of the bus is before the best candidate
    tick, bank, age = first_ready(state.ready[command], ages, start, mask, at)
    if memory.check_dq == 1 and tick > at:  # free beats were looked for from `at` on
        at = dq_free(memory, state, pc, kind, tick)
        tick, bank, age = first_ready(state.ready[command], ages, start, mask, at)
    if memory.sync == 1 and tick > state.sync_until[rank_of(memory, bank)]:
        return _each_column(memory, state, pc, slots, ages, mask, order, pair_open, best)
    if pair_open and not fits(memory, state, command, pc, tick):
        return best
    return first_of(best, tick, order, age, command, bank, slots[bank])


@inlined
def _columns(
    memory: Record, state: Record, pc: int, kind: int, slots: Int, ages: Int, mask: int, order: int,
    pair_open: bool, best: Candidate,
) -> Candidate:  # fmt: skip
    """The column commands, or CAS, for the requests `slots` (banks,), of one kind and of packed
    ages `ages`, of the banks of a mask."""
    for clock in range(memory.data_clocks):
        banks = mask
        if memory.data_clocks > 1:
            banks &= banks_of_rank(memory) << (clock * memory.banks_per_rank)
        if banks != 0:
            best = _columns_of_rank(
                memory, state, pc, kind, slots, ages, banks, order, pair_open, best
            )  # fmt: skip
    return best


@inlined
def _buffered(
    memory: Record, state: Record, pc: int, pair_open: bool, best: Candidate
) -> Candidate:
    """The column commands, or CAS, of the activation buffer."""
    pair_bit = (
        0 if state.pair_bank[pc] < 0 else 1 << (state.pair_bank[pc] - pc * memory.banks_per_pc)
    )
    for kind in range(2):
        mask = state.active_banks[pc] & ~pair_bit
        mask &= state.active_writes[pc] if kind == 1 else ~state.active_writes[pc]
        slots, ages = state.active[:], state.active_age[:]  # as rows of the queues' arrays are
        best = _columns(
            memory, state, pc, kind, slots, ages, mask, BUFFERED, pair_open, best
        )  # fmt: skip
    return best


@inlined
def _rows(
    memory: Record, state: Record, pc: int, kind: int, mask: int, command: int, order: int,
    pair_open: bool, best: Candidate,
) -> Candidate:  # fmt: skip
    """A row command of the oldest requests of the banks of a mask."""
    if mask == 0:
        return best
    at = floor(memory, state, pc, command)
    if (at << CLASS_BITS) | order > best[0]:
        return best
    start = pc * memory.banks_per_pc
    tick, bank, age = first_ready(state.ready[command], state.first_age[kind], start, mask, at)
    if pair_open and not fits(memory, state, command, pc, tick):
        return best
    return first_of(best, tick, order, age, command, bank, state.first[kind, bank])


@called
def _refreshes(memory: Record, state: Record, pair_open: bool, best: Candidate) -> Candidate:
    """The next steps of urgent refreshes, of owed ones whose banks are idle, and of mechanisms."""
    for rank in range(memory.ranks):
        if (state.urgent >> rank) & 1 == 1:
            which = state.refresh_set[rank]
            tick, command, bank = refresh_step(memory, state, rank, which, pair_open)
            best = first_of(best, tick, URGENT_REFRESH, bank, command, bank, -1 - which)
        elif (state.postponed >> rank) & 1 == 1:
            for which in range(memory.refresh_sets):
                if may_go_early(memory, state, rank, which):
                    tick, command, bank = refresh_step(memory, state, rank, which, pair_open)
                    best = first_of(best, tick, OWED_REFRESH, bank, command, bank, -1 - which)
        if (state.maintained >> rank) & 1 == 1:
            best = offer(memory, state, rank, pair_open, best)
    return best


@called
def _timeouts(
    memory: Record, state: Record, pc: int, pair_open: bool, best: Candidate
) -> Candidate:
    """PRE of banks whose row nothing waits for, when their time is over."""
    mask = unwanted_banks(memory, state, pc)
    at = floor(memory, state, pc, PRE)
    while mask != 0:
        bank = pc * memory.banks_per_pc + lowest_bit(mask)
        mask &= mask - 1
        tick = max(at, state.ready[PRE, bank], state.last_use[bank] + state.timeout[bank])
        if not pair_open or fits(memory, state, PRE, pc, tick):
            best = first_of(best, tick, TIMEOUT, bank, PRE, bank, -1)
    return best


@inlined
def _requests(
    memory: Record, state: Record, pc: int, pair_open: bool, best: Candidate
) -> Candidate:
    """What the queued requests of a pseudo-channel's mode offer."""
    kind = state.mode[pc]
    pair_bit = (
        0 if state.pair_bank[pc] < 0 else 1 << (state.pair_bank[pc] - pc * memory.banks_per_pc)
    )
    allowed = ~state.blocked[pc] & ~pair_bit  # by urgent refreshes, and by its ACT2 to come
    pending = state.pending[pc, kind] & allowed
    hits = state.hit_banks[pc, kind] & allowed
    if memory.scheduler == FCFS:
        # the oldest request alone: its bank is in the low bits of its age
        age = least(state.first_age[kind], pc * memory.banks_per_pc, state.pending[pc, kind])
        pending &= 1 << (age & (BANKS_OF_PC - 1))
        hits = state.in_order[pc, kind] & pending
    else:  # a bank that served its limit of hits goes on only with its oldest request
        hits &= ~state.hit_cap_reached[pc] | state.in_order[pc, kind]
    best = _columns(
        memory, state, pc, kind, state.hit[kind], state.hit_age[kind], hits, COLUMN, pair_open, best
    )  # fmt: skip
    # FR-FCFS: column commands before row commands at one tick, and no row command for a bank with
    # a hit; oldest-ready: by age alone, and none for a bank whose oldest request hits
    order = ROW if memory.scheduler == FRFCFS else COLUMN
    pending &= ~(state.in_order[pc, kind] if memory.scheduler == OLDEST_READY else hits)
    # another row is open, and no activated request waits for it
    closing = pending & state.open_banks[pc] & ~state.active_banks[pc]
    best = _rows(memory, state, pc, kind, closing, PRE, order, pair_open, best)
    room = memory.activation_buffer == 0 or state.active_count[pc] < memory.activation_buffer
    if room and state.pair_bank[pc] < 0:
        opening = pending & ~state.open_banks[pc] & ~state.act_blocked[pc]
        best = _rows(memory, state, pc, kind, opening, memory.first, order, pair_open, best)
    return best


@inlined
def _still_first(memory: Record, state: Record, pc: int) -> bool:
    """Whether `choice` is still what the requests of a pseudo-channel offer. A command changes one
    of two; in the other all else can only have come later, so that its first one still is, unless
    what both share puts that off."""
    if state.choice_kept[pc] == 0:
        return False
    key, command = state.choice[pc, 0], state.choice[pc, 2]
    if command == MWR or command == MWRA:  # it waits for what a WR waits for, too
        return False
    return key >> CLASS_BITS >= floor(memory, state, pc, command)


@inlined
def choose(memory: Record, state: Record) -> Candidate:
    """The next command."""
    best = _NONE
    pair_open, drains = False, False
    if memory.steps == 2 and state.pairs > 0:
        best, pair_open, decided = _pairs(memory, state, best)
        if decided:
            return best
    if (state.urgent | state.postponed | state.maintained) != 0:
        best = _refreshes(memory, state, pair_open, best)
    for pc in range(memory.pcs):
        if memory.page_policy >= PAGE_TIMEOUT:
            best = _timeouts(memory, state, pc, pair_open, best)
        if memory.activation_buffer > 0 and state.active_banks[pc] != 0:
            best = _buffered(memory, state, pc, pair_open, best)
            drains |= state.active_banks[pc] & state.blocked[pc] != 0
    if drains:  # what could put off a request whose bank has to be free
        return best
    for pc in range(memory.pcs):
        if state.pending[pc, state.mode[pc]] == 0:
            continue
        # NOTE: what fits beside the other's open pair, or a CAS, hangs on more: nothing is kept.
        keeps = memory.pcs == 2 and memory.steps == 1 and memory.sync == 0
        kept = state.choice[pc]
        if not keeps or not _still_first(memory, state, pc):
            offered = _requests(memory, state, pc, pair_open, _NONE if keeps else best)
            if not keeps:
                best = offered
                continue
            kept[0], kept[1], kept[2], kept[3], kept[4] = offered
            state.choice_kept[pc] = 1
        tick, order = kept[0] >> CLASS_BITS, kept[0] & ((1 << CLASS_BITS) - 1)
        best = first_of(best, tick, order, kept[1], kept[2], kept[3], kept[4])
    return best
