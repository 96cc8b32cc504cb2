"""Kernel: what refreshes and mechanisms share: sets of banks, and the next step of a command to one
(rules.md: refresh)."""

from __future__ import annotations

from hwmodel.kernel.bank_place import pc_of
from hwmodel.kernel.jit import inlined
from hwmodel.kernel.kernel_names import CLASS_BITS, PRE, PREA, REFAB, REFPB, Record
from hwmodel.kernel.limits import FOREVER
from hwmodel.kernel.ready import fits, ready

Candidate = tuple[int, int, int, int, int]
"""tick << CLASS_BITS | class (FOREVER of none), age, command, bank, slot of its request: the first
two say which comes first. A command to a set has -1 - set in the place of a slot, and its bank in
that of an age."""


@inlined
def first_of(
    best: Candidate, tick: int, order: int, seq: int, command: int, bank: int, slot: int
) -> Candidate:
    """The first of the best candidate so far and another, of class `order`."""
    key = (tick << CLASS_BITS) | order
    if tick < FOREVER and (key < best[0] or (key == best[0] and seq < best[1])):
        return key, seq, command, bank, slot
    return best


@inlined
def banks_in(memory: Record, whole: bool) -> int:
    """How many banks a refresh set has; `whole`: the rank is the set."""
    return memory.banks_per_rank if whole else memory.set_size


@inlined
def bank_of(memory: Record, whole: bool, rank: int, which: int, i: int) -> int:
    """The i-th bank of a refresh set, flat."""
    return rank * memory.banks_per_rank + (i if whole else memory.sets[which, i])


@inlined
def waiting_in(memory: Record, state: Record, whole: bool, rank: int, which: int) -> int:
    """Requests that wait for the banks of a refresh set."""
    total = 0
    for i in range(banks_in(memory, whole)):
        bank = bank_of(memory, whole, rank, which, i)
        total += state.queued[0, bank] + state.queued[1, bank]
        if state.active[bank] >= 0:
            total += 1
    return total


@inlined
def banks_of_rank(memory: Record) -> int:
    """All banks of a rank, a bit mask; of 64 banks 1 << 64 would not fit."""
    return (1 << memory.banks_per_rank) - 1 if memory.banks_per_rank < 64 else -1


@inlined
def rank_mask(memory: Record, rank: int) -> int:
    """All banks of a rank, a bit mask of its pseudo-channel."""
    first = rank * memory.banks_per_rank
    return banks_of_rank(memory) << (first - pc_of(memory, first) * memory.banks_per_pc)


@inlined
def step_for_set(
    memory: Record, state: Record, command: int, rank: int, which: int, pair_open: bool
) -> tuple[int, int, int]:
    """(tick, command, bank) of the next step of a command to a set of banks: the PRE of one that is
    open, or the command itself, which waits for what a REFPB waits for, and for rows of its own.
    tick FOREVER while a request holds a bank of it."""
    now, pc = state.now, pc_of(memory, rank * memory.banks_per_rank)
    pair = state.pair_bank[pc]
    base = bank_of(memory, False, rank, which, 0)
    best, best_bank, at = FOREVER, base, now
    closed = True
    for i in range(memory.set_size):
        bank = bank_of(memory, False, rank, which, i)
        if state.active[bank] >= 0 or pair == bank:
            closed = False
        elif state.open_row[bank] >= 0:
            closed = False
            tick = max(now, ready(memory, state, bank, PRE), state.bus_free[memory.bus[pc, PRE]])
            if pair_open and not fits(memory, state, PRE, pc, tick):
                tick = FOREVER
            if tick < best or (tick == best and bank < best_bank):
                best, best_bank = tick, bank
        else:
            at = max(at, ready(memory, state, bank, REFPB))
            if command != REFPB:
                at = max(at, ready(memory, state, bank, command))
    if not closed:
        return best, PRE, best_bank
    at = max(at, state.bus_free[memory.bus[pc, command]])
    if pair_open and not fits(memory, state, command, pc, at):
        at = FOREVER
    return at, command, base


@inlined
def step_for_rank(
    memory: Record,
    state: Record,
    command: int,
    waits_as: int,
    closes: int,
    rank: int,
    pair_open: bool,
) -> tuple[int, int, int]:
    """(tick, command, bank) of the next step of a command to a rank: the PREA of one with an open
    bank, where `closes` is 1, or the command itself, which waits for what the lane `waits_as` waits
    for, and for rows of its own. tick FOREVER while a request holds a bank of it."""
    now, pc = state.now, pc_of(memory, rank * memory.banks_per_rank)
    pair = state.pair_bank[pc]
    base = rank * memory.banks_per_rank
    if closes == 1:
        opened = False
        for bank in range(base, base + memory.banks_per_rank):
            if state.active[bank] >= 0 or pair == bank:
                return FOREVER, REFAB, base
            opened = opened or state.open_row[bank] >= 0
        if opened:
            command = PREA
    at = max(
        now,
        ready(memory, state, base, memory.lane[command]),
        state.bus_free[memory.bus[pc, command]],
    )
    if command != PREA:
        at = max(at, ready(memory, state, base, waits_as))
    if pair_open and not fits(memory, state, command, pc, at):
        at = FOREVER
    return at, command, base
