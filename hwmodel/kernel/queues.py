"""Kernel: requests enter, wait and leave (rules.md: requests and queues)."""

from __future__ import annotations

from hwmodel.kernel.bank_place import pc_of
from hwmodel.kernel.channel_state import (
    INBOX,
    Q_BANK,
    Q_COLUMN,
    Q_FLAGS,
    Q_KIND,
    Q_NEXT,
    Q_PREV,
    Q_ROW,
    Q_SEQ,
    Q_TAG,
    Q_TIME,
    RUN_BURSTS,
    RUN_FIRST,
    RUN_KIND,
    RUN_ROW,
    RUN_TAKEN,
    RUN_TICK,
    WRITE_KEYS,
)
from hwmodel.kernel.jit import inlined
from hwmodel.kernel.kernel_names import FLAG_MASKED, FLAG_RMW, PARTIAL_WRITE, READ, Record
from hwmodel.kernel.lanes import lowest_bit, packed_age
from hwmodel.kernel.limits import LOW_BITS, Int
from hwmodel.kernel.power import wake


@inlined
def find_hit(state: Record, start: int, row: int) -> int:
    """First slot from `start` on (in age order) that wants `row`, or -1."""
    while start >= 0 and state.slot[start, Q_ROW] != row:
        start = state.slot[start, Q_NEXT]
    return start


@inlined
def put_age(ages: Int, bank: int, bit: int, seq: int) -> None:
    """A bank's request that counts is the one of this order of entry. A single number, for it is
    read in vectors only after a whole decision."""
    ages[bank] = packed_age(seq, lowest_bit(bit))


@inlined
def set_hit(state: Record, pc: int, queue: int, bank: int, bit: int, slot: int) -> None:
    """The bank's oldest hit in a queue is that of `slot`, or none (-1)."""
    state.hit[queue, bank] = slot
    if slot >= 0:
        state.hit_banks[pc, queue] |= bit
        put_age(state.hit_age[queue], bank, bit, state.slot[slot, Q_SEQ])
    else:
        state.hit_banks[pc, queue] &= ~bit
    if slot >= 0 and slot == state.first[queue, bank]:
        state.in_order[pc, queue] |= bit
    else:
        state.in_order[pc, queue] &= ~bit


@inlined
def queue_of(memory: Record, kind: int) -> int:
    """The queue in which reads (0) or writes (1) wait."""
    return 0 if memory.shared_queue == 1 else kind


@inlined
def _count(memory: Record, state: Record, pc: int, queue: int, bank: int, change: int) -> None:
    """Book that a queue has one request more (`change` 1) or less (-1)."""
    state.waiting[pc, queue] += change
    state.queued[queue, bank] += change
    if change < 0:
        state.stalled, state.left_at = 0, state.now
    if memory.queue_per_bank == 1 and queue == 1:
        # the write queues on each side of the watermarks
        held = state.queued[1, bank] - (1 if change > 0 else 0)  # the smaller of before and after
        if held == memory.drain_high:
            state.above_high[pc] += change
        if held == memory.drain_low - 1:
            state.at_low[pc] += change


@inlined
def link(memory: Record, state: Record, pc: int, kind: int, bank: int, bit: int, slot: int) -> None:
    """Put a request at the end of its queue."""
    queue = queue_of(memory, kind)
    before = state.last[queue, bank]
    state.slot[slot, Q_KIND] = kind
    state.slot[slot, Q_SEQ] = state.seq
    state.slot[slot, Q_TIME] = state.now
    state.slot[slot, Q_NEXT] = -1
    state.slot[slot, Q_PREV] = before
    state.seq += 1
    if before >= 0:
        state.slot[before, Q_NEXT] = slot
    else:
        state.first[queue, bank] = slot
        put_age(state.first_age[queue], bank, bit, state.seq - 1)
        state.pending[pc, queue] |= bit
        state.choice_kept[pc] = 0
    state.last[queue, bank] = slot
    if state.hit[queue, bank] < 0 and state.open_row[bank] == state.slot[slot, Q_ROW]:
        set_hit(state, pc, queue, bank, bit, slot)
        state.choice_kept[pc] = 0
    if memory.plain_columns == 0:
        state.choice_kept[pc] = 0
    _count(memory, state, pc, queue, bank, 1)
    count_write(memory, state, slot, 1)


@inlined
def unlink(memory: Record, state: Record, pc: int, bit: int, slot: int) -> None:
    """Take a request out of its queue (its slot is not freed)."""
    queue, bank = queue_of(memory, state.slot[slot, Q_KIND]), state.slot[slot, Q_BANK]
    before, after = state.slot[slot, Q_PREV], state.slot[slot, Q_NEXT]
    if before >= 0:
        state.slot[before, Q_NEXT] = after
    else:
        state.first[queue, bank] = after
        if after < 0:
            state.pending[pc, queue] &= ~bit
        else:
            put_age(state.first_age[queue], bank, bit, state.slot[after, Q_SEQ])
    if after >= 0:
        state.slot[after, Q_PREV] = before
    else:
        state.last[queue, bank] = before
    _count(memory, state, pc, queue, bank, -1)


@inlined
def leave_otherwise(memory: Record, state: Record, pc: int, bank: int, bit: int, slot: int) -> None:
    """As `leave`, whatever the request and the next one."""
    queue = queue_of(memory, state.slot[slot, Q_KIND])
    hit = state.hit[queue, bank]
    if hit == slot:
        hit = find_hit(state, state.slot[slot, Q_NEXT], state.open_row[bank])
    unlink(memory, state, pc, bit, slot)
    set_hit(state, pc, queue, bank, bit, hit)


@inlined
def leave(memory: Record, state: Record, pc: int, bank: int, bit: int, slot: int) -> None:
    """Take the request of a bank that is served out of its queue (its slot is not freed)."""
    queue, after = queue_of(memory, state.slot[slot, Q_KIND]), state.slot[slot, Q_NEXT]
    if (
        after < 0
        or state.first[queue, bank] != slot
        or state.slot[after, Q_ROW] != state.open_row[bank]
    ):
        leave_otherwise(memory, state, pc, bank, bit, slot)
        return
    state.first[queue, bank], state.hit[queue, bank] = after, after  # the next one is the next hit
    state.slot[after, Q_PREV] = -1
    put_age(state.first_age[queue], bank, bit, state.slot[after, Q_SEQ])
    put_age(state.hit_age[queue], bank, bit, state.slot[after, Q_SEQ])
    _count(memory, state, pc, queue, bank, -1)


@inlined
def write_key(bank: int, row: int, column: int) -> int:
    """Where the waiting writes of a burst are counted; bursts may share a count. Odd factors, so
    that the bursts of a row, and equal columns of several banks and rows, spread over all counts;
    a shared one costs a look through a queue, never a wrong answer."""
    return (column + 37 * bank + 17 * row) & (WRITE_KEYS - 1)


@inlined
def count_write(memory: Record, state: Record, slot: int, change: int) -> None:
    """Book that a write waits (`change` 1) or was served (-1): by its burst if it fills that."""
    if state.slot[slot, Q_KIND] == 0:
        return
    if state.slot[slot, Q_FLAGS] & FLAG_MASKED:
        state.masked += change * memory.masked_writes
    else:
        key = write_key(
            state.slot[slot, Q_BANK], state.slot[slot, Q_ROW], state.slot[slot, Q_COLUMN]
        )
        state.writes[key] += change


@inlined
def _full(memory: Record, state: Record, pc: int, queue: int, bank: int) -> bool:
    """Whether a queue for requests to the bank has no room."""
    if memory.queue_per_bank == 1:
        held = state.queued[queue, bank] + (state.bank_reserved[bank] if queue == 1 else 0)
    elif memory.joint_queue == 1:
        held = state.waiting[0, queue] + state.waiting[1, queue]
        if queue == 1:
            held += state.reserved[0] + state.reserved[1]
    else:
        held = state.waiting[pc, queue] + (state.reserved[pc] if queue == 1 else 0)
    return held >= memory.queue[queue]


@inlined
def _fills(state: Record, slot: int, row: int, column: int) -> bool:
    """Whether a waiting request is a write of this whole burst."""
    return (
        state.slot[slot, Q_COLUMN] == column
        and state.slot[slot, Q_ROW] == row
        and state.slot[slot, Q_KIND] == 1
        and state.slot[slot, Q_FLAGS] & FLAG_MASKED == 0
    )


@inlined
def _waiting_write(memory: Record, state: Record, bank: int, row: int, column: int) -> bool:
    """Whether a waiting write will fill this burst whole."""
    slot = state.first[queue_of(memory, 1), bank]
    while slot >= 0:
        if _fills(state, slot, row, column):
            return True
        slot = state.slot[slot, Q_NEXT]
    return state.active[bank] >= 0 and _fills(state, state.active[bank], row, column)


@inlined
def _place_high(state: Record, where: int, bits: int) -> None:
    """Bits of the column (0), the flat bank (1) or the row (2)."""
    if where == 0:
        state.high_column |= bits
    elif where == 1:
        state.high_bank |= bits
    else:
        state.high_row |= bits


@inlined
def _decode_high(memory: Record, state: Record, high: int) -> None:
    """Column, flat bank and row by the upper bits of a burst index; kept for the next burst.

    The bank is hashed with these bits of the row; the lower ones are part of `low`.
    """
    state.high = high
    state.high_column, state.high_bank, state.high_row = 0, 0, 0
    burst = high << LOW_BITS
    for f in range(memory.n_fields):
        bits = ((burst >> memory.fields[f, 0]) & memory.fields[f, 1]) << memory.fields[f, 2]
        _place_high(state, memory.fields[f, 3], bits)
    rest = burst >> memory.odd_from
    for f in range(memory.n_odd):
        _place_high(state, memory.odd[f, 2], rest % memory.odd[f, 0] << memory.odd[f, 1])
        rest //= memory.odd[f, 0]
    for h in range(memory.n_hashes):
        state.high_bank ^= (
            (state.high_row >> memory.hashes[h, 0]) & memory.hashes[h, 1]
        ) << memory.hashes[h, 2]


@inlined
def place_of(memory: Record, state: Record, burst: int) -> tuple[int, int, int]:
    """(flat bank, row, column) of a burst index."""
    if burst >> LOW_BITS != state.high:
        _decode_high(memory, state, burst >> LOW_BITS)
    low = memory.low[burst & ((1 << LOW_BITS) - 1)]
    return state.high_bank ^ low[1], state.high_row | low[2], state.high_column | low[0]


@inlined
def _writes_wait(memory: Record, state: Record, pc: int) -> bool:
    """Whether a write of a pseudo-channel may wait."""
    return memory.shared_queue == 1 or state.waiting[pc, 1] + state.active_count[pc] > 0


@inlined
def _stays(memory: Record, state: Record, asked: int) -> bool:
    """Whether the head finds no room and no write to answer it, as far as is known without its
    place."""
    if memory.one_queue == 0 or asked == PARTIAL_WRITE:
        return False
    if asked == READ:
        writes = memory.forwarding == 1 and _writes_wait(memory, state, 0)
        return state.waiting[0, 0] >= memory.queue[0] and not writes
    return state.waiting[0, 1] + state.reserved[0] >= memory.queue[1]


@inlined
def _admit(
    memory: Record,
    state: Record,
    pc: int,
    bank: int,
    row: int,
    column: int,
    asked: int,
    completion: int,
) -> bool:
    """Put the head into its queue; False (nothing changes) if there is no room."""
    flags = 0
    kind = 0 if asked == READ else 1
    if asked == PARTIAL_WRITE:
        flags = FLAG_MASKED
        if memory.read_modify_write == 1:  # a read now, and a place for the write that follows
            if memory.shared_queue == 0 and _full(memory, state, pc, 1, bank):
                return False
            kind, flags = 0, FLAG_RMW
    if _full(memory, state, pc, queue_of(memory, kind), bank):
        return False
    if flags == FLAG_RMW and memory.shared_queue == 0:
        state.reserved[pc] += 1
        state.bank_reserved[bank] += 1
    state.free_count[pc] -= 1
    slot = state.free[pc, state.free_count[pc]]
    state.slot[slot, Q_ROW] = row
    state.slot[slot, Q_COLUMN] = column
    state.slot[slot, Q_BANK] = bank
    state.slot[slot, Q_FLAGS] = flags
    state.slot[slot, Q_TAG] = completion
    link(memory, state, pc, kind, bank, 1 << (bank - pc * memory.banks_per_pc), slot)
    return True


@inlined
def taken(state: Record, place: int) -> None:
    """A burst of the head run, at `place` in the inbox, has been taken."""
    state.offset += 1
    if state.offset == state.inbox[RUN_BURSTS, place]:
        state.offset = 0
        state.inbox[RUN_TAKEN, place] = state.now  # for engines that wait for room
        state.head += 1


@inlined
def enter(memory: Record, state: Record, completions: Int) -> None:
    """Let arrived requests into the queues, in order, while there is room."""
    if memory.late_entry == 1 and state.left_at == state.now:
        return
    now, tail = state.now, state.tail
    while state.stalled == 0 and state.head != tail:
        place = state.head & (INBOX - 1)
        if state.inbox[RUN_TICK, place] > now:
            return
        if memory.sleeps == 1:
            wake(memory, state, state.inbox[RUN_TICK, place])
        asked = state.inbox[RUN_KIND, place]
        if _stays(memory, state, asked):
            state.stalled = 1
            return
        bank, row, column = place_of(memory, state, state.inbox[RUN_FIRST, place] + state.offset)
        completion = state.inbox[RUN_ROW, place]
        pc = pc_of(memory, bank)
        answered = asked != READ  # a posted write is done for its engine when it is taken
        if (
            asked == READ
            and memory.forwarding == 1
            and _writes_wait(memory, state, pc)
            and state.writes[write_key(bank, row, column)] > 0
            and _waiting_write(memory, state, bank, row, column)
        ):
            state.forwarded += 1
            answered = True
        elif not _admit(memory, state, pc, bank, row, column, asked, completion):
            state.stalled = 1
            return
        if answered and completions.shape[1] > 1:
            done = (state.now + state.response) & (completions.shape[1] - 1)
            completions[completion, done] += memory.burst_bytes
        taken(state, place)


@inlined
def set_modes(memory: Record, state: Record) -> None:
    """Serve reads or writes: watermarks of the (fullest) write queue."""
    if (state.waiting[0, 1] | state.waiting[1, 1] | state.mode[0] | state.mode[1]) == 0:
        return
    for pc in range(memory.pcs):
        reads, writes, mode = state.waiting[pc, 0], state.waiting[pc, 1], state.mode[pc]
        if memory.joint_queue == 1:
            reads += state.waiting[1 - pc, 0]
            writes += state.waiting[1 - pc, 1]
        if writes == 0 and mode == 0:
            continue
        if memory.queue_per_bank == 1:
            high, low = state.above_high[pc] > 0, state.at_low[pc] == 0 and memory.drain_low > 0
        else:
            high, low = writes > memory.drain_high, writes < memory.drain_low
        if mode == 0:
            if high or (reads == 0 and writes > 0):
                state.mode[pc], state.choice_kept[pc] = 1, 0
        elif (low and reads > 0) or writes == 0:
            state.mode[pc], state.choice_kept[pc] = 0, 0
