"""Kernel: what issuing a command changes in a channel: rows, buses, banks, queues, refresh."""

from __future__ import annotations

from hwmodel.kernel.bank_place import pc_of, rank_of
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
def write_log(state: Record, log: Int, tick: int, command: int, bank: int, slot: int) -> None:
    """Log a command, if it is wanted: `advance` says how."""
    if log.shape[0] == 0:
        return
    column = command >= RD and command <= MWRA
    line = log[state.logged]
    if log.shape[1] > 3:
        line[0], line[1], line[2], line[3], line[4] = tick, command, bank, -1, -1
        if slot >= 0 and (column or command <= ACT2):
            line[3] = state.slot[slot, Q_ROW]
        if column:
            line[4] = state.slot[slot, Q_COLUMN]
            if line.shape[0] > 5:
                line[5] = state.slot[slot, Q_TAG]
        state.logged += 1
    elif column:
        line[0], line[1], line[2] = tick, command, state.slot[slot, Q_TAG]
        state.logged += 1


@inlined
def _activate(memory: Record, state: Record, pc: int, bank: int, slot: int, tick: int) -> None:
    """First (or only) step of an activation for `slot`."""
    state.slot[slot, Q_FLAGS] |= FLAG_ACTIVATED
    bit = 1 << (bank - pc * memory.banks_per_pc)
    if memory.activation_buffer > 0:
        unlink(memory, state, pc, bit, slot)
        state.active[bank] = slot
        state.active_banks[pc] |= bit
        if state.slot[slot, Q_KIND] == 1:
            state.active_writes[pc] |= bit
        put_age(state.active_age, bank, bit, state.slot[slot, Q_SEQ])
        state.active_count[pc] += 1
    if memory.steps == 2:
        state.pairs += 1
        state.pair_bank[pc] = bank
        state.pair_slot[pc] = slot
        state.pair_deadline[pc] = tick + memory.max_gap
    else:
        open_row(memory, state, pc, bank, state.slot[slot, Q_ROW])


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
def count_columns(
    memory: Record, state: Record, command: int, kind: int, count: int, ended: int
) -> None:
    """Count column commands of requests of `kind`, and those of them that end their request."""
    state.commands[command] += count
    state.bytes += count * memory.burst_bytes
    state.requests += ended
    state.latencies[kind] += ended


@inlined
def book_data(
    memory: Record,
    state: Record,
    pc: int,
    bank: int,
    slot: int,
    kind: int,
    tick: int,
    completions: Int,
) -> None:
    """Book the data of a request: how it found its row, latency, data clock, DQ, completion."""
    flags = state.slot[slot, Q_FLAGS]
    end = tick + memory.data_end[kind]
    if flags & FLAG_PRECHARGED:
        state.conflicts += 1
    elif flags & FLAG_ACTIVATED:
        state.misses += 1
    else:
        state.hits += 1
    if flags & FLAG_RMW == 0:
        wait = end - state.slot[slot, Q_TIME]
        state.latency[kind, wait if wait < EXACT_LATENCIES else latency_bin(wait)] += 1
        state.latency_sum[kind] += wait
        state.latency_max[kind] = max(state.latency_max[kind], wait)
        if kind == 0 and completions.shape[1] > 1:
            done = (end + state.response) & (completions.shape[1] - 1)  # a ring, 2 ** n ticks
            completions[state.slot[slot, Q_TAG], done] += memory.burst_bytes
    if memory.sync == 1:
        rank = rank_of(memory, bank)
        state.sync_until[rank] = max(state.sync_until[rank], tick + memory.hold[1 + kind])
    if memory.check_dq == 1:
        take_dq(memory, state, pc, kind, tick)


@inlined
def _leave(memory: Record, state: Record, pc: int, bank: int, bit: int, slot: int) -> None:
    """The request of `slot` has its data: out of its queue or the activation buffer."""
    if memory.activation_buffer > 0 and state.active[bank] == slot:
        state.active[bank] = -1
        state.active_banks[pc] &= ~bit
        state.active_writes[pc] &= ~bit
        state.active_count[pc] -= 1
        return
    leave(memory, state, pc, bank, bit, slot)


@inlined
def _serve(
    memory: Record, state: Record, pc: int, bank: int, slot: int, command: int, tick: int,
    completions: Int,
) -> None:  # fmt: skip
    """The column command of `slot` is issued: book its data and let it go."""
    bit = 1 << (bank - pc * memory.banks_per_pc)
    count_write(memory, state, slot, -1)
    kind = state.slot[slot, Q_KIND]
    first_of_two = (
        1 if state.slot[slot, Q_FLAGS] & FLAG_RMW else 0
    )  # the read before a partial write
    state.rmw_reads += first_of_two
    count_columns(memory, state, command, kind, 1, 1 - first_of_two)
    state.end = max(state.end, tick + memory.data_end[kind])
    book_data(memory, state, pc, bank, slot, kind, tick, completions)
    state.bank_commands[bank, 1 + ((command - RD) >> 1)] += 1  # A forms with the others
    state.streak[bank] += 1
    state.last_use[bank] = tick
    _leave(memory, state, pc, bank, bit, slot)
    if state.streak[bank] == memory.hit_limit:
        state.hit_cap_reached[pc] |= bit
    if (command - RD) & 1:  # an A form
        close_row(memory, state, pc, bank)
    if state.slot[slot, Q_FLAGS] & FLAG_RMW:  # its write follows, in the place that was held for it
        state.slot[slot, Q_FLAGS] = 0
        if memory.shared_queue == 0:
            state.reserved[pc] -= 1
            state.bank_reserved[bank] -= 1
        state.stalled = 0  # there is room, or the write answers the read at the head
        entered = state.slot[slot, Q_TIME]
        link(memory, state, pc, 1, bank, bit, slot)
        state.slot[slot, Q_TIME] = entered
        return
    state.free[pc, state.free_count[pc]] = slot
    state.free_count[pc] += 1


@called
def _apply_to_rank(
    memory: Record, state: Record, command: int, bank: int, slot: int, tick: int
) -> None:
    """What PREA, CAS, refreshes and commands of mechanisms change; of the latter `slot` is -1 -
    their set."""
    rank = rank_of(memory, bank)
    if command == PREA:
        for other in range(bank, bank + memory.banks_per_rank):
            close_row(memory, state, pc_of(memory, bank), other)
    elif command == CAS:
        state.sync_until[rank] = max(state.sync_until[rank], tick + memory.hold[0])
    else:
        if (memory.to_sets >> command) & 1 == 1:
            for i in range(1, memory.set_size):  # rows of the other banks of its set
                other = bank_of(memory, False, rank, -1 - slot, i)
                delay_banks(memory, state, command, other, tick, memory.n_own_rules[command])
        if command == REFPB or command == REFAB:
            refreshed(memory, state, rank, -1 - slot)
        done(memory, state, command, rank, -1 - slot)


@inlined
def apply(
    memory: Record, state: Record, command: int, order: int, bank: int, slot: int, completions: Int
) -> None:
    """Issue a command of class `order` now and change the state of banks, queues and refresh."""
    tick = state.now
    pc = pc_of(memory, bank)
    state.choice_kept[pc] = 0
    delay(memory, state, command, bank, tick)
    state.bus_free[memory.bus[pc, command]] = tick + memory.slots[command]
    if command >= RD and command <= MWRA:
        _serve(memory, state, pc, bank, slot, command, tick, completions)
        return
    state.commands[command] += 1
    if command == memory.first:
        _activate(memory, state, pc, bank, slot, tick)
    elif command == ACT2:
        state.pairs -= 1
        state.pair_bank[pc] = -1
        open_row(memory, state, pc, bank, state.slot[slot, Q_ROW])
    elif command == PRE:
        if slot >= 0:
            state.slot[slot, Q_FLAGS] |= FLAG_PRECHARGED
            shorten_timeout(memory, state, bank)
        elif order == TIMEOUT:
            state.timed_out_row[bank] = state.open_row[bank]
        close_row(memory, state, pc, bank)
    else:
        _apply_to_rank(memory, state, command, bank, slot, tick)
