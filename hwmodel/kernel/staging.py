"""Kernel: accesses that wait at a host's port are cut into runs of bursts for the channels.

A run goes to its channel's inbox while that has room, and behind others of its channel until then,
so that a channel with much to do holds no other back.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hwmodel.kernel.address import channel_of
from hwmodel.kernel.channel_state import INBOX, RUN_BURSTS, RUN_KIND, RUN_ROW
from hwmodel.kernel.inbox import put
from hwmodel.kernel.inline_ecc import UNASKED, access_to_checks
from hwmodel.kernel.jit import called, inlined, simulation
from hwmodel.kernel.kernel_names import PARTIAL_WRITE, READ, WRITE, Record
from hwmodel.kernel.limits import FOREVER, Int
from hwmodel.kernel.port import (
    A_END,
    A_LEFT,
    A_NEXT,
    A_SEEN,
    A_TAG,
    A_WRITE,
    ACCESS_FIELDS,
    AT_ONCE,
    CHECK_READS,
    CHECK_WRITES,
    DONE,
    L_FIRST,
    L_LAST,
    MORE,
    R_ACCESS,
    R_BURSTS,
    R_FIRST,
    R_KIND,
    R_NEXT,
    R_TICK,
    RUN_FIELDS,
    WANTS_ROOM,
    array_at,
)  # fmt: skip


@inlined
def _queue_run(
    p: Record, lane: Int, tick: int, first: int, bursts: int, kind: int, row: int
) -> None:
    """Append a run to those that a channel's inbox has no room for."""
    runs = array_at(p.runs, (p.run_rows, RUN_FIELDS), np.int64)
    place = p.run_free
    if place >= 0:
        p.run_free = runs[place, R_NEXT]
    else:
        place = p.run_used
        p.run_used += 1
    run = runs[place]
    run[R_TICK], run[R_FIRST], run[R_BURSTS] = tick, first, bursts
    run[R_KIND], run[R_ACCESS], run[R_NEXT] = kind, row, -1
    if lane[L_FIRST] < 0:
        lane[L_FIRST] = place
    else:
        runs[lane[L_LAST], R_NEXT] = place
    lane[L_LAST] = place
    p.runs_held += 1


@inlined
def _extended(p: Record, s: Record, lane: Int, bursts: int, kind: int, row: int) -> bool:
    """Add bursts to the last run of a channel if it is of the same access: they are the next
    stripe's."""
    if kind == PARTIAL_WRITE:
        return False
    if lane[L_FIRST] >= 0:
        run = array_at(p.runs, (p.run_rows, RUN_FIELDS), np.int64)[lane[L_LAST]]
        if run[R_ACCESS] == row and run[R_KIND] == kind:
            run[R_BURSTS] += bursts
            return True
        return False
    at = (s.tail - 1) & (INBOX - 1)
    if s.head != s.tail and s.inbox[RUN_ROW, at] == row and s.inbox[RUN_KIND, at] == kind:
        s.inbox[RUN_BURSTS, at] += bursts
        return True
    return False


@inlined
def _put_run(
    p: Record, s: Record, lane: Int, tick: int, start: int, end: int, kind: int, row: int
) -> int:
    """Queue the bytes `start` to `end` of a channel behind its other runs; their bursts."""
    first = start >> p.burst_bits
    bursts = ((end - 1) >> p.burst_bits) - first + 1
    if p.channels > 1 and _extended(p, s, lane, bursts, kind, row):
        return bursts
    if lane[L_FIRST] < 0 and s.tail - s.head < AT_ONCE:
        put(s, tick, first, bursts, kind, row)
    else:
        _queue_run(p, lane, tick, first, bursts, kind, row)
    p.untaken += 1
    return bursts


@called
def _put_checked(
    c: Record, p: Record, s: Record, lane: Int, tick: int, start: int, end: int, kind: int, row: int
) -> int:
    """As `_put_run`, the access to its checks before what each burst of them protects. No access of
    the host ends with these: they are of two rows of their own."""
    held = array_at(p.accesses, (p.access_rows, ACCESS_FIELDS), np.int64)
    first, last = start >> p.burst_bits, (end - 1) >> p.burst_bits
    bursts = 0
    for check in range(first // c.protects, last // c.protects + 1):
        asked = access_to_checks(c, s, check, first, last, kind)
        if asked != UNASKED:
            checks = CHECK_READS if asked == READ else CHECK_WRITES
            place = (c.first_check + check) << p.burst_bits
            held[checks, A_LEFT] += _put_run(p, s, lane, tick, place, place + 1, asked, checks)
            if asked != READ:
                p.writes += 1
        group = (check * c.protects) << p.burst_bits
        stop = min(end, group + (c.protects << p.burst_bits))
        bursts += _put_run(p, s, lane, tick, max(start, group), stop, kind, row)
    return bursts


@inlined
def _put_with_checks(
    c: Record, p: Record, s: Record, lane: Int, tick: int, start: int, end: int, kind: int, row: int
) -> int:
    """Queue the bytes `start` to `end` of a channel, and what in-line ECC adds; their bursts."""
    if c.protects > 0:
        return _put_checked(c, p, s, lane, tick, start, end, kind, row)
    return _put_run(p, s, lane, tick, start, end, kind, row)


@inlined
def _put_piece(
    c: Record, p: Record, s: Record, lane: Int, tick: int, start: int, end: int, write: int,
    row: int,
) -> int:  # fmt: skip
    """Queue what an access moves in a channel: bytes `start` to `end`; their bursts."""
    if write == 0:
        return _put_with_checks(c, p, s, lane, tick, start, end, READ, row)
    bursts = 0
    while start < end:
        stop, kind = end & -p.burst, WRITE
        if start & (p.burst - 1) != 0 or stop <= start:
            stop, kind = min(end, (start & -p.burst) + p.burst), PARTIAL_WRITE
        bursts += _put_with_checks(c, p, s, lane, tick, start, stop, kind, row)
        start = stop
    return bursts


@inlined
def _put_pieces(
    c: Record, p: Record, states: Any, lanes: Int, tick: int, address: int, size: int, write: int,
    row: int,
) -> int:  # fmt: skip
    """Queue an access in its channels; its bursts."""
    if p.channels == 1:
        return _put_piece(c, p, states[0], lanes[0], tick, address, address + size, write, row)
    bursts = 0
    end = address + size
    while address < end:
        block = address // p.interleave
        stop = min(end, (block + 1) * p.interleave)
        channel, stripe = channel_of(block, p.channels, p.hash)
        shift = (stripe - block) * p.interleave  # from the device's addresses to the channel's
        bursts += _put_piece(
            c, p, states[channel], lanes[channel], tick, address + shift, stop + shift, write, row
        )
        address = stop
    return bursts


@inlined
def next_arrival(p: Record) -> int:
    """Tick at which the next waiting access arrives, as far as is known at `now`."""
    if p.staged == _stageable(p):
        return FOREVER
    return max(p.now, array_at(p.tick, (p.waiting,), np.int64)[p.staged])


@inlined
def _stageable(p: Record) -> int:
    """Number of the waiting accesses that may be staged by `now`, those that were included."""
    if p.window == 0:
        return p.waiting
    under_way = p.accesses_held + p.done - p.settled
    return min(p.waiting, p.staged + max(0, p.window - under_way))


@simulation
def stage(c: Record, p: Record, states: Any, lanes: Int, marks: Int, to: int) -> int:
    """Cut waiting accesses before tick `to` into runs, a share for each channel. MORE when there
    are more, WANTS_ROOM when tables are full, otherwise DONE."""
    a = array_at(p.accesses, (p.access_rows, ACCESS_FIELDS), np.int64)
    ticks, tags = array_at(p.tick, (p.waiting,), np.int64), array_at(p.tag, (p.waiting,), np.int64)
    addresses = array_at(p.address, (p.waiting,), np.int64)
    sizes = array_at(p.size, (p.waiting,), np.int64)
    writes = array_at(p.write, (p.waiting,), np.uint8)
    now, one, most = p.now, p.channels == 1, p.untaken + AT_ONCE * p.channels
    for at in range(p.staged, _stageable(p)):
        tick = max(now, ticks[at])
        if tick >= to:
            return DONE
        if p.untaken >= most:
            return MORE
        size, write, pieces = sizes[at], writes[at], 3  # runs at most
        if not one:
            pieces = min(p.channels, size // p.interleave + 2) + 2
        if c.protects > 0:
            pieces = 4 * pieces + 2 * (size // (p.burst * c.protects))
        if p.accesses_held == p.access_rows or p.runs_held + pieces > p.run_rows:
            return WANTS_ROOM
        row = p.access_free
        if row >= 0:
            p.access_free = a[row, A_NEXT]
        else:
            row = p.access_used
            p.access_used += 1
        a[row, A_TAG], a[row, A_WRITE], a[row, A_END], a[row, A_SEEN] = tags[at], write, 0, 0
        marks[row, 0], marks[row, 1] = 0, 0
        p.accesses_held += 1
        p.writes += write
        a[row, A_LEFT] = _put_pieces(c, p, states, lanes, tick, addresses[at], size, write, row)
        p.staged = at + 1
    return DONE


@inlined
def fill_inbox(p: Record, s: Record, lane: Int) -> None:
    """Move runs of a channel to its inbox."""
    runs = array_at(p.runs, (p.run_rows, RUN_FIELDS), np.int64)
    place = lane[L_FIRST]
    while place >= 0 and s.tail - s.head < AT_ONCE:
        run = runs[place]
        put(s, run[R_TICK], run[R_FIRST], run[R_BURSTS], run[R_KIND], run[R_ACCESS])
        after = run[R_NEXT]
        run[R_NEXT] = p.run_free
        p.run_free = place
        p.runs_held -= 1
        place = after
    lane[L_FIRST] = place
