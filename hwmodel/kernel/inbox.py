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
def _fill(
    state: Record, place: int, tick: int, first: int, bursts: int, kind: int, row: int
) -> None:
    at = place & (INBOX - 1)
    state.inbox[RUN_TICK, at] = tick
    state.inbox[RUN_FIRST, at] = first
    state.inbox[RUN_BURSTS, at] = bursts
    state.inbox[RUN_KIND, at] = kind
    state.inbox[RUN_ROW, at] = row


@inlined
def put(state: Record, tick: int, first: int, bursts: int, kind: int, row: int) -> None:
    """Append a run to an inbox that has room; `row` of completions."""
    if state.head == state.tail:
        state.head, state.tail = 0, 0  # the start of the inbox stays in the cache
    _fill(state, state.tail, tick, first, bursts, kind, row)
    state.tail += 1


@called
def put_in_order(state: Record, tick: int, first: int, bursts: int, kind: int, row: int) -> None:
    """Put a run into an inbox that has room, behind those that arrive at its tick or before."""
    place = state.tail
    while place > state.head and state.inbox[RUN_TICK, (place - 1) & (INBOX - 1)] > tick:
        for field in range(RUN_TAKEN):  # all that is known before it is taken
            state.inbox[field, place & (INBOX - 1)] = state.inbox[field, (place - 1) & (INBOX - 1)]
        place -= 1
    _fill(state, place, tick, first, bursts, kind, row)
    state.tail += 1
