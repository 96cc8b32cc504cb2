"""Kernel: the earliest tick at which a command is legal (rules.md: legality)."""

from __future__ import annotations

from hwmodel.kernel.bank_place import pc_of
from hwmodel.kernel.jit import inlined
from hwmodel.kernel.kernel_names import ACT2, Record
from hwmodel.kernel.lanes import lowest_bit, postpone, postpone_all, postpone_four, postpone_half
from hwmodel.kernel.limits import DQ_TICKS


@inlined
def floor(memory: Record, state: Record, pc: int, command: int) -> int:
    """Earliest tick of `command` in a pseudo-channel by what all its banks share."""
    return max(state.now, state.bus_free[memory.bus[pc, command]], state.floor[pc, command])


@inlined
def ready(memory: Record, state: Record, bank: int, command: int) -> int:
    """Earliest tick of `command` to `bank` (of a rank command: any bank of the rank) by its rows
    alone."""
    return max(state.ready[command, bank], state.floor[pc_of(memory, bank), command])


@inlined
def delay_banks(
    memory: Record, state: Record, command: int, bank: int, tick: int, rules: int
) -> None:
    """Book the first `rules` rows of `command` to `bank` that some banks of a pseudo-channel alone
    feel."""
    start = pc_of(memory, bank) * memory.banks_per_pc
    for r in range(rules):
        scope, then = memory.bank_rules[command, r, 0], memory.bank_rules[command, r, 1]
        at = tick + memory.bank_rules[command, r, 2]
        if scope == 0:  # the bank alone
            state.ready[then, bank] = max(state.ready[then, bank], at)
        elif memory.fours[scope] == 1:  # a bank group, mostly
            postpone_four(state.ready[then], bank & -4, at)
        else:
            postpone(state.ready[then], start, memory.reach[scope, bank], at)


@inlined
def delay_windows(memory: Record, state: Record, command: int, bank: int, tick: int) -> None:
    """Book `command` in the activation windows that count it."""
    pc = pc_of(memory, bank)
    for w in range(memory.windows):
        if (memory.window[w, 2] >> command) & 1 == 0:
            continue
        scope, length, waiting = memory.window[w, 0], memory.window[w, 1], memory.window[w, 3]
        instance = memory.instance[scope, bank]
        place = state.window_at[w, instance]
        state.window_tick[w, instance, place] = tick
        place = place + 1 if place + 1 < length else 0
        state.window_at[w, instance] = place
        oldest = state.window_tick[w, instance, place]
        if scope >= memory.bank_levels:
            for other in range(memory.pcs):
                if memory.instance[scope, other * memory.banks_per_pc] == instance:
                    postpone_all(state.floor[other], memory.window_delay[w], oldest)
            continue
        while waiting != 0:
            then = lowest_bit(waiting)
            waiting &= waiting - 1
            at = oldest + memory.window_delay[w, then]
            postpone(state.ready[then], pc * memory.banks_per_pc, memory.reach[scope, bank], at)


@inlined
def delay(memory: Record, state: Record, command: int, bank: int, tick: int) -> None:
    """Book the rows and windows of `command` to `bank`."""
    pc = pc_of(memory, bank)
    if memory.half[command] == 1:
        postpone_half(state.floor[pc], memory.pc_delay[command], tick)
    else:
        postpone_all(state.floor[pc], memory.pc_delay[command], tick)
    if memory.pcs > 1 and memory.channel_rows == 1:
        postpone_all(state.floor[1 - pc], memory.channel_delay[command], tick)
    delay_banks(memory, state, command, bank, tick, memory.n_bank_rules[command])
    if (memory.counted >> command) & 1:
        delay_windows(memory, state, command, bank, tick)


@inlined
def dq_free(memory: Record, state: Record, pc: int, kind: int, tick: int) -> int:
    """Earliest tick >= `tick` at which a burst of `kind` finds its beats of DQ free."""
    x = 0
    while x < memory.n_segments[kind]:
        x += 1
        for beat in range(
            tick + memory.segments[kind, x - 1, 0], tick + memory.segments[kind, x - 1, 1]
        ):
            if state.dq_taken[pc, beat & (DQ_TICKS - 1)] == beat:
                tick += 1
                x = 0
                break
    return tick


@inlined
def take_dq(memory: Record, state: Record, pc: int, kind: int, tick: int) -> None:
    """A burst of `kind` whose command is issued at `tick` takes its beats of DQ."""
    for x in range(memory.n_segments[kind]):
        for beat in range(tick + memory.segments[kind, x, 0], tick + memory.segments[kind, x, 1]):
            state.dq_taken[pc, beat & (DQ_TICKS - 1)] = beat


@inlined
def fits(memory: Record, state: Record, command: int, pc: int, tick: int) -> bool:
    """Whether `command` at `tick` leaves the bus free for the second step of every (other) open
    pair."""
    for other in range(memory.pcs):
        if state.pair_bank[other] >= 0 and not (command == ACT2 and other == pc):
            mine = memory.bus[pc, command]
            pair = memory.bus[other, ACT2]
            if mine == pair and tick + memory.slots[command] > state.pair_deadline[other]:
                return False
    return True
