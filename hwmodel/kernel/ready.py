"""Kernel: the earliest tick at which a command is legal (docs/controller.md: legality)."""

from __future__ import annotations

from hwmodel.kernel.jit import inlined
from hwmodel.kernel.kernel_names import ACT2, Record
from hwmodel.kernel.lanes import lowest_bit, postpone, postpone_all, postpone_four, postpone_half
from hwmodel.kernel.limits import DQ_TICKS


@inlined
def floor(c: Record, s: Record, pc: int, command: int) -> int:
    """Earliest tick of `command` in a pseudo-channel by what all its banks share."""
    return max(s.now, s.bus_free[c.bus[pc, command]], s.floor[pc, command])


@inlined
def ready(c: Record, s: Record, bank: int, command: int) -> int:
    """Earliest tick of `command` to `bank` (of a rank command: any bank of the rank) by its rows
    alone."""
    return max(s.ready[command, bank], s.floor[c.pc_of[bank], command])


@inlined
def delay_banks(c: Record, s: Record, command: int, bank: int, tick: int, rules: int) -> None:
    """Book the first `rules` rows of `command` to `bank` that some banks of a pseudo-channel alone
    feel."""
    alone = c.n_self_rules[command]
    for r in range(alone):
        then, at = c.bank_rules[command, r, 1], tick + c.bank_rules[command, r, 2]
        s.ready[then, bank] = max(s.ready[then, bank], at)
    start = c.pc_of[bank] * c.banks_per_pc
    for r in range(alone, rules):
        scope, then = c.bank_rules[command, r, 0], c.bank_rules[command, r, 1]
        at = tick + c.bank_rules[command, r, 2]
        if c.fours[scope] == 1:  # a bank group, mostly
            postpone_four(s.ready[then], bank & -4, at)
        else:
            postpone(s.ready[then], start, c.reach[scope, bank], at)


@inlined
def delay_windows(c: Record, s: Record, command: int, bank: int, tick: int) -> None:
    """Book `command` in the activation windows that count it."""
    pc = c.pc_of[bank]
    for w in range(c.windows):
        if (c.window[w, 2] >> command) & 1 == 0:
            continue
        scope, length, waiting = c.window[w, 0], c.window[w, 1], c.window[w, 3]
        instance = c.instance[scope, bank]
        place = s.ring_at[w, instance]
        s.ring[w, instance, place] = tick
        place = place + 1 if place + 1 < length else 0
        s.ring_at[w, instance] = place
        oldest = s.ring[w, instance, place]
        if scope >= c.bank_levels:
            for other in range(c.pcs):
                if c.instance[scope, other * c.banks_per_pc] == instance:
                    postpone_all(s.floor[other], c.window_delay[w], oldest)
            continue
        while waiting != 0:
            then = lowest_bit(waiting)
            waiting &= waiting - 1
            at = oldest + c.window_delay[w, then]
            postpone(s.ready[then], pc * c.banks_per_pc, c.reach[scope, bank], at)


@inlined
def delay(c: Record, s: Record, command: int, bank: int, tick: int) -> None:
    """Book the rows and windows of `command` to `bank`."""
    pc = c.pc_of[bank]
    if c.half[command] == 1:
        postpone_half(s.floor[pc], c.pc_delay[command], tick)
    else:
        postpone_all(s.floor[pc], c.pc_delay[command], tick)
    if c.pcs > 1 and c.channel_rows == 1:
        postpone_all(s.floor[1 - pc], c.channel_delay[command], tick)
    delay_banks(c, s, command, bank, tick, c.n_bank_rules[command])
    if (c.counted >> command) & 1:
        delay_windows(c, s, command, bank, tick)


@inlined
def dq_free(c: Record, s: Record, pc: int, kind: int, tick: int) -> int:
    """Earliest tick >= `tick` at which a burst of `kind` finds its beats of DQ free."""
    x = 0
    while x < c.n_segments[kind]:
        x += 1
        for beat in range(tick + c.segments[kind, x - 1, 0], tick + c.segments[kind, x - 1, 1]):
            if s.dq[pc, beat & (DQ_TICKS - 1)] == beat:
                tick += 1
                x = 0
                break
    return tick


@inlined
def take_dq(c: Record, s: Record, pc: int, kind: int, tick: int) -> None:
    """A burst of `kind` whose command is issued at `tick` takes its beats of DQ."""
    for x in range(c.n_segments[kind]):
        for beat in range(tick + c.segments[kind, x, 0], tick + c.segments[kind, x, 1]):
            s.dq[pc, beat & (DQ_TICKS - 1)] = beat


@inlined
def fits(c: Record, s: Record, command: int, pc: int, tick: int) -> bool:
    """Whether `command` at `tick` leaves the bus free for the second step of every (other) open
    pair."""
    for other in range(c.pcs):
        if s.pair_bank[other] >= 0 and not (command == ACT2 and other == pc):
            mine = c.bus[pc, command]
            pair = c.bus[other, ACT2]
            if mine == pair and tick + c.slots[command] > s.pair_deadline[other]:
                return False
    return True
