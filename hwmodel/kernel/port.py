"""A host's port to channels: accesses go in, completions come out; one call runs all of it.

The port is a record of numbers and addresses of arrays, so that Python, jitted code and C call the
same function. Waiting accesses lie in arrays by tick. Each cycle stages some of them, cut into a
run of bursts for each channel (and one for each burst that a write fills in part), and lets every
channel run as far as its input is known. Which access a command serves is read from the log.

An access completes when its last burst does: at the end of its data, or one tick after it was
taken where a waiting write answers it. So no command at tick t completes before t + `lookahead`,
and after running up to `now` all completions up to `now` are known.
"""

from __future__ import annotations

from functools import cache
from typing import Any, cast

import numba
import numpy as np
from llvmlite import ir
from numba import extending, types
from numba.core import cgutils
from numba.np.arrayobj import make_array, populate_array

from hwmodel.kernel.address import HASH_ROTATE, HASH_XOR
from hwmodel.kernel.channel import advance
from hwmodel.kernel.channel_state import (
    CHANNEL,
    INBOX,
    RUN_BURSTS,
    RUN_FIRST,
    RUN_KIND,
    RUN_ROW,
    RUN_TAKEN,
    RUN_TICK,
)
from hwmodel.kernel.jit import inlined, rare, simulation
from hwmodel.kernel.kernel_names import (
    LOG_FULL,
    MWRA,
    PARTIAL_WRITE,
    RD,
    RDA,
    READ,
    WANTS_INPUT,
    WRITE,
    Record,
)
from hwmodel.kernel.timing import CONSTANTS, FOREVER, Int

LOG_LINES = 256
"""Commands of a channel between two looks at which accesses they serve."""
_AT_ONCE = 256
"""Runs that a channel's inbox is given at once, and a channel's share of those staged at once."""
TO_TICK, TO_COMPLETION, TO_END, TO_INPUT = range(4)
"""How far a call runs: to a tick; to the first completion before it; until all is served; as far as
is known before more accesses are given (`now` stays)."""
DONE, WANTS_ROOM, LOG_KEPT, _MORE = range(4)
"""Why a call returns: it is through; `accesses` or `runs` are too few; `kept` is full. After the
last two the host makes room and calls again."""

SCALARS = {
    "channels": "channels",
    "interleave": "bytes of a block that lies in one channel",
    "hash": "HASH_NONE, HASH_ROTATE or HASH_XOR",
    "burst": "bytes of a burst, a power of two",
    "burst_bits": "its binary logarithm",
    "capacity": "bytes of the memory",
    "lookahead": "ticks from a command to the end of its data, at least",
    "window": "accesses under way at most; 0: no limit",
    "now": "tick up to which the channels have run",
    "waiting": "accesses in the arrays that wait",
    "staged": "of these, those that were cut into runs",
    "untaken": "runs that no queue has taken",
    "accesses_held": "accesses staged whose data have not passed",
    "writes": "of these, writes",
    "access_rows": "rows of `accesses` and `marks`",
    "access_used": "of these, those ever used",
    "access_free": "first free row, or -1",
    "runs_held": "runs staged that no inbox holds",
    "run_rows": "rows of `runs`",
    "run_used": "of these, those ever used",
    "run_free": "first free row, or -1",
    "done": "completions written",
    "settled": "of these, those up to `now`, where a call goes step by step",
    "ordered": "1: completions are written by tick",
    "keeps": "rows of `kept`; 0: commands are not kept",
    "kept_lines": "rows of `kept` in use",
}
ARRAYS = {
    "constants": "a CONSTANTS record",
    "states": "a CHANNEL record a channel",
    "lanes": "a channel's first and last run, reads it forwarded, whether a run is half taken",
    "accesses": "rows by the A_ names",
    "marks": "two a row of `accesses`: bytes of reads that were answered",
    "runs": "rows by the R_ names",
    "log": "LOG_LINES lines: tick, command, bank, row, column, row of `accesses`",
    "kept": "lines of the log, with the channel in place of the access",
    "tick": "of waiting accesses: tick of arrival, rising",
    "address": "of waiting accesses: byte address",
    "size": "of waiting accesses: bytes",
    "write": "of waiting accesses: 0 or 1, a byte each",
    "tag": "of waiting accesses: the host's name",
    "done_tick": "of completions: tick",
    "done_tag": "of completions: the host's name",
}
PORT = np.dtype([(name, np.int64) for name in (*SCALARS, *ARRAYS)])
"""Scalars with their meaning, then addresses of arrays; all 64 bits."""
A_TAG, A_LEFT, A_END, A_SEEN, A_WRITE, A_NEXT = range(6)
"""Tag; bursts left; latest end of those served; reads answered; 1 for a write; next free row."""
ACCESS_FIELDS = 6
R_TICK, R_FIRST, R_BURSTS, R_KIND, R_ACCESS, R_NEXT = range(6)
"""A run: arrival, first burst in its channel, bursts, kind, row of its access, next run."""
RUN_FIELDS = 6
L_FIRST, L_LAST, L_FORWARDED, L_HALF = range(4)
LANE_FIELDS = 4
LINE = 6
"""Fields of a line of `log` and `kept`."""
intrinsic = cast(Any, extending.intrinsic)


@intrinsic
def _array(typingctx: Any, address: Any, shape: Any, dtype: Any) -> Any:
    """The array of `shape` that lies at an address (`numba.carray` counts references)."""
    kind = types.Array(dtype.dtype, len(shape), "C")

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = make_array(kind)(context, builder)
        number = context.get_value_type(types.intp)
        size = ir.Constant(number, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
        lengths = cgutils.unpack_tuple(builder, args[1])
        strides = [size]
        for length in lengths[:0:-1]:
            strides.insert(0, builder.mul(strides[0], length))
        data = builder.inttoptr(args[0], array.data.type)
        populate_array(array, data, lengths, strides, size, None)
        return array._getvalue()

    return kind(types.int64, shape, dtype), generate


@inlined
def _finish(p: Record, a: Int, row: int) -> None:
    """An access is complete: write its completion and free its row."""
    ticks, tags = (
        _array(p.done_tick, (p.done + 1,), np.int64),
        _array(p.done_tag, (p.done + 1,), np.int64),
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
def _put_inbox(s: Record, tick: int, first: int, bursts: int, kind: int, row: int) -> None:
    """Append a run to a channel's inbox, which has room."""
    if s.head == s.tail:
        s.head, s.tail = 0, 0  # the start of the inbox stays in the cache
    at = s.tail & (INBOX - 1)
    s.inbox[RUN_TICK, at] = tick
    s.inbox[RUN_FIRST, at] = first
    s.inbox[RUN_BURSTS, at] = bursts
    s.inbox[RUN_KIND, at] = kind
    s.inbox[RUN_ROW, at] = row
    s.tail += 1


@inlined
def _queue_run(
    p: Record, lane: Int, tick: int, first: int, bursts: int, kind: int, row: int
) -> None:
    """Append a run to those that a channel's inbox has no room for."""
    runs = _array(p.runs, (p.run_rows, RUN_FIELDS), np.int64)
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
        run = _array(p.runs, (p.run_rows, RUN_FIELDS), np.int64)[lane[L_LAST]]
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
    if lane[L_FIRST] < 0 and s.tail - s.head < _AT_ONCE:
        _put_inbox(s, tick, first, bursts, kind, row)
    else:
        _queue_run(p, lane, tick, first, bursts, kind, row)
    p.untaken += 1
    return bursts


@inlined
def _put_piece(
    p: Record, s: Record, lane: Int, tick: int, start: int, end: int, write: int, row: int
) -> int:
    """Queue what an access moves in a channel: bytes `start` to `end`; their bursts."""
    if write == 0:
        return _put_run(p, s, lane, tick, start, end, READ, row)
    bursts = 0
    while start < end:
        stop, kind = end & -p.burst, WRITE
        if start & (p.burst - 1) != 0 or stop <= start:
            stop, kind = min(end, (start & -p.burst) + p.burst), PARTIAL_WRITE
        bursts += _put_run(p, s, lane, tick, start, stop, kind, row)
        start = stop
    return bursts


@inlined
def _put_pieces(
    p: Record, states: Any, lanes: Int, tick: int, address: int, size: int, write: int, row: int
) -> int:
    """Queue an access in its channels; its bursts."""
    if p.channels == 1:
        return _put_piece(p, states[0], lanes[0], tick, address, address + size, write, row)
    bursts = 0
    end = address + size
    while address < end:
        block = address // p.interleave
        stop = min(end, (block + 1) * p.interleave)
        stripe = block // p.channels
        channel = block - stripe * p.channels
        if p.hash == HASH_ROTATE:
            channel = (channel + stripe) % p.channels
        elif p.hash == HASH_XOR:
            channel ^= stripe & (p.channels - 1)
        shift = (stripe - block) * p.interleave  # from the device's addresses to the channel's
        bursts += _put_piece(
            p, states[channel], lanes[channel], tick, address + shift, stop + shift, write, row
        )
        address = stop
    return bursts


@inlined
def _next_arrival(p: Record) -> int:
    """Tick at which the next waiting access arrives, as far as is known at `now`."""
    if p.staged == _stageable(p):
        return FOREVER
    return max(p.now, _array(p.tick, (p.waiting,), np.int64)[p.staged])


@inlined
def _stageable(p: Record) -> int:
    """Number of the waiting accesses that may be staged by `now`, those that were included."""
    if p.window == 0:
        return p.waiting  # type: ignore[no-any-return]
    under_way = p.accesses_held + p.done - p.settled
    return min(p.waiting, p.staged + max(0, p.window - under_way))


@simulation
def _stage(p: Record, states: Any, lanes: Int, marks: Int, to: int) -> int:
    """Cut waiting accesses before tick `to` into runs, a share for each channel. _MORE when there
    are more, WANTS_ROOM when tables are full, otherwise DONE."""
    a = _array(p.accesses, (p.access_rows, ACCESS_FIELDS), np.int64)
    ticks, tags = _array(p.tick, (p.waiting,), np.int64), _array(p.tag, (p.waiting,), np.int64)
    addresses = _array(p.address, (p.waiting,), np.int64)
    sizes = _array(p.size, (p.waiting,), np.int64)
    writes = _array(p.write, (p.waiting,), np.uint8)
    now, one, most = p.now, p.channels == 1, p.untaken + _AT_ONCE * p.channels
    pieces = 3  # runs at most
    for at in range(p.staged, _stageable(p)):
        tick = max(now, ticks[at])
        if tick >= to:
            return DONE
        if p.untaken >= most:
            return _MORE
        size, write = sizes[at], writes[at]
        if not one:
            pieces = min(p.channels, size // p.interleave + 2) + 2
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
        a[row, A_LEFT] = _put_pieces(p, states, lanes, tick, addresses[at], size, write, row)
        p.staged = at + 1
    return DONE


@inlined
def _fill_inbox(p: Record, s: Record, lane: Int) -> None:
    """Move runs of a channel to its inbox."""
    runs = _array(p.runs, (p.run_rows, RUN_FIELDS), np.int64)
    place = lane[L_FIRST]
    while place >= 0 and s.tail - s.head < _AT_ONCE:
        run = runs[place]
        _put_inbox(s, run[R_TICK], run[R_FIRST], run[R_BURSTS], run[R_KIND], run[R_ACCESS])
        after = run[R_NEXT]
        run[R_NEXT] = p.run_free
        p.run_free = place
        p.runs_held -= 1
        place = after
    lane[L_FIRST] = place


@inlined
def _served(p: Record, c: Record, s: Record, channel: int, log: Int, marked: int) -> None:
    """Book the bursts whose commands a channel has logged; `marked`: 1 if `marks` has them."""
    a = _array(p.accesses, (p.access_rows, ACCESS_FIELDS), np.int64)
    for i in range(s.logged):
        command = log[i, 1]
        if command >= RD and command <= MWRA:
            row = log[i, 5]
            read = command <= RDA
            if not read or a[row, A_WRITE] == 0:  # not the read before a partial write
                end = log[i, 0] + (c.data_end[0] if read else c.data_end[1])
                a[row, A_END] = max(a[row, A_END], end)
                a[row, A_SEEN] += marked
                a[row, A_LEFT] -= 1
                if a[row, A_LEFT] == 0:
                    _finish(p, a, row)
    if p.keeps > 0:
        kept = _array(p.kept, (p.keeps, LINE), np.int64)
        for i in range(s.logged):
            for field in range(LINE - 1):
                kept[p.kept_lines, field] = log[i, field]
            kept[p.kept_lines, LINE - 1] = channel
            p.kept_lines += 1
    s.logged = 0


@rare
def _forwarded(p: Record, c: Record, s: Record, marks: Int, head: int) -> None:
    """Book the bursts of reads that were taken since `head` and answered by waiting writes.

    Only runs that were taken whole are looked at: none of their bursts was taken later.
    """
    a = _array(p.accesses, (p.access_rows, ACCESS_FIELDS), np.int64)
    for taken in range(head, s.head):
        place = taken & (INBOX - 1)
        if s.inbox[RUN_KIND, place] == READ:
            row = s.inbox[RUN_ROW, place]
            answered = (marks[row, 0] + marks[row, 1]) // c.burst_bytes - a[row, A_SEEN]
            if answered > 0 and a[row, A_LEFT] > 0:
                a[row, A_END] = max(a[row, A_END], s.inbox[RUN_TAKEN, place] + 1)
                a[row, A_SEEN] += answered
                a[row, A_LEFT] -= answered
                if a[row, A_LEFT] == 0:
                    _finish(p, a, row)


@simulation
def _serve(
    p: Record, c: Record, s: Record, channel: int, lanes: Int, log: Int, marks: Int, to: int,
    ends: int,
) -> int:  # fmt: skip
    """Run a channel up to tick `to`, or as far as its input is known: `ends` is 1 when nothing else
    arrives before `to`. A channel without requests stands still until one arrives; what refreshes
    fell due meanwhile is issued then."""
    no_marks = _array(p.marks, (1, 1), np.int64)
    while s.now < to:
        if p.keeps > 0 and p.kept_lines + LOG_LINES > p.keeps:
            return LOG_KEPT
        _fill_inbox(p, s, lanes[channel])
        s.stream_closed = ends if lanes[channel, L_FIRST] < 0 else 0
        head = s.head
        marked = p.writes > 0  # otherwise no write can answer a read
        outcome = advance(c, s, to, log, marks if marked else no_marks)
        p.untaken -= s.head - head
        _served(p, c, s, channel, log, 1 if marked else 0)
        if s.forwarded != lanes[channel, L_FORWARDED] or lanes[channel, L_HALF] == 1:
            _forwarded(p, c, s, marks, head)
            lanes[channel, L_HALF] = s.offset > 0
            lanes[channel, L_FORWARDED] = s.forwarded
        more = outcome == WANTS_INPUT and lanes[channel, L_FIRST] >= 0
        if outcome != LOG_FULL and not more:
            break
    return DONE


@inlined
def _run_to(p: Record, to: int, ends: int) -> int:
    """Stage what arrives before tick `to` and run all channels up to it; `ends` as in `_serve`."""
    constants = _array(p.constants, (1,), CONSTANTS)
    states = _array(p.states, (p.channels,), CHANNEL)
    lanes = _array(p.lanes, (p.channels, LANE_FIELDS), np.int64)
    marks = _array(p.marks, (p.access_rows, 2), np.int64)
    log = _array(p.log, (LOG_LINES, LINE), np.int64)
    more = _MORE
    while more == _MORE:
        more = _stage(p, states, lanes, marks, to)
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
    arrival = _next_arrival(p)
    if p.accesses_held > 0:
        to = min(to, p.now + p.lookahead)
    if p.settled < p.done:
        to = min(to, _array(p.done_tick, (p.done,), np.int64)[p.settled])
    if c.forwarding == 1:  # may complete a read one tick after it is taken
        if p.untaken > 0 and p.writes > 0:
            return p.now + 1
        return min(to, arrival + 1)
    return min(to, max(arrival, p.now) + p.lookahead)


@simulation
def run(p: Record, to: int, how: int) -> int:
    """Run a port up to tick `to`, `how` TO_TICK, TO_COMPLETION or TO_END; DONE, WANTS_ROOM or
    LOG_KEPT. After TO_COMPLETION, `now` is the tick of the completion, if there was one."""
    c = _array(p.constants, (1,), CONSTANTS)[0]
    stepwise = p.window > 0 or how == TO_COMPLETION
    p.ordered = 1 if stepwise or p.channels == 1 else 0
    while True:
        if stepwise:
            before = p.settled
            while (
                p.settled < p.done and _array(p.done_tick, (p.done,), np.int64)[p.settled] <= p.now
            ):
                p.settled += 1
            if how == TO_COMPLETION and p.settled > before:
                return DONE
        idle = how == TO_END and p.accesses_held == 0 and p.staged == p.waiting
        if p.now >= to or idle:
            return DONE
        until = _step(p, c, to) if stepwise else to
        why = _run_to(p, until, 0 if how == TO_INPUT else 1)
        if why != DONE or how == TO_INPUT:
            return why
        p.now = until


@cache
def entry() -> Any:
    """`run` as C calls it: int64_t run(port *, int64_t to, int64_t how). Compiled when first asked
    for (seconds; kept on disk). `address`, `ctypes` and jitted callers: docs/channel-api.md."""
    number = types.int64
    signature = number(number, number, number)

    def bankwise_run(port: int, to: int, how: int) -> int:
        return run(_array(port, (1,), PORT)[0], to, how)

    return numba.cfunc(signature, cache=True, error_model="numpy", _nrt=False)(bankwise_run)
