"""Kernel: what issuing a command changes in a channel: rows, buses, banks, queues, refresh."""

from __future__ import annotations

from hwmodel.channel_state import (
    DQ_MEMORY,
    LATENCY_BINS,
    Q_BANK,
    Q_FLAGS,
    Q_KIND,
    Q_NEXT,
    Q_PREV,
    Q_ROW,
    Q_TAG,
    Q_TIME,
)
from hwmodel.jit import part
from hwmodel.kernel_names import (
    ACT2,
    CAS,
    FLAG_ACTIVATED,
    FLAG_PRECHARGED,
    PRE,
    PREA,
    RD,
    RDA,
    REFAB,
    REFPB,
    WRA,
    Record,
)
from hwmodel.timing import N_COMMANDS, NEVER, REFRESH_ALL_BANK, Int


@part
def _issue(c: Record, s: Record, command: int, bank: int, tick: int) -> None:
    """Book the rows, windows and bus of `command` to `bank` (any bank of its rank for rank
    commands)."""
    levels = c.levels
    whole_rank = command == PREA or command == REFAB or command == CAS
    for level in range(levels):
        if whole_rank and c.rank_level[level] == 0:
            continue
        node = c.ancestors[bank, level]
        if c.has_delay[level, command] == 1:
            for n in range(N_COMMANDS):
                at = tick + c.delay[level, command, n]
                if at > s.earliest[node, n]:
                    s.earliest[node, n] = at
        if c.siblings == 1:
            for other in range(c.sibling_range[node, 0], c.sibling_range[node, 1]):
                if other != node:
                    for n in range(N_COMMANDS):
                        at = tick + c.sibling_delay[level, command, n]
                        if at > s.earliest[other, n]:
                            s.earliest[other, n] = at
    for w in range(c.windows):
        if (c.window[w, 3] >> command) & 1:
            level = c.window[w, 0]
            node = c.ancestors[bank, level]
            instance = node - c.level_start[level]
            place = s.ring_at[w, instance]
            s.ring[w, instance, place] = tick
            place = place + 1 if place + 1 < c.window[w, 1] else 0
            s.ring_at[w, instance] = place
            at = s.ring[w, instance, place] + c.window[w, 2]
            for n in range(N_COMMANDS):
                if (c.window[w, 4] >> n) & 1 and at > s.earliest[node, n]:
                    s.earliest[node, n] = at
    bus = c.bus[c.pc_of[bank], command]
    s.bus_free[bus] = tick + c.slots[command]
    s.commands[command] += 1


@part
def _find_hit(s: Record, start: int, row: int) -> int:
    """First slot from `start` on (in age order) that wants `row`, or -1."""
    while start >= 0 and s.slot[start, Q_ROW] != row:
        start = s.slot[start, Q_NEXT]
    return start


@part
def set_hit(s: Record, pc: int, kind: int, bank: int, bit: int, found: int) -> None:
    s.hit[kind, bank] = found
    if found >= 0:
        s.hit_banks[pc, kind] |= bit
    else:
        s.hit_banks[pc, kind] &= ~bit


@part
def _unlink(s: Record, pc: int, slot: int) -> None:
    """Take a request out of its queue (its slot is not freed)."""
    kind, bank = s.slot[slot, Q_KIND], s.slot[slot, Q_BANK]
    before, after = s.slot[slot, Q_PREV], s.slot[slot, Q_NEXT]
    if before >= 0:
        s.slot[before, Q_NEXT] = after
    else:
        s.first[kind, bank] = after
    if after >= 0:
        s.slot[after, Q_PREV] = before
    else:
        s.last[kind, bank] = before
    s.waiting[pc, kind] -= 1


@part
def own(c: Record, s: Record, bank: int, command: int, at: int) -> int:
    """`at`, or later by the rows of the levels that the banks of a pseudo-channel do not share."""
    for level in range(c.shared_level):
        at = max(at, s.earliest[c.ancestors[bank, level], command])
    return at


@part
def note_row(c: Record, s: Record, pc: int, bank: int) -> None:
    """The bank may have a new row command to offer: lower the bounds on when the first can be."""
    if s.open_row[bank] >= 0:
        s.close_bound[pc] = min(s.close_bound[pc], own(c, s, bank, PRE, NEVER))
    else:
        s.open_bound[pc] = min(s.open_bound[pc], own(c, s, bank, c.first, NEVER))


@part
def forget_rows(s: Record, pc: int) -> None:
    """Any bank may have new row commands to offer."""
    s.close_bound[pc] = NEVER
    s.open_bound[pc] = NEVER


@part
def _open(c: Record, s: Record, pc: int, bank: int, row: int) -> None:
    """The bank's row is open: find the queued requests that hit it."""
    s.open_row[bank] = row
    s.streak[bank] = 0
    bit = 1 << (bank - pc * c.banks_per_pc)
    s.open_banks[pc] |= bit
    for kind in range(2):
        set_hit(s, pc, kind, bank, bit, _find_hit(s, s.first[kind, bank], row))
    note_row(c, s, pc, bank)


@part
def _close(c: Record, s: Record, pc: int, bank: int) -> None:
    s.open_row[bank] = -1
    bit = 1 << (bank - pc * c.banks_per_pc)
    s.open_banks[pc] &= ~bit
    s.hit[0, bank] = -1
    s.hit[1, bank] = -1
    s.hit_banks[pc, 0] &= ~bit
    s.hit_banks[pc, 1] &= ~bit
    note_row(c, s, pc, bank)


@part
def _activate(c: Record, s: Record, pc: int, bank: int, slot: int, tick: int) -> None:
    """First (or only) step of an activation for `slot`."""
    s.slot[slot, Q_FLAGS] |= FLAG_ACTIVATED
    bit = 1 << (bank - pc * c.banks_per_pc)
    if c.activation_buffer > 0:
        kind = s.slot[slot, Q_KIND]
        _unlink(s, pc, slot)
        if s.first[kind, bank] < 0:
            s.pending[pc, kind] &= ~bit
        s.active[bank] = slot
        s.active_banks[pc] |= bit
        s.active_count[pc] += 1
    if c.steps == 2:
        s.pair_bank[pc] = bank
        s.pair_slot[pc] = slot
        s.pair_deadline[pc] = tick + c.max_gap
    else:
        _open(c, s, pc, bank, s.slot[slot, Q_ROW])


@part
def _serve(
    c: Record, s: Record, pc: int, bank: int, slot: int, command: int, tick: int,
    completions: Int,
) -> None:  # fmt: skip
    """The column command of `slot` is issued: book its data and let it go."""
    kind = s.slot[slot, Q_KIND]
    bit = 1 << (bank - pc * c.banks_per_pc)
    end = tick + c.data_end[kind]
    s.end = max(s.end, end)
    flags = s.slot[slot, Q_FLAGS]
    if flags & FLAG_PRECHARGED:
        s.conflicts += 1
    elif flags & FLAG_ACTIVATED:
        s.misses += 1
    else:
        s.hits += 1
    s.bytes += c.burst_bytes
    s.requests += 1
    if kind == 0:
        wait = end - s.slot[slot, Q_TIME]
        s.latency[min(wait, LATENCY_BINS - 1)] += 1
        s.latency_sum += wait
        s.latency_max = max(s.latency_max, wait)
        s.reads += 1
        if completions.shape[1] > 1:
            done = (end + s.response) & (completions.shape[1] - 1)
            completions[s.slot[slot, Q_TAG], done] += c.burst_bytes
    if c.sync == 1:
        rank = c.rank_of[bank]
        s.sync_until[rank] = max(s.sync_until[rank], tick + c.hold[1 + kind])
    if c.check_dq == 1:
        at = s.dq_at[pc]
        s.dq[pc, at, 0] = tick
        s.dq[pc, at, 1] = kind
        s.dq_at[pc] = at + 1 if at + 1 < DQ_MEMORY else 0
    s.streak[bank] += 1
    if s.active[bank] == slot:
        s.active[bank] = -1
        s.active_banks[pc] &= ~bit
        s.active_count[pc] -= 1
        note_row(c, s, pc, bank)
    else:
        was_oldest = s.first[kind, bank] == slot
        later = s.slot[slot, Q_NEXT]
        _unlink(s, pc, slot)
        if s.first[kind, bank] < 0:
            s.pending[pc, kind] &= ~bit
        if s.hit[kind, bank] == slot:
            set_hit(s, pc, kind, bank, bit, _find_hit(s, later, s.open_row[bank]))
        if s.hit[kind, bank] < 0 or (was_oldest and s.hit[kind, bank] != s.first[kind, bank]):
            note_row(c, s, pc, bank)
    if c.hit_limit > 0 and s.streak[bank] >= c.hit_limit:
        note_row(c, s, pc, bank)
    if command == RDA or command == WRA:
        _close(c, s, pc, bank)
    s.free[pc, s.free_count[pc]] = slot
    s.free_count[pc] += 1


@part
def update_refresh(c: Record, s: Record) -> None:
    """Book refreshes that have fallen due, and block the banks they need."""
    sets, interval = c.refresh_sets, c.refresh_interval
    per_rank = c.banks_per_rank
    ranks_per_pc = c.ranks // c.pcs
    while s.next_due <= s.now:
        s.refresh_due += 1
        for rank in range(c.ranks):
            s.refresh_owed[rank] += 1
        s.next_due = s.phase + (s.refresh_due + 1) * interval // sets
    s.owed = 0
    for pc in range(c.pcs):
        blocked = 0
        for r in range(ranks_per_pc):
            rank = pc * ranks_per_pc + r
            if s.refresh_owed[rank] == 0:
                continue
            s.owed += 1
            if c.refresh == REFRESH_ALL_BANK:
                blocked |= ((1 << per_rank) - 1) << (r * per_rank) if per_rank < 64 else -1
            else:
                which = s.refresh_issued[rank] % sets
                for i in range(c.set_size):
                    blocked |= 1 << (r * per_rank + c.sets[which, i])
        s.blocked[pc] = blocked
        forget_rows(s, pc)


@part
def apply(
    c: Record, s: Record, command: int, bank: int, slot: int, tick: int, completions: Int
) -> None:  # fmt: skip
    """Issue the chosen command and change the state of banks, queues and refresh."""
    pc = c.pc_of[bank]
    if command == REFPB:
        rank = c.rank_of[bank]
        base = rank * c.banks_per_rank
        which = s.refresh_issued[rank] % c.refresh_sets
        for i in range(1, c.set_size):
            for level in range(c.shared_level):
                node = c.ancestors[base + c.sets[which, i], level]
                for n in range(N_COMMANDS):
                    at = tick + c.delay[level, REFPB, n]
                    if at > s.earliest[node, n]:
                        s.earliest[node, n] = at
    _issue(c, s, command, bank, tick)
    if command >= RD and command <= WRA:
        _serve(c, s, pc, bank, slot, command, tick, completions)
        return
    if command == c.first:
        _activate(c, s, pc, bank, slot, tick)
    elif command == ACT2:
        s.pair_bank[pc] = -1
        _open(c, s, pc, bank, s.slot[slot, Q_ROW])
    elif command == PRE:
        _close(c, s, pc, bank)
        if slot >= 0:
            s.slot[slot, Q_FLAGS] |= FLAG_PRECHARGED
    elif command == PREA:
        for other in range(bank, bank + c.banks_per_rank):
            _close(c, s, pc, other)
    elif command == CAS:
        rank = c.rank_of[bank]
        s.sync_until[rank] = max(s.sync_until[rank], tick + c.hold[0])
    else:
        rank = c.rank_of[bank]
        s.refresh_owed[rank] -= 1
        s.refresh_issued[rank] += 1
        update_refresh(c, s)
