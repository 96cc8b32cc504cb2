"""Kernel: a host's port runs its channels, and learns which accesses are complete.

Each cycle stages some of the accesses that wait, and lets every channel run as far as its input is
known. Which access a command serves is read from the log of commands.

An access completes when its last burst does: at the end of its data, or one tick after it was taken
where a waiting write answers it. So no command at tick t completes before t + `lookahead`, and
after running up to `now` all completions up to `now` are known.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numba
import numpy as np
from numba import types

from hwmodel.kernel.channel import advance
from hwmodel.kernel.channel_state import CHANNEL, INBOX, RUN_KIND, RUN_ROW, RUN_TAKEN
from hwmodel.kernel.jit import KEPT, called, inlined, simulation
from hwmodel.kernel.kernel_names import LOG_FULL, MWRA, RD, RDA, READ, WANTS_INPUT, Record
from hwmodel.kernel.limits import Int
from hwmodel.kernel.port import (
    A_END,
    A_LEFT,
    A_NEXT,
    A_SEEN,
    A_TAG,
    A_WRITE,
    ACCESS_FIELDS,
    CHECK_READS,
    CHECK_WRITES,
    DONE,
    L_FIRST,
    L_FORWARDED,
    L_HALF,
    LANE_FIELDS,
    LINE,
    LOG_KEPT,
    LOG_LINES,
    MORE,
    PORT,
    SERVED_LINE,
    TO_COMPLETION,
    TO_END,
    TO_INPUT,
    WANTS_ROOM,
    array_at,
)  # fmt: skip
from hwmodel.kernel.staging import fill_inbox, next_arrival, stage
from hwmodel.kernel.timing import CONSTANTS

_cfunc: Any = numba.cfunc


@inlined
def _finish(p: Record, a: Int, row: int) -> None:
    """An access is complete: write its completion and free its row."""
    ticks, tags = (
        array_at(p.done_tick, (p.done + 1,), np.int64),
        array_at(p.done_tag, (p.done + 1,), np.int64),
    )
    place = p.done
    while p.ordered == 1 and place > 0 and ticks[place - 1] > a[row, A_END]:
        ticks[place], tags[place] = ticks[place - 1], tags[place - 1]
        place -= 1
    ticks[place], tags[place] = a[row, A_END], a[row, A_TAG]
    p.done += 1
    p.accesses_held -= 1
    p.writes -= a[row, A_WRITE]
    a[row, A_NEXT] = p.access_free
    p.access_free = row


@inlined
def _served(p: Record, c: Record, s: Record, channel: int, log: Int, marked: int) -> None:
    """Book the bursts whose commands a channel has logged; `marked`: 1 if `marks` has them."""
    a = array_at(p.accesses, (p.access_rows, ACCESS_FIELDS), np.int64)
    last = log.shape[1] - 1
    for i in range(s.logged):
        command = log[i, 1]
        if command >= RD and command <= MWRA:
            row = log[i, last]
            read = command <= RDA
            if not read or a[row, A_WRITE] == 0:  # not the read before a partial write
                end = log[i, 0] + (c.data_end[0] if read else c.data_end[1])
                a[row, A_END] = max(a[row, A_END], end)
                a[row, A_SEEN] += marked
                a[row, A_LEFT] -= 1
                if c.protects > 0 and row == CHECK_WRITES:
                    p.writes -= 1
                if a[row, A_LEFT] == 0:
                    _finish(p, a, row)
    if p.keeps > 0:
        kept = array_at(p.kept, (p.keeps, LINE), np.int64)
        for i in range(s.logged):
            for field in range(LINE - 1):
                kept[p.kept_lines, field] = log[i, field]
            kept[p.kept_lines, LINE - 1] = channel
            p.kept_lines += 1
    s.logged = 0


@called
def _forwarded(p: Record, s: Record, marks: Int, head: int) -> None:
    """Book the bursts of reads that were taken since `head` and answered by waiting writes.

    Only runs that were taken whole are looked at: none of their bursts was taken later.
    """
    a = array_at(p.accesses, (p.access_rows, ACCESS_FIELDS), np.int64)
    for taken in range(head, s.head):
        place = taken & (INBOX - 1)
        if s.inbox[RUN_KIND, place] == READ:
            row = s.inbox[RUN_ROW, place]
            answered = ((marks[row, 0] + marks[row, 1]) >> p.burst_bits) - a[row, A_SEEN]
            if answered > 0 and a[row, A_LEFT] > 0:
                a[row, A_END] = max(a[row, A_END], s.inbox[RUN_TAKEN, place] + 1)
                a[row, A_SEEN] += answered
                a[row, A_LEFT] -= answered
                if a[row, A_LEFT] == 0:
                    _finish(p, a, row)


@called
def _serve(
    p: Record, c: Record, s: Record, channel: int, lanes: Int, log: Int, marks: Int, to: int,
    ends: int,
) -> int:  # fmt: skip
    """Run a channel up to tick `to`, or as far as its input is known: `ends` is 1 when nothing else
    arrives before `to`. A channel without requests stands still until one arrives; what refreshes
    fell due meanwhile is issued then."""
    no_marks = array_at(p.marks, (1, 1), np.int64)
    while s.now < to:
        if p.keeps > 0 and p.kept_lines + LOG_LINES > p.keeps:
            return LOG_KEPT
        fill_inbox(p, s, lanes[channel])
        s.stream_closed = ends if lanes[channel, L_FIRST] < 0 else 0
        head = s.head
        marked = p.writes > 0 and c.forwarding == 1  # otherwise no write answers a read
        outcome = advance(c, s, to, log, marks if marked else no_marks)
        p.untaken -= s.head - head
        _served(p, c, s, channel, log, 1 if marked else 0)
        if s.forwarded != lanes[channel, L_FORWARDED] or lanes[channel, L_HALF] == 1:
            _forwarded(p, s, marks, head)
            lanes[channel, L_HALF] = s.offset > 0
            lanes[channel, L_FORWARDED] = s.forwarded
        more = outcome == WANTS_INPUT and lanes[channel, L_FIRST] >= 0
        if outcome != LOG_FULL and not more:
            break
    return DONE


@inlined
def _run_to(p: Record, constants: Any, to: int, ends: int) -> int:
    """Stage what arrives before tick `to` and run all channels up to it; `ends` as in `_serve`."""
    states = array_at(p.states, (p.channels,), CHANNEL)
    lanes = array_at(p.lanes, (p.channels, LANE_FIELDS), np.int64)
    marks = array_at(p.marks, (p.access_rows, 2), np.int64)
    log = array_at(p.log, (LOG_LINES, LINE if p.keeps > 0 else SERVED_LINE), np.int64)
    more = MORE
    while more == MORE:
        more = stage(constants[0], p, states, lanes, marks, to)
        if more == WANTS_ROOM:
            return WANTS_ROOM
        for channel in range(p.channels):
            why = _serve(
                p, constants[0], states[channel], channel, lanes, log, marks, to,
                ends if more == DONE else 0,
            )  # fmt: skip
            if why != DONE:
                return why
    return DONE


@inlined
def _step(p: Record, c: Record, to: int) -> int:
    """Tick to which channels may run so that no completion is passed, at most `to`."""
    arrival = next_arrival(p)
    if p.accesses_held > 0:
        to = min(to, p.now + p.lookahead)
    if p.settled < p.done:
        to = min(to, array_at(p.done_tick, (p.done,), np.int64)[p.settled])
    if c.forwarding == 1:  # may complete a read one tick after it is taken
        if p.untaken > 0 and p.writes > 0:
            return p.now + 1
        return min(to, arrival + 1)
    return min(to, max(arrival, p.now) + p.lookahead)


@inlined
def nothing_under_way(c: Record, p: Record) -> bool:
    """Whether every access that was staged is complete, those to checks included."""
    if c.protects > 0:
        a = array_at(p.accesses, (p.access_rows, ACCESS_FIELDS), np.int64)
        if a[CHECK_READS, A_LEFT] > 1 or a[CHECK_WRITES, A_LEFT] > 1:
            return False
    return bool(p.accesses_held == 0)


@simulation
def run_as(p: Record, constants: Any, to: int, how: int) -> int:
    """As `run`, with the port's CONSTANTS, shape (1,), of any type."""
    c = constants[0]
    stepwise = p.window > 0 or how == TO_COMPLETION
    p.ordered = 1 if stepwise or p.channels == 1 else 0
    while True:
        if stepwise:
            before = p.settled
            while (
                p.settled < p.done
                and array_at(p.done_tick, (p.done,), np.int64)[p.settled] <= p.now
            ):
                p.settled += 1
            if how == TO_COMPLETION and p.settled > before:
                return DONE
        idle = how == TO_END and nothing_under_way(c, p) and p.staged == p.waiting
        if p.now >= to or idle:
            return DONE
        until = _step(p, c, to) if stepwise else to
        why = _run_to(p, constants, until, 0 if how == TO_INPUT else 1)
        if why != DONE or how == TO_INPUT:
            return why
        p.now = until


@simulation
def run(p: Record, to: int, how: int) -> int:
    """Run a port up to tick `to`, `how` TO_TICK, TO_COMPLETION or TO_END; DONE, WANTS_ROOM or
    LOG_KEPT. After TO_COMPLETION, `now` is the tick of the completion, if there was one."""
    return run_as(p, array_at(p.constants, (1,), CONSTANTS), to, how)


@cache
def entry(kind: np.dtype[np.void] = CONSTANTS) -> Any:
    """`run` as C calls it: int64_t run(port *, int64_t to, int64_t how), for CONSTANTS of a type.
    Compiled when first asked for (seconds; kept on disk). `address`, `ctypes` and jitted callers:
    docs/channel-api.md."""
    number = types.int64
    signature = number(number, number, number)

    def bankwise_run(port: int, to: int, how: int) -> int:
        p = array_at(port, (1,), PORT)[0]
        return run_as(p, array_at(p.constants, (1,), kind), to, how)

    return _cfunc(signature, cache=KEPT, error_model="numpy", _nrt=False)(bankwise_run)
