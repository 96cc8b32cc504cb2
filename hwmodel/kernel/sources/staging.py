"""Kernel: accesses that wait at a host's port are cut into runs of bursts for the channels.

A run goes to its channel's inbox while that has room, and behind others of its channel until then,
so that a channel with much to do holds no other back.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hwmodel.kernel.address import channel_of
from hwmodel.kernel.channel_state import CHANNEL, INBOX, RUN_BURSTS, RUN_KIND, RUN_ROW
from hwmodel.kernel.host import DONE, MORE, WANTS_ROOM, array_at
from hwmodel.kernel.inbox import put
from hwmodel.kernel.inline_ecc import UNASKED, access_to_checks
from hwmodel.kernel.jit import called, inlined
from hwmodel.kernel.kernel_names import PARTIAL_WRITE, READ, WRITE, Record
from hwmodel.kernel.limits import FOREVER, Int
from hwmodel.kernel.sources.port import (
    A_END,
    A_LEFT,
    A_NEXT,
    A_SEEN,
    A_TAG,
    A_WRITE,
    ACCESS_FIELDS,
    AT_ONCE,
    B_FIRST,
    B_LAST,
    BACKLOG_FIELDS,
    CHECK_READS,
    CHECK_WRITES,
    R_ACCESS,
    R_BURSTS,
    R_FIRST,
    R_KIND,
    R_NEXT,
    R_TICK,
    RUN_FIELDS,
)  # fmt: skip


@inlined
def _queue_run(
    port: Record, behind: Int, tick: int, first: int, bursts: int, kind: int, row: int
) -> None:
    """Append a run to those that a channel's inbox has no room for."""
    runs = array_at(port.runs, (port.run_rows, RUN_FIELDS), np.int64)
    place = port.run_free
    if place >= 0:
        port.run_free = runs[place, R_NEXT]
    else:
        place = port.run_used
        port.run_used += 1
    run = runs[place]
    run[R_TICK], run[R_FIRST], run[R_BURSTS] = tick, first, bursts
    run[R_KIND], run[R_ACCESS], run[R_NEXT] = kind, row, -1
    if behind[B_FIRST] < 0:
        behind[B_FIRST] = place
    else:
        runs[behind[B_LAST], R_NEXT] = place
    behind[B_LAST] = place
    port.runs_held += 1


@inlined
def _extended(port: Record, state: Record, behind: Int, bursts: int, kind: int, row: int) -> bool:
    """Add bursts to the last run of a channel if it is of the same access: they are the next
    stripe's."""
    if kind == PARTIAL_WRITE:
        return False
    if behind[B_FIRST] >= 0:
        run = array_at(port.runs, (port.run_rows, RUN_FIELDS), np.int64)[behind[B_LAST]]
        if run[R_ACCESS] == row and run[R_KIND] == kind:
            run[R_BURSTS] += bursts
            return True
        return False
    at = (state.tail - 1) & (INBOX - 1)
    if (
        state.head != state.tail
        and state.inbox[RUN_ROW, at] == row
        and state.inbox[RUN_KIND, at] == kind
    ):
        state.inbox[RUN_BURSTS, at] += bursts
        return True
    return False


@inlined
def _put_run(
    port: Record, state: Record, behind: Int, tick: int, start: int, end: int, kind: int, row: int
) -> int:
    """Queue the bytes `start` to `end` of a channel behind its other runs; their bursts."""
    first = start >> port.burst_bits
    bursts = ((end - 1) >> port.burst_bits) - first + 1
    if port.channels > 1 and _extended(port, state, behind, bursts, kind, row):
        return bursts
    if behind[B_FIRST] < 0 and state.tail - state.head < AT_ONCE:
        put(state, tick, first, bursts, kind, row)
    else:
        _queue_run(port, behind, tick, first, bursts, kind, row)
    port.untaken += 1
    return bursts


@called
def _put_checked(
    memory: Record,
    port: Record,
    state: Record,
    behind: Int,
    tick: int,
    start: int,
    end: int,
    kind: int,
    row: int,
) -> int:
    """As `_put_run`, the access to its checks before what each burst of them protects. No access of
    the host ends with these: they are of two rows of their own."""
    held = array_at(port.accesses, (port.access_rows, ACCESS_FIELDS), np.int64)
    first, last = start >> port.burst_bits, (end - 1) >> port.burst_bits
    bursts = 0
    for check in range(first // memory.protects, last // memory.protects + 1):
        asked = access_to_checks(memory, state, check, first, last, kind)
        if asked != UNASKED:
            checks = CHECK_READS if asked == READ else CHECK_WRITES
            place = (memory.first_check + check) << port.burst_bits
            held[checks, A_LEFT] += _put_run(
                port, state, behind, tick, place, place + 1, asked, checks
            )
            if asked != READ:
                port.writes += 1
        group = (check * memory.protects) << port.burst_bits
        stop = min(end, group + (memory.protects << port.burst_bits))
        bursts += _put_run(port, state, behind, tick, max(start, group), stop, kind, row)
    return bursts


@inlined
def _put_with_checks(
    memory: Record,
    port: Record,
    state: Record,
    behind: Int,
    tick: int,
    start: int,
    end: int,
    kind: int,
    row: int,
) -> int:
    """Queue the bytes `start` to `end` of a channel, and what in-line ECC adds; their bursts."""
    if memory.protects > 0:
        return _put_checked(memory, port, state, behind, tick, start, end, kind, row)
    return _put_run(port, state, behind, tick, start, end, kind, row)


@inlined
def _put_piece(
    memory: Record, port: Record, state: Record, behind: Int, tick: int, start: int, end: int,
    write: int, row: int,
) -> int:  # fmt: skip
    """Queue what an access moves in a channel: bytes `start` to `end`; their bursts."""
    if write == 0:
        return _put_with_checks(memory, port, state, behind, tick, start, end, READ, row)
    bursts = 0
    while start < end:
        stop, kind = end & -port.burst, WRITE
        if start & (port.burst - 1) != 0 or stop <= start:
            stop, kind = min(end, (start & -port.burst) + port.burst), PARTIAL_WRITE
        bursts += _put_with_checks(memory, port, state, behind, tick, start, stop, kind, row)
        start = stop
    return bursts


@inlined
def _put_pieces(
    memory: Record, port: Record, states: Any, backlog: Int, tick: int, address: int, size: int,
    write: int, row: int,
) -> int:  # fmt: skip
    """Queue an access in its channels; its bursts."""
    if port.channels == 1:
        return _put_piece(
            memory, port, states[0], backlog[0], tick, address, address + size, write, row
        )
    bursts = 0
    end = address + size
    while address < end:
        block = address // port.interleave
        stop = min(end, (block + 1) * port.interleave)
        channel, stripe = channel_of(block, port.channels, port.hash)
        shift = (stripe - block) * port.interleave  # from the device's addresses to the channel's
        bursts += _put_piece(
            memory,
            port,
            states[channel],
            backlog[channel],
            tick,
            address + shift,
            stop + shift,
            write,
            row,
        )
        address = stop
    return bursts


@inlined
def next_arrival(port: Record) -> int:
    """Tick at which the next waiting access arrives, as far as is known at `now`."""
    if port.staged == _stageable(port):
        return FOREVER
    return max(port.now, array_at(port.tick, (port.waiting,), np.int64)[port.staged])


@inlined
def _stageable(port: Record) -> int:
    """Number of the waiting accesses that may be staged by `now`, those that were included."""
    if port.window == 0:
        return port.waiting
    under_way = port.accesses_held + port.done - port.settled
    return min(port.waiting, port.staged + max(0, port.window - under_way))


@called
def stage(memory: Record, port: Record, to: int) -> int:
    """Cut waiting accesses before tick `to` into runs, a share for each channel. MORE when there
    are more, WANTS_ROOM when tables are full, otherwise DONE."""
    states = array_at(port.states, (port.channels,), CHANNEL)
    backlog = array_at(port.backlog, (port.channels, BACKLOG_FIELDS), np.int64)
    answered = array_at(port.completions, (port.access_rows, 2), np.int64)
    accesses = array_at(port.accesses, (port.access_rows, ACCESS_FIELDS), np.int64)
    ticks, tags = (
        array_at(port.tick, (port.waiting,), np.int64),
        array_at(port.tag, (port.waiting,), np.int64),
    )
    addresses = array_at(port.address, (port.waiting,), np.int64)
    sizes = array_at(port.size, (port.waiting,), np.int64)
    writes = array_at(port.write, (port.waiting,), np.uint8)
    now, one, most = port.now, port.channels == 1, port.untaken + AT_ONCE * port.channels
    for at in range(port.staged, _stageable(port)):
        tick = max(now, ticks[at])
        if tick >= to:
            return DONE
        if port.untaken >= most:
            return MORE
        size, write, pieces = sizes[at], writes[at], 3  # runs at most
        if not one:
            pieces = min(port.channels, size // port.interleave + 2) + 2
        if memory.protects > 0:
            pieces = 4 * pieces + 2 * (size // (port.burst * memory.protects))
        if port.accesses_held == port.access_rows or port.runs_held + pieces > port.run_rows:
            return WANTS_ROOM
        row = port.access_free
        if row >= 0:
            port.access_free = accesses[row, A_NEXT]
        else:
            row = port.access_used
            port.access_used += 1
        (
            accesses[row, A_TAG],
            accesses[row, A_WRITE],
            accesses[row, A_END],
            accesses[row, A_SEEN],
        ) = tags[at], write, 0, 0
        answered[row, 0], answered[row, 1] = 0, 0
        port.accesses_held += 1
        port.writes += write
        accesses[row, A_LEFT] = _put_pieces(
            memory, port, states, backlog, tick, addresses[at], size, write, row
        )
        port.staged = at + 1
    return DONE


@inlined
def fill_inbox(port: Record, state: Record, behind: Int) -> None:
    """Move runs of a channel to its inbox."""
    runs = array_at(port.runs, (port.run_rows, RUN_FIELDS), np.int64)
    place = behind[B_FIRST]
    while place >= 0 and state.tail - state.head < AT_ONCE:
        run = runs[place]
        put(state, run[R_TICK], run[R_FIRST], run[R_BURSTS], run[R_KIND], run[R_ACCESS])
        after = run[R_NEXT]
        run[R_NEXT] = port.run_free
        port.run_free = place
        port.runs_held -= 1
        place = after
    behind[B_FIRST] = place
