"""Kernel: requests enter, wait and leave (docs/controller.md: requests and queues)."""

from __future__ import annotations

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
def find_hit(s: Record, start: int, row: int) -> int:
    """First slot from `start` on (in age order) that wants `row`, or -1."""
    while start >= 0 and s.slot[start, Q_ROW] != row:
        start = s.slot[start, Q_NEXT]
    return start


@inlined
def put_age(ages: Int, bank: int, bit: int, seq: int) -> None:
    """A bank's request that counts is the one of this order of entry. A single number, for it is
    read in vectors only after a whole decision."""
    ages[bank] = packed_age(seq, lowest_bit(bit))


@inlined
def set_hit(s: Record, pc: int, queue: int, bank: int, bit: int, slot: int) -> None:
    """The bank's oldest hit in a queue is that of `slot`, or none (-1)."""
    s.hit[queue, bank] = slot
    if slot >= 0:
        s.hit_banks[pc, queue] |= bit
        put_age(s.hit_age[queue], bank, bit, s.slot[slot, Q_SEQ])
    else:
        s.hit_banks[pc, queue] &= ~bit
    if slot >= 0 and slot == s.first[queue, bank]:
        s.in_order[pc, queue] |= bit
    else:
        s.in_order[pc, queue] &= ~bit


@inlined
def queue_of(c: Record, kind: int) -> int:
    """The queue in which reads (0) or writes (1) wait."""
    return 0 if c.shared_queue == 1 else kind


@inlined
def _count(c: Record, s: Record, pc: int, queue: int, bank: int, change: int) -> None:
    """Book that a queue has one request more (`change` 1) or less (-1)."""
    s.waiting[pc, queue] += change
    s.queued[queue, bank] += change
    if change < 0:
        s.stalled, s.left_at = 0, s.now
    if c.queue_per_bank == 1 and queue == 1:
        # the write queues on each side of the watermarks
        held = s.queued[1, bank] - (1 if change > 0 else 0)  # the smaller of before and after
        if held == c.drain_high:
            s.above_high[pc] += change
        if held == c.drain_low - 1:
            s.at_low[pc] += change


@inlined
def link(c: Record, s: Record, pc: int, kind: int, bank: int, bit: int, slot: int) -> None:
    """Put a request at the end of its queue."""
    queue = queue_of(c, kind)
    before = s.last[queue, bank]
    s.slot[slot, Q_KIND] = kind
    s.slot[slot, Q_SEQ] = s.seq
    s.slot[slot, Q_TIME] = s.now
    s.slot[slot, Q_NEXT] = -1
    s.slot[slot, Q_PREV] = before
    s.seq += 1
    if before >= 0:
        s.slot[before, Q_NEXT] = slot
    else:
        s.first[queue, bank] = slot
        put_age(s.first_age[queue], bank, bit, s.seq - 1)
        s.pending[pc, queue] |= bit
    s.last[queue, bank] = slot
    if s.hit[queue, bank] < 0 and s.open_row[bank] == s.slot[slot, Q_ROW]:
        set_hit(s, pc, queue, bank, bit, slot)
    _count(c, s, pc, queue, bank, 1)
    count_write(c, s, slot, 1)


@inlined
def unlink(c: Record, s: Record, pc: int, bit: int, slot: int) -> None:
    """Take a request out of its queue (its slot is not freed)."""
    queue, bank = queue_of(c, s.slot[slot, Q_KIND]), s.slot[slot, Q_BANK]
    before, after = s.slot[slot, Q_PREV], s.slot[slot, Q_NEXT]
    if before >= 0:
        s.slot[before, Q_NEXT] = after
    else:
        s.first[queue, bank] = after
        if after < 0:
            s.pending[pc, queue] &= ~bit
        else:
            put_age(s.first_age[queue], bank, bit, s.slot[after, Q_SEQ])
    if after >= 0:
        s.slot[after, Q_PREV] = before
    else:
        s.last[queue, bank] = before
    _count(c, s, pc, queue, bank, -1)


@inlined
def leave_otherwise(c: Record, s: Record, pc: int, bank: int, bit: int, slot: int) -> None:
    """As `leave`, whatever the request and the next one."""
    queue = queue_of(c, s.slot[slot, Q_KIND])
    hit = s.hit[queue, bank]
    if hit == slot:
        hit = find_hit(s, s.slot[slot, Q_NEXT], s.open_row[bank])
    unlink(c, s, pc, bit, slot)
    set_hit(s, pc, queue, bank, bit, hit)


@inlined
def leave(c: Record, s: Record, pc: int, bank: int, bit: int, slot: int) -> None:
    """Take the request of a bank that is served out of its queue (its slot is not freed)."""
    queue, after = queue_of(c, s.slot[slot, Q_KIND]), s.slot[slot, Q_NEXT]
    if after < 0 or s.first[queue, bank] != slot or s.slot[after, Q_ROW] != s.open_row[bank]:
        leave_otherwise(c, s, pc, bank, bit, slot)
        return
    s.first[queue, bank], s.hit[queue, bank] = after, after  # the next one is the next hit
    s.slot[after, Q_PREV] = -1
    put_age(s.first_age[queue], bank, bit, s.slot[after, Q_SEQ])
    put_age(s.hit_age[queue], bank, bit, s.slot[after, Q_SEQ])
    _count(c, s, pc, queue, bank, -1)


@inlined
def write_key(bank: int, row: int, column: int) -> int:
    """Where the waiting writes of a burst are counted; bursts may share a count. Odd factors, so
    that the bursts of a row, and equal columns of several banks and rows, spread over all counts;
    a shared one costs a look through a queue, never a wrong answer."""
    return (column + 37 * bank + 17 * row) & (WRITE_KEYS - 1)


@inlined
def count_write(c: Record, s: Record, slot: int, change: int) -> None:
    """Book that a write waits (`change` 1) or was served (-1): by its burst if it fills that."""
    if s.slot[slot, Q_KIND] == 0:
        return
    if s.slot[slot, Q_FLAGS] & FLAG_MASKED:
        s.masked += change * c.masked_writes
    else:
        key = write_key(s.slot[slot, Q_BANK], s.slot[slot, Q_ROW], s.slot[slot, Q_COLUMN])
        s.writes[key] += change


@inlined
def _full(c: Record, s: Record, pc: int, queue: int, bank: int) -> bool:
    """Whether a queue for requests to the bank has no room."""
    if c.queue_per_bank == 1:
        held = s.queued[queue, bank] + (s.bank_reserved[bank] if queue == 1 else 0)
    elif c.joint_queue == 1:
        held = s.waiting[0, queue] + s.waiting[1, queue]
        if queue == 1:
            held += s.reserved[0] + s.reserved[1]
    else:
        held = s.waiting[pc, queue] + (s.reserved[pc] if queue == 1 else 0)
    return held >= c.queue[queue]


@inlined
def _fills(s: Record, slot: int, row: int, column: int) -> bool:
    """Whether a waiting request is a write of this whole burst."""
    return (
        s.slot[slot, Q_COLUMN] == column
        and s.slot[slot, Q_ROW] == row
        and s.slot[slot, Q_KIND] == 1
        and s.slot[slot, Q_FLAGS] & FLAG_MASKED == 0
    )


@inlined
def _waiting_write(c: Record, s: Record, bank: int, row: int, column: int) -> bool:
    """Whether a waiting write will fill this burst whole."""
    slot = s.first[queue_of(c, 1), bank]
    while slot >= 0:
        if _fills(s, slot, row, column):
            return True
        slot = s.slot[slot, Q_NEXT]
    return s.active[bank] >= 0 and _fills(s, s.active[bank], row, column)


@inlined
def _place_high(s: Record, where: int, bits: int) -> None:
    """Bits of the column (0), the flat bank (1) or the row (2)."""
    if where == 0:
        s.high_column |= bits
    elif where == 1:
        s.high_bank |= bits
    else:
        s.high_row |= bits


@inlined
def _decode_high(c: Record, s: Record, high: int) -> None:
    """Column, flat bank and row by the upper bits of a burst index; kept for the next burst.

    The bank is hashed with these bits of the row; the lower ones are part of `low`.
    """
    s.high = high
    s.high_column, s.high_bank, s.high_row = 0, 0, 0
    burst = high << LOW_BITS
    for f in range(c.n_fields):
        bits = ((burst >> c.fields[f, 0]) & c.fields[f, 1]) << c.fields[f, 2]
        _place_high(s, c.fields[f, 3], bits)
    rest = burst >> c.odd_from
    for f in range(c.n_odd):
        _place_high(s, c.odd[f, 2], rest % c.odd[f, 0] << c.odd[f, 1])
        rest //= c.odd[f, 0]
    for h in range(c.n_hashes):
        s.high_bank ^= ((s.high_row >> c.hashes[h, 0]) & c.hashes[h, 1]) << c.hashes[h, 2]


@inlined
def place_of(c: Record, s: Record, burst: int) -> tuple[int, int, int]:
    """(flat bank, row, column) of a burst index."""
    if burst >> LOW_BITS != s.high:
        _decode_high(c, s, burst >> LOW_BITS)
    low = c.low[burst & ((1 << LOW_BITS) - 1)]
    return s.high_bank ^ low[1], s.high_row | low[2], s.high_column | low[0]


@inlined
def _stays(c: Record, s: Record, asked: int) -> bool:
    """Whether the head finds no room and no write to answer it, as far as is known without its
    place."""
    if c.one_queue == 0 or asked == PARTIAL_WRITE:
        return False
    if asked == READ:
        writes = s.waiting[0, 1] + s.active_count[0]
        return s.waiting[0, 0] >= c.queue[0] and (c.forwarding == 0 or writes == 0)
    return s.waiting[0, 1] + s.reserved[0] >= c.queue[1]


@inlined
def _admit(
    c: Record, s: Record, pc: int, bank: int, row: int, column: int, asked: int, completion: int
) -> bool:
    """Put the head into its queue; False (nothing changes) if there is no room."""
    flags = 0
    kind = 0 if asked == READ else 1
    if asked == PARTIAL_WRITE:
        flags = FLAG_MASKED
        if c.read_modify_write == 1:  # a read now, and a place for the write that follows
            if c.shared_queue == 0 and _full(c, s, pc, 1, bank):
                return False
            kind, flags = 0, FLAG_RMW
    if _full(c, s, pc, queue_of(c, kind), bank):
        return False
    if flags == FLAG_RMW and c.shared_queue == 0:
        s.reserved[pc] += 1
        s.bank_reserved[bank] += 1
    s.free_count[pc] -= 1
    slot = s.free[pc, s.free_count[pc]]
    s.slot[slot, Q_ROW] = row
    s.slot[slot, Q_COLUMN] = column
    s.slot[slot, Q_BANK] = bank
    s.slot[slot, Q_FLAGS] = flags
    s.slot[slot, Q_TAG] = completion
    link(c, s, pc, kind, bank, 1 << (bank - pc * c.banks_per_pc), slot)
    return True


@inlined
def taken(s: Record, place: int) -> None:
    """A burst of the head run, at `place` in the inbox, has been taken."""
    s.offset += 1
    if s.offset == s.inbox[RUN_BURSTS, place]:
        s.offset = 0
        s.inbox[RUN_TAKEN, place] = s.now  # for engines that wait for room
        s.head += 1


@inlined
def enter(c: Record, s: Record, completions: Int) -> None:
    """Let arrived requests into the queues, in order, while there is room."""
    if c.late_entry == 1 and s.left_at == s.now:
        return
    while s.stalled == 0 and s.head != s.tail:
        place = s.head & (INBOX - 1)
        if s.inbox[RUN_TICK, place] > s.now:
            return
        if c.sleeps == 1:
            wake(c, s, s.inbox[RUN_TICK, place])
        asked = s.inbox[RUN_KIND, place]
        if _stays(c, s, asked):
            s.stalled = 1
            return
        bank, row, column = place_of(c, s, s.inbox[RUN_FIRST, place] + s.offset)
        completion = s.inbox[RUN_ROW, place]
        pc = c.pc_of[bank]
        answered = asked != READ  # a posted write is done for its engine when it is taken
        if (
            asked == READ
            and c.forwarding == 1
            and s.writes[write_key(bank, row, column)] > 0
            and _waiting_write(c, s, bank, row, column)
        ):
            s.forwarded += 1
            answered = True
        elif not _admit(c, s, pc, bank, row, column, asked, completion):
            s.stalled = 1
            return
        if answered and completions.shape[1] > 1:
            done = (s.now + s.response) & (completions.shape[1] - 1)
            completions[completion, done] += c.burst_bytes
        taken(s, place)


@inlined
def set_modes(c: Record, s: Record) -> None:
    """Serve reads or writes: watermarks of the (fullest) write queue."""
    if (s.waiting[0, 1] | s.waiting[1, 1] | s.mode[0] | s.mode[1]) == 0:
        return
    for pc in range(c.pcs):
        reads, writes, mode = s.waiting[pc, 0], s.waiting[pc, 1], s.mode[pc]
        if c.joint_queue == 1:
            reads += s.waiting[1 - pc, 0]
            writes += s.waiting[1 - pc, 1]
        if writes == 0 and mode == 0:
            continue
        if c.queue_per_bank == 1:
            high, low = s.above_high[pc] > 0, s.at_low[pc] == 0 and c.drain_low > 0
        else:
            high, low = writes > c.drain_high, writes < c.drain_low
        if mode == 0:
            if high or (reads == 0 and writes > 0):
                s.mode[pc] = 1
        elif (low and reads > 0) or writes == 0:
            s.mode[pc] = 0
