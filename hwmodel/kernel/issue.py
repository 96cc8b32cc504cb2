"""Kernel: what issuing a command changes in a channel: rows, buses, banks, queues, refresh."""

from __future__ import annotations

from hwmodel.kernel.channel_state import (
    EXACT_LATENCIES,
    OCTAVE_BITS,
    Q_COLUMN,
    Q_FLAGS,
    Q_KIND,
    Q_ROW,
    Q_SEQ,
    Q_TAG,
    Q_TIME,
)
from hwmodel.kernel.hooks import done
from hwmodel.kernel.jit import called, inlined
from hwmodel.kernel.kernel_names import (
    ACT2,
    CAS,
    FLAG_ACTIVATED,
    FLAG_PRECHARGED,
    FLAG_RMW,
    MWRA,
    PRE,
    PREA,
    RD,
    REFAB,
    REFPB,
    TIMEOUT,
    Record,
)
from hwmodel.kernel.limits import Int
from hwmodel.kernel.maintenance import bank_of
from hwmodel.kernel.pages import close_row, open_row, shorten_timeout
from hwmodel.kernel.queues import count_write, leave, link, put_age, unlink
from hwmodel.kernel.ready import delay, delay_banks, take_dq
from hwmodel.kernel.refresh import refreshed


@inlined
def write_log(s: Record, log: Int, tick: int, command: int, bank: int, slot: int) -> None:
    """Log a command, if it is wanted: `advance` says how."""
    if log.shape[0] == 0:
        return
    column = command >= RD and command <= MWRA
    line = log[s.logged]
    if log.shape[1] > 3:
        line[0], line[1], line[2], line[3], line[4] = tick, command, bank, -1, -1
        if slot >= 0 and (column or command <= ACT2):
            line[3] = s.slot[slot, Q_ROW]
        if column:
            line[4] = s.slot[slot, Q_COLUMN]
            if line.shape[0] > 5:
                line[5] = s.slot[slot, Q_TAG]
        s.logged += 1
    elif column:
        line[0], line[1], line[2] = tick, command, s.slot[slot, Q_TAG]
        s.logged += 1


@inlined
def _activate(c: Record, s: Record, pc: int, bank: int, slot: int, tick: int) -> None:
    """First (or only) step of an activation for `slot`."""
    s.slot[slot, Q_FLAGS] |= FLAG_ACTIVATED
    bit = 1 << (bank - pc * c.banks_per_pc)
    if c.activation_buffer > 0:
        unlink(c, s, pc, bit, slot)
        s.active[bank] = slot
        s.active_banks[pc] |= bit
        if s.slot[slot, Q_KIND] == 1:
            s.active_writes[pc] |= bit
        put_age(s.active_age, bank, bit, s.slot[slot, Q_SEQ])
        s.active_count[pc] += 1
    if c.steps == 2:
        s.pairs += 1
        s.pair_bank[pc] = bank
        s.pair_slot[pc] = slot
        s.pair_deadline[pc] = tick + c.max_gap
    else:
        open_row(c, s, pc, bank, s.slot[slot, Q_ROW])


@called
def latency_bin(wait: int) -> int:
    """The bin of a latency of EXACT_LATENCIES ticks or more: its octave, and its place in that."""
    first = EXACT_LATENCIES >> OCTAVE_BITS  # ticks of a bin of the first octave
    octave = 0
    while wait // first >> octave >= 2 << OCTAVE_BITS:
        octave += 1
    place = (wait // first >> octave) - (1 << OCTAVE_BITS)
    return EXACT_LATENCIES + (octave << OCTAVE_BITS) + place


@inlined
def count_columns(c: Record, s: Record, command: int, kind: int, count: int, ended: int) -> None:
    """Count column commands of requests of `kind`, and those of them that end their request."""
    s.commands[command] += count
    s.bytes += count * c.burst_bytes
    s.requests += ended
    s.latencies[kind] += ended


@inlined
def book_data(
    c: Record, s: Record, pc: int, bank: int, slot: int, kind: int, tick: int, completions: Int
) -> None:
    """Book the data of a request: how it found its row, latency, data clock, DQ, completion."""
    flags = s.slot[slot, Q_FLAGS]
    end = tick + c.data_end[kind]
    if flags & FLAG_PRECHARGED:
        s.conflicts += 1
    elif flags & FLAG_ACTIVATED:
        s.misses += 1
    else:
        s.hits += 1
    if flags & FLAG_RMW == 0:
        wait = end - s.slot[slot, Q_TIME]
        s.latency[kind, wait if wait < EXACT_LATENCIES else latency_bin(wait)] += 1
        s.latency_sum[kind] += wait
        s.latency_max[kind] = max(s.latency_max[kind], wait)
        if kind == 0 and completions.shape[1] > 1:
            done = (end + s.response) & (completions.shape[1] - 1)  # a ring, 2 ** n ticks
            completions[s.slot[slot, Q_TAG], done] += c.burst_bytes
    if c.sync == 1:
        rank = c.rank_of[bank]
        s.sync_until[rank] = max(s.sync_until[rank], tick + c.hold[1 + kind])
    if c.check_dq == 1:
        take_dq(c, s, pc, kind, tick)


@inlined
def _leave(c: Record, s: Record, pc: int, bank: int, bit: int, slot: int) -> None:
    """The request of `slot` has its data: out of its queue or the activation buffer."""
    if s.active[bank] == slot:
        s.active[bank] = -1
        s.active_banks[pc] &= ~bit
        s.active_writes[pc] &= ~bit
        s.active_count[pc] -= 1
        return
    leave(c, s, pc, bank, bit, slot)


@inlined
def _serve(
    c: Record, s: Record, pc: int, bank: int, slot: int, command: int, tick: int,
    completions: Int,
) -> None:  # fmt: skip
    """The column command of `slot` is issued: book its data and let it go."""
    bit = 1 << (bank - pc * c.banks_per_pc)
    count_write(c, s, slot, -1)
    kind = s.slot[slot, Q_KIND]
    first_of_two = 1 if s.slot[slot, Q_FLAGS] & FLAG_RMW else 0  # the read before a partial write
    s.rmw_reads += first_of_two
    count_columns(c, s, command, kind, 1, 1 - first_of_two)
    s.end = max(s.end, tick + c.data_end[kind])
    book_data(c, s, pc, bank, slot, kind, tick, completions)
    s.bank_commands[bank, 1 + ((command - RD) >> 1)] += 1  # A forms with the others
    s.streak[bank] += 1
    s.last_use[bank] = tick
    _leave(c, s, pc, bank, bit, slot)
    if s.streak[bank] == c.hit_limit:
        s.hit_cap_reached[pc] |= bit
    if (command - RD) & 1:  # an A form
        close_row(c, s, pc, bank)
    if s.slot[slot, Q_FLAGS] & FLAG_RMW:  # its write follows, in the place that was held for it
        s.slot[slot, Q_FLAGS] = 0
        if c.shared_queue == 0:
            s.reserved[pc] -= 1
            s.bank_reserved[bank] -= 1
        s.stalled = 0  # there is room, or the write answers the read at the head
        entered = s.slot[slot, Q_TIME]
        link(c, s, pc, 1, bank, bit, slot)
        s.slot[slot, Q_TIME] = entered
        return
    s.free[pc, s.free_count[pc]] = slot
    s.free_count[pc] += 1


@called
def _apply_to_rank(c: Record, s: Record, command: int, bank: int, slot: int, tick: int) -> None:
    """What PREA, CAS, refreshes and commands of mechanisms change; of the latter `slot` is -1 -
    their set."""
    rank = c.rank_of[bank]
    if command == PREA:
        for other in range(bank, bank + c.banks_per_rank):
            close_row(c, s, c.pc_of[bank], other)
    elif command == CAS:
        s.sync_until[rank] = max(s.sync_until[rank], tick + c.hold[0])
    else:
        if (c.to_sets >> command) & 1 == 1:
            for i in range(1, c.set_size):  # rows of the other banks of its set
                other = bank_of(c, False, rank, -1 - slot, i)
                delay_banks(c, s, command, other, tick, c.n_own_rules[command])
        if command == REFPB or command == REFAB:
            refreshed(c, s, rank, -1 - slot)
        done(c, s, command, rank, -1 - slot)


@inlined
def apply(
    c: Record, s: Record, command: int, order: int, bank: int, slot: int, completions: Int
) -> None:
    """Issue a command of class `order` now and change the state of banks, queues and refresh."""
    tick = s.now
    pc = c.pc_of[bank]
    delay(c, s, command, bank, tick)
    s.bus_free[c.bus[pc, command]] = tick + c.slots[command]
    if command >= RD and command <= MWRA:
        _serve(c, s, pc, bank, slot, command, tick, completions)
        return
    s.commands[command] += 1
    if command == c.first:
        _activate(c, s, pc, bank, slot, tick)
    elif command == ACT2:
        s.pairs -= 1
        s.pair_bank[pc] = -1
        open_row(c, s, pc, bank, s.slot[slot, Q_ROW])
    elif command == PRE:
        if slot >= 0:
            s.slot[slot, Q_FLAGS] |= FLAG_PRECHARGED
            shorten_timeout(c, s, bank)
        elif order == TIMEOUT:
            s.timed_out_row[bank] = s.open_row[bank]
        close_row(c, s, pc, bank)
    else:
        _apply_to_rank(c, s, command, bank, slot, tick)
