"""Kernel: the earliest tick at which a command is legal (docs/controller.md: legality)."""

from __future__ import annotations

from hwmodel.kernel.channel_state import DQ_MEMORY
from hwmodel.kernel.jit import part
from hwmodel.kernel.kernel_names import ACT2, PRE, Record
from hwmodel.kernel.timing import MAX_SEGMENTS, NEVER


@part
def ready(c: Record, s: Record, bank: int, command: int) -> int:
    """Earliest tick of `command` to `bank` by its rows alone."""
    at = s.earliest[c.ancestors[bank, 0], command]
    for level in range(1, c.levels):
        other = s.earliest[c.ancestors[bank, level], command]
        if other > at:
            at = other
    return at


@part
def rank_ready(c: Record, s: Record, bank: int, command: int) -> int:
    """Earliest tick of a rank command, by its rows alone."""
    at = NEVER
    for level in range(c.levels):
        if c.rank_level[level] == 1:
            at = max(at, s.earliest[c.ancestors[bank, level], command])
    return at


@part
def own(c: Record, s: Record, bank: int, command: int, at: int) -> int:
    """`at`, or later by the rows of the levels that the banks of a pseudo-channel do not share."""
    for level in range(c.shared_level):
        at = max(at, s.earliest[c.ancestors[bank, level], command])
    return at


@part
def floor(c: Record, s: Record, pc: int, command: int) -> int:
    """Earliest tick of `command` in a pseudo-channel by what all its banks share."""
    at = max(s.now, s.bus_free[c.bus[pc, command]])
    bank = pc * c.banks_per_pc
    for level in range(c.shared_level, c.levels):
        at = max(at, s.earliest[c.ancestors[bank, level], command])
    return at


@part
def dq_free(c: Record, s: Record, pc: int, kind: int, tick: int) -> int:
    """Earliest tick >= `tick` at which a burst of `kind` finds its DQ segments free."""
    moved = True
    while moved:
        moved = False
        for i in range(DQ_MEMORY):
            at, other = s.dq[pc, i, 0], s.dq[pc, i, 1]
            if at == NEVER:
                continue
            for x in range(MAX_SEGMENTS):
                for y in range(MAX_SEGMENTS):
                    mine, theirs = c.segments[kind, x, 0], c.segments[other, y, 0]
                    if mine == NEVER or theirs == NEVER:
                        continue
                    if (
                        tick + mine < at + c.segments[other, y, 1]
                        and at + theirs < tick + c.segments[kind, x, 1]
                    ):
                        tick = at + c.segments[other, y, 1] - mine
                        moved = True
    return tick


@part
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
