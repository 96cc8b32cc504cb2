"""DMA engines with finite windows in front of the channels of a device.

An engine walks its extents in order and waits before each as long as that says (`wait`). It cuts
each into requests of at most `request` bytes that do not cross an interleave block (bursts that a
write does not fill go by themselves), issues at most a byte in `byte_time`, and stops while its
bytes in flight fill `window`. A request reaches its channel `lead` ticks later; a read is complete
so many ticks after its last data beat as the channel's `response` says, a (posted) write after it
has entered the write queue.

Engine e of E is on die e * dies // E, and channels likewise. A request to a channel of another die
takes `crossing_latency` longer each way, and the data that come into a die (read by its engines,
written to its channels) pass one after the other. Where there is an `inbox`, an engine stalls while
so many requests to the channel of its next one are under way or wait there; it knows of one that
the queues took a response latency later. Where there is a `request_interval`, requests reach a
channel no faster than one in that time, in the order in which they were issued.

Engines and channels alternate in rounds of request + response latency: nothing that happens in one
round can be felt on the other side before the next (conservative lookahead), so each side runs on
its own and the result is that of one global event queue, with ties at a channel broken by engine
number. Engines that share crossings, inboxes or endpoints go through a round together, tick by
tick; crossings only add latency, so that rounds stay as long.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hwmodel.kernel.address import channel_of
from hwmodel.kernel.channel_state import CHANNEL, INBOX, RUN_TAKEN
from hwmodel.kernel.driver import AccessSource, driver
from hwmodel.kernel.host import DONE, MORE, array_at, host_type
from hwmodel.kernel.inbox import put_in_order
from hwmodel.kernel.inline_ecc import UNASKED, access_to_checks
from hwmodel.kernel.jit import c_function, called, inlined
from hwmodel.kernel.kernel_names import DRAINED, PARTIAL_WRITE, READ, WRITE, Record
from hwmodel.kernel.limits import Int
from hwmodel.kernel.timing import CONSTANTS

FRACTION = 1 << 10
"""Engine times are kept in 1/1024 ticks, so that port rates need no rounding to ticks."""

_ENGINE_SCALARS = {
    "cursor": "index of the extent being issued",
    "end": "index of the engine's last extent + 1",
    "offset": "bytes of the extent that were issued",
    "in_flight": "bytes issued and not complete",
    "ready": "1/FRACTION ticks at which the next request may go",
    "collected": "tick up to which completions were collected",
    "started": "1: the wait before the extent is over",
}
ENGINE = np.dtype([(name, np.int64) for name in _ENGINE_SCALARS])
SYSTEM = host_type(
    {
        "interleave": "bytes of a block",
        "hash": "HASH_NONE, HASH_ROTATE or HASH_XOR",
        "request": "bytes of a request at most",
        "window": "bytes in flight of an engine at most",
        "byte_time": "1/FRACTION ticks a byte of an engine's port",
        "burst": "bytes of a burst",
        "engines": "DMA engines of the device",
        "extents": "extents that they move",
        "dies": "dies, which have equally many engines and channels",
        "crossing_latency": "ticks from a die to another",
        "crossing_byte_time": "1/FRACTION ticks a byte into a die",
        "inbox": "requests to a channel at most; 0: no limit",
        "request_interval": "1/FRACTION ticks between requests that reach a channel; 0: any",
        "issued": "bursts of data put into inboxes, where there are checks",
        "busy": "1: an engine or a channel has more to do",
        "warm": "tick at which the measured window begins",
        "warm_bytes": "bytes moved before that; -1 until then",
        "round": "ticks that engines and channels run apart",
    },
    {
        "engine": "an ENGINE record an engine",
        "start": "device byte address of each extent",
        "size": "bytes of each",
        "write": "READ or WRITE of each",
        "wait": "1/FRACTION ticks before the first request of each",
        "crossings": "of each die, 1/FRACTION ticks at which it can take more data",
    },
)
"""A device. Its host's `completions` have a row an engine; with dies two more, of data and of
acknowledgements from other dies; and with checks a last one, which nothing waits for."""


@called
def _put_checks(
    memory: Record, state: Record, tick: int, first: int, last: int, kind: int, row: int
) -> None:
    """Put the accesses to the checks of a request for bursts `first` to `last` before it."""
    for check in range(first // memory.protects, last // memory.protects + 1):
        asked = access_to_checks(memory, state, check, first, last, kind)
        if asked != UNASKED:
            put_in_order(state, tick, memory.first_check + check, 1, asked, row)


@called
def _has_room(memory: Record, host: Record, state: Record, tick: int) -> bool:
    """Whether a channel takes another request, as an engine knows at `tick`."""
    room = INBOX
    if memory.protects > 0:  # for the accesses to its checks
        room -= host.request // (host.burst * memory.protects) + 3
    if host.inbox == 0:
        return state.tail - state.head < room
    while (
        state.released < state.head
        and state.inbox[RUN_TAKEN, state.released & (INBOX - 1)] + state.response <= tick
    ):
        state.released += 1
    return state.tail - state.released < min(host.inbox, room)


@called
def _cross(host: Record, crossings: Int, die: int, tick: int, size: int) -> int:
    """Bring data that are ready at `tick` into a die; the tick at which they are there."""
    begin = max(crossings[die], tick * FRACTION)
    crossings[die] = begin + size * host.crossing_byte_time
    return (crossings[die] + FRACTION - 1) // FRACTION + host.crossing_latency


@called
def _bring_back(host: Record, tick: int) -> None:
    """Pass what reached the edge of its channel's die at `tick` on to engines of other dies."""
    shape = host.completion_rows, host.completion_ticks
    completions = array_at(host.completions, shape, np.int64)
    crossings = array_at(host.crossings, (host.dies,), np.int64)
    wrap = host.completion_ticks - 1
    for engine in range(host.engines):
        read, written = engine + host.engines, engine + 2 * host.engines
        done = completions[read, tick & wrap]
        if done > 0:
            completions[read, tick & wrap] = 0
            there = _cross(host, crossings, engine * host.dies // host.engines, tick, done)
            completions[engine, there & wrap] += done
        done = completions[written, tick & wrap]
        if done > 0:
            completions[written, tick & wrap] = 0
            completions[engine, (tick + host.crossing_latency) & wrap] += done


@inlined
def _next_request(host: Record, address: int, left: int, kind: int) -> tuple[int, int]:
    """(bytes, kind) of the request at an address of an extent with so many bytes left, up to the
    end of a block or of a request's place; bursts that a write does not fill go alone."""
    piece = min(
        left, host.request - address % host.request, host.interleave - address % host.interleave
    )
    if kind == WRITE:
        before = address % host.burst
        if before > 0:
            piece = min(piece, host.burst - before)
        elif piece > host.burst:
            piece -= piece % host.burst
        if before > 0 or piece < host.burst:
            kind = PARTIAL_WRITE
    return piece, kind


@called
def _run_engine(host: Record, number: int, until: int) -> None:
    """Let one engine issue until tick `until` (exclusive)."""
    memory = array_at(host.constants, (1,), CONSTANTS)[0]
    states = array_at(host.states, (host.channels,), CHANNEL)
    start = array_at(host.start, (host.extents,), np.int64)
    size = array_at(host.size, (host.extents,), np.int64)
    write = array_at(host.write, (host.extents,), np.int64)
    wait = array_at(host.wait, (host.extents,), np.int64)
    shape = host.completion_rows, host.completion_ticks
    completions = array_at(host.completions, shape, np.int64)
    crossings = array_at(host.crossings, (host.dies,), np.int64)
    engine = array_at(host.engine, (host.engines,), ENGINE)[number]
    wrap = host.completion_ticks - 1  # ticks modulo a power of two
    while engine.cursor < engine.end:
        if engine.started == 0:
            engine.started = 1
            engine.ready += wait[engine.cursor]
        tick = max(host.now, (engine.ready + FRACTION - 1) // FRACTION)
        if tick >= until:
            break
        while engine.collected <= tick:
            engine.in_flight -= completions[number, engine.collected & wrap]
            completions[number, engine.collected & wrap] = 0
            engine.collected += 1
        address = start[engine.cursor] + engine.offset
        piece, kind = _next_request(
            host, address, size[engine.cursor] - engine.offset, write[engine.cursor]
        )
        bursts = (address + piece - 1) // host.burst - address // host.burst + 1
        moved = bursts * host.burst
        if engine.in_flight > 0 and engine.in_flight + moved > host.window:
            while engine.collected < until and completions[number, engine.collected & wrap] == 0:
                engine.collected += 1
            if engine.collected >= until:
                break
            engine.ready = engine.collected * FRACTION
            continue
        channel, row = channel_of(address // host.interleave, host.channels, host.hash)
        state = states[channel]
        if not _has_room(memory, host, state, tick):
            engine.ready = (tick + 1) * FRACTION
            continue
        first = (row * host.interleave + address % host.interleave) // host.burst
        there, row_of_engine = tick, number  # of `completions`
        die = channel * host.dies // host.channels
        if die != number * host.dies // host.engines:
            if kind == READ:
                row_of_engine += host.engines
                there += host.crossing_latency
            else:
                row_of_engine += 2 * host.engines
                there = _cross(host, crossings, die, tick, piece)
        there += host.lead
        if host.request_interval > 0:
            begin = max(state.endpoint_free, there * FRACTION)
            state.endpoint_free = begin + host.request_interval
            there = (begin + FRACTION - 1) // FRACTION
        if memory.protects > 0:
            host.issued += bursts
            nobody = completions.shape[0] - 1
            _put_checks(memory, state, there, first, first + bursts - 1, kind, nobody)
        put_in_order(state, there, first, bursts, kind, row_of_engine)
        engine.in_flight += moved
        engine.offset += piece
        engine.ready = max(engine.ready, tick * FRACTION) + piece * host.byte_time
        if engine.offset == size[engine.cursor]:
            engine.offset = 0
            engine.cursor += 1
            engine.started = 0
    while engine.collected < until:
        engine.in_flight -= completions[number, engine.collected & wrap]
        completions[number, engine.collected & wrap] = 0
        engine.collected += 1


@inlined
def _horizon(host: Record, to: int) -> int:
    return host.now + host.round if host.now < to and host.busy == 1 else -1


@called
def _give(host: Record, until: int) -> int:
    host.busy = 0
    if host.dies > 1 or host.inbox > 0 or host.request_interval > 0:
        for tick in range(host.now, until):
            if host.dies > 1:
                _bring_back(host, tick)
            for number in range(host.engines):
                _run_engine(host, number, tick + 1)
    engines = array_at(host.engine, (host.engines,), ENGINE)
    for number in range(host.engines):
        _run_engine(host, number, until)
        engine = engines[number]
        if engine.cursor < engine.end or engine.in_flight > 0:
            host.busy = 1
    return DONE


@inlined
def _fill(host: Record, state: Record, number: int, last: bool) -> int:
    return DONE  # engines put their requests into the inboxes themselves


@inlined
def _took(host: Record, state: Record, number: int, outcome: int) -> int:
    if outcome != DRAINED:
        host.busy = 1
    return DONE


@called
def _moved(host: Record) -> int:
    """Bytes that engines have read and written: on DQ for them, or answered from a write queue."""
    states = array_at(host.states, (host.channels,), CHANNEL)
    total = 0
    for number in range(host.channels):
        state = states[number]
        total += state.bytes + (state.forwarded - state.rmw_reads) * host.burst
    return total


@inlined
def _passed(host: Record, until: int) -> int:
    """Bytes are noted at the first round past tick `warm`."""
    host.now = until
    if host.warm_bytes < 0 and until >= host.warm:
        host.warm, host.warm_bytes = until, _moved(host)
    return MORE


_drive: Any = driver(AccessSource(_horizon, _give, _fill, _took, _passed))


@c_function(2)
def run_engines(address: int, to: int) -> int:
    """Run the engines and channels of a SYSTEM, which lies at an address, in rounds up to tick `to`
    or until they have nothing more to do; DONE."""
    return int(_drive(array_at(address, (1,), SYSTEM)[0], to))
