"""Kernel: what issuing a command changes in a channel: rows, buses, banks, queues, refresh."""

from __future__ import annotations

from hwmodel.kernel.channel_state import (
    DQ_MEMORY,
    LATENCY_BINS,
    Q_FLAGS,
    Q_KIND,
    Q_NEXT,
    Q_ROW,
    Q_TAG,
    Q_TIME,
)
from hwmodel.kernel.jit import part
from hwmodel.kernel.kernel_names import (
    ACT2,
    CAS,
    FLAG_ACTIVATED,
    FLAG_PRECHARGED,
    FLAG_RMW,
    PRE,
    PREA,
    RD,
    RDA,
    REFPB,
    WRA,
    Record,
)
from hwmodel.kernel.pages import close_row, open_row, shorten_timeout
from hwmodel.kernel.queues import find_hit, link, queue_of, set_hit, unlink
from hwmodel.kernel.ready import note_row
from hwmodel.kernel.refresh import bank_of, refreshed
from hwmodel.kernel.timing import N_COMMANDS, Int


@part
def _issue(c: Record, s: Record, command: int, bank: int, tick: int) -> None:
    """Book the rows, windows and bus of `command` to `bank` (any bank of its rank for rank
    commands)."""
    for r in range(c.n_rules[command]):
        level, n = c.rules[command, r, 0], c.rules[command, r, 1]
        node = c.ancestors[bank, level]
        at = tick + c.rules[command, r, 2]
        if at > s.earliest[node, n]:
            s.earliest[node, n] = at
    for r in range(c.n_sibling_rules[command]):
        level, n = c.sibling_rules[command, r, 0], c.sibling_rules[command, r, 1]
        node = c.ancestors[bank, level]
        at = tick + c.sibling_rules[command, r, 2]
        for other in range(c.sibling_range[node, 0], c.sibling_range[node, 1]):
            if other != node and at > s.earliest[other, n]:
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
def _activate(c: Record, s: Record, pc: int, bank: int, slot: int, tick: int) -> None:
    """First (or only) step of an activation for `slot`."""
    s.slot[slot, Q_FLAGS] |= FLAG_ACTIVATED
    bit = 1 << (bank - pc * c.banks_per_pc)
    if c.activation_buffer > 0:
        unlink(c, s, pc, bit, slot)
        s.active[bank] = slot
        s.active_banks[pc] |= bit
        s.active_count[pc] += 1
    if c.steps == 2:
        s.pair_bank[pc] = bank
        s.pair_slot[pc] = slot
        s.pair_deadline[pc] = tick + c.max_gap
    else:
        open_row(c, s, pc, bank, s.slot[slot, Q_ROW])


@part
def _data(
    c: Record, s: Record, pc: int, bank: int, slot: int, tick: int, completions: Int
) -> None:  # fmt: skip
    """Book the data of the column command of `slot`: figures, data clock, DQ, completion."""
    kind, flags = s.slot[slot, Q_KIND], s.slot[slot, Q_FLAGS]
    end = tick + c.data_end[kind]
    s.end = max(s.end, end)
    if flags & FLAG_PRECHARGED:
        s.conflicts += 1
    elif flags & FLAG_ACTIVATED:
        s.misses += 1
    else:
        s.hits += 1
    s.bytes += c.burst_bytes
    s.bank_commands[bank, 1 + kind] += 1
    if flags & FLAG_RMW:
        s.rmw_reads += 1
    else:
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


@part
def _leave(c: Record, s: Record, pc: int, bank: int, bit: int, slot: int) -> None:
    """The request of `slot` has its data: out of its queue or the activation buffer."""
    if s.active[bank] == slot:
        s.active[bank] = -1
        s.active_banks[pc] &= ~bit
        s.active_count[pc] -= 1
        note_row(c, s, pc, bank)
        return
    queue = queue_of(c, s.slot[slot, Q_KIND])
    was_oldest = s.first[queue, bank] == slot
    later = s.slot[slot, Q_NEXT]
    unlink(c, s, pc, bit, slot)
    if s.hit[queue, bank] == slot:
        set_hit(s, pc, queue, bank, bit, find_hit(s, later, s.open_row[bank]))
    if s.hit[queue, bank] < 0 or (was_oldest and s.hit[queue, bank] != s.first[queue, bank]):
        note_row(c, s, pc, bank)


@part
def _serve(
    c: Record, s: Record, pc: int, bank: int, slot: int, command: int, tick: int,
    completions: Int,
) -> None:  # fmt: skip
    """The column command of `slot` is issued: book its data and let it go."""
    bit = 1 << (bank - pc * c.banks_per_pc)
    _data(c, s, pc, bank, slot, tick, completions)
    s.streak[bank] += 1
    s.last_use[bank] = tick
    _leave(c, s, pc, bank, bit, slot)
    if c.hit_limit > 0 and s.streak[bank] >= c.hit_limit:
        note_row(c, s, pc, bank)
    if command == RDA or command == WRA:
        close_row(c, s, pc, bank)
    if s.slot[slot, Q_FLAGS] & FLAG_RMW:  # its write follows, in the place that was held for it
        s.slot[slot, Q_FLAGS] = 0
        if c.shared_queue == 0:
            s.reserved[pc] -= 1
            s.bank_reserved[bank] -= 1
        link(c, s, pc, 1, bank, bit, slot)
        return
    s.free[pc, s.free_count[pc]] = slot
    s.free_count[pc] += 1


@part
def apply(
    c: Record, s: Record, command: int, bank: int, slot: int, tick: int, completions: Int
) -> None:  # fmt: skip
    """Issue the chosen command and change the state of banks, queues and refresh."""
    pc = c.pc_of[bank]
    if command == REFPB:
        for i in range(1, c.set_size):  # rows of the other banks of its set
            other = bank_of(c, c.rank_of[bank], -1 - slot, i)
            for r in range(c.n_rules[REFPB]):
                level, n = c.rules[REFPB, r, 0], c.rules[REFPB, r, 1]
                at = tick + c.rules[REFPB, r, 2]
                node = c.ancestors[other, level]
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
        open_row(c, s, pc, bank, s.slot[slot, Q_ROW])
    elif command == PRE:
        if slot >= 0:
            s.slot[slot, Q_FLAGS] |= FLAG_PRECHARGED
            shorten_timeout(c, s, bank)
        elif s.best_key & 7 == 7:
            s.timed_out_row[bank] = s.open_row[bank]
        close_row(c, s, pc, bank)
    elif command == PREA:
        for other in range(bank, bank + c.banks_per_rank):
            close_row(c, s, pc, other)
    elif command == CAS:
        rank = c.rank_of[bank]
        s.sync_until[rank] = max(s.sync_until[rank], tick + c.hold[0])
    else:
        refreshed(c, s, c.rank_of[bank], -1 - slot)
