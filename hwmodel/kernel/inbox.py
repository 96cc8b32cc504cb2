"""Kernel: runs of bursts are put into a channel's inbox."""

from __future__ import annotations

from hwmodel.kernel.channel_state import (
    INBOX,
    RUN_BURSTS,
    RUN_FIRST,
    RUN_KIND,
    RUN_ROW,
    RUN_TAKEN,
    RUN_TICK,
)
from hwmodel.kernel.jit import called, inlined
from hwmodel.kernel.kernel_names import Record


@inlined
def _fill(s: Record, place: int, tick: int, first: int, bursts: int, kind: int, row: int) -> None:
    at = place & (INBOX - 1)
    s.inbox[RUN_TICK, at] = tick
    s.inbox[RUN_FIRST, at] = first
    s.inbox[RUN_BURSTS, at] = bursts
    s.inbox[RUN_KIND, at] = kind
    s.inbox[RUN_ROW, at] = row


@inlined
def put(s: Record, tick: int, first: int, bursts: int, kind: int, row: int) -> None:
    """Append a run to an inbox that has room; `row` of completions."""
    if s.head == s.tail:
        s.head, s.tail = 0, 0  # the start of the inbox stays in the cache
    _fill(s, s.tail, tick, first, bursts, kind, row)
    s.tail += 1


@called
def put_in_order(s: Record, tick: int, first: int, bursts: int, kind: int, row: int) -> None:
    """Put a run into an inbox that has room, behind those that arrive at its tick or before."""
    place = s.tail
    while place > s.head and s.inbox[RUN_TICK, (place - 1) & (INBOX - 1)] > tick:
        for field in range(RUN_TAKEN):  # all that is known before it is taken
            s.inbox[field, place & (INBOX - 1)] = s.inbox[field, (place - 1) & (INBOX - 1)]
        place -= 1
    _fill(s, place, tick, first, bursts, kind, row)
    s.tail += 1
