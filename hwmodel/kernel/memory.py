"""A device's memory system: DMA engines with finite windows in front of all its channels.

An engine walks its extents in order. It pays `descriptor_cost` before each, or before each run of
three or more of one size a constant stride apart, up to a window of bytes, where descriptors may
have two dimensions (`dma.strided`). Where they may be lists (`dma.gather`), it pays it before each
list, and `element_cost` before each of what would be a descriptor. It cuts each into requests of at
most `dma.request` bytes that do not cross an interleave block (bursts that a write does not fill go
by themselves), issues at most `port_bandwidth`, and stops while its bytes in flight fill
`dma.window`. A request reaches its channel after `request_latency`; a read is complete
`response_latency` after its last data beat, a (posted) write `response_latency` after it has
entered the write queue.

Where the accelerator has `dies`, engine e of E is on die e * dies // E, and channels likewise. A
request to a channel of another die takes `crossing_latency` longer each way, and the data that come
into a die (read by its engines, written to its channels) pass one after the other at
`crossing_bandwidth`. Where it has a finite `inbox`, an engine stalls while so many requests to the
channel of its next one are under way or wait there; it knows of one that the queues took
`response_latency` later. Where it has a `request_interval`, requests reach a channel no faster than
one in that time, in the order in which they were issued.

Simulation alternates engines and channels in rounds of request + response latency: nothing that
happens in one round can be felt on the other side before the next (conservative lookahead), so
each side runs on its own and the result is that of one global event queue, with ties at a channel
broken by engine number. Engines that share crossings, inboxes or endpoints go through a round
together, tick by tick; crossings only add latency, so that rounds stay as long.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwmodel.kernel.address import CHANNEL_HASHES, channel_of
from hwmodel.kernel.channel import SLICE, advance
from hwmodel.kernel.channel_state import INBOX, NO_LOG, RUN_TAKEN, idle_channels
from hwmodel.kernel.extents import Frames, Stream, as_mapped, descriptor_starts, gather_costs
from hwmodel.kernel.inbox import put_in_order
from hwmodel.kernel.inline_ecc import UNASKED, access_to_checks
from hwmodel.kernel.jit import called, inlined, simulation
from hwmodel.kernel.kernel_names import DRAINED, PARTIAL_WRITE, READ, WRITE, Record
from hwmodel.kernel.limits import FOREVER, Int
from hwmodel.kernel.power import asleep_ns
from hwmodel.kernel.shapes import lowered
from hwmodel.kernel.timing import lower, named_counts
from hwmodel.kernel.translation import translated
from hwmodel.specs.device import Device
from hwmodel.specs.memory_spec import MemorySpec, row_delay

FRACTION = 1 << 10
"""Engine times are kept in 1/1024 ticks, so that port rates need no rounding to ticks."""

_SYSTEM_SCALARS = {
    "channels": "channels of the device",
    "interleave": "bytes of a block",
    "hash": "HASH_NONE, HASH_ROTATE or HASH_XOR",
    "request": "bytes of a request at most",
    "window": "bytes in flight of an engine at most",
    "byte_time": "1/FRACTION ticks a byte of an engine's port",
    "request_latency": "ticks from an engine to a channel",
    "burst": "bytes of a burst",
    "engines": "DMA engines of the device",
    "dies": "dies, which have equally many engines and channels",
    "crossing_latency": "ticks from a die to another",
    "crossing_byte_time": "1/FRACTION ticks a byte into a die",
    "inbox": "requests to a channel at most; 0: no limit",
    "request_interval": "1/FRACTION ticks between requests that reach a channel; 0: any",
    "issued": "bursts of data put into inboxes, where there are checks",
    "now": "tick up to which engines have run",
    "stop": "tick at which the simulation ends",
    "warm": "tick at which the measured window begins",
    "warm_bytes": "bytes moved before that; -1 until then",
    "bytes": "bytes moved",
    "round": "ticks that engines and channels run apart",
}
_ENGINE_SCALARS = {
    "cursor": "index of the extent being issued",
    "end": "index of the engine's last extent + 1",
    "offset": "bytes of the extent that were issued",
    "in_flight": "bytes issued and not complete",
    "ready": "1/FRACTION ticks at which the next request may go",
    "collected": "tick up to which completions were collected",
    "started": "1: the wait before the extent is over",
}
_SYSTEM = np.dtype([(name, np.int64) for name in _SYSTEM_SCALARS])
_ENGINE = np.dtype([(name, np.int64) for name in _ENGINE_SCALARS])


class Descriptors(NamedTuple):
    """Extents for the DMA engines, each engine's in issue order; four arrays of length n."""

    engine: NDArray[np.int64]
    start: NDArray[np.int64]
    """Device byte address."""
    size: NDArray[np.int64]
    """Bytes, at least 1."""
    write: NDArray[np.bool_]


@dataclass(frozen=True)
class SystemResult:
    """What a window of simulated time showed; bandwidth in GB/s of bytes that were asked for."""

    gbps: float
    elapsed_ns: float
    """Length of the measured window."""
    bytes_measured: int
    """Useful bytes in it (bursts moved, less what extents did not ask for)."""
    total_bytes: int
    """Useful bytes of all descriptors."""
    bursts: int
    """Bursts simulated, warm-up included."""
    finished: bool
    """Whether every descriptor was completed."""
    row_hits: int
    row_misses: int
    row_conflicts: int
    commands: dict[str, int]
    """Of the whole simulation, as are the next two."""
    simulated_ns: float
    active_ns: float
    """Time with a bank open, summed over the ranks of every pseudo-channel of every channel."""
    asleep: dict[str, float]
    """Time in power-down and self-refresh, as `hwmodel.kernel.power.asleep_ns` states it."""

    @property
    def row_hit_rate(self) -> float:
        return self.row_hits / max(1, self.row_hits + self.row_misses + self.row_conflicts)


@called
def _put_checks(
    c: Record, s: Record, tick: int, first: int, last: int, kind: int, row: int
) -> None:
    """Put the accesses to the checks of a request for bursts `first` to `last` before it."""
    for check in range(first // c.protects, last // c.protects + 1):
        asked = access_to_checks(c, s, check, first, last, kind)
        if asked != UNASKED:
            put_in_order(s, tick, c.first_check + check, 1, asked, row)


@called
def _has_room(c: Record, p: Record, s: Record, tick: int) -> bool:
    """Whether a channel takes another request, as an engine knows at `tick`."""
    room = INBOX
    if c.protects > 0:  # for the accesses to its checks
        room -= p.request // (p.burst * c.protects) + 3
    if p.inbox == 0:
        return s.tail - s.head < room
    while s.released < s.head and s.inbox[RUN_TAKEN, s.released & (INBOX - 1)] + s.response <= tick:
        s.released += 1
    return s.tail - s.released < min(p.inbox, room)


@called
def _cross(p: Record, crossings: Int, die: int, tick: int, size: int) -> int:
    """Bring data that are ready at `tick` into a die; the tick at which they are there."""
    begin = max(crossings[die], tick * FRACTION)
    crossings[die] = begin + size * p.crossing_byte_time
    return (crossings[die] + FRACTION - 1) // FRACTION + p.crossing_latency


@called
def _bring_back(p: Record, tick: int, crossings: Int, completions: Int) -> None:
    """Pass what reached the edge of its channel's die at `tick` on to engines of other dies."""
    ring = completions.shape[1] - 1
    for engine in range(p.engines):
        read, written = engine + p.engines, engine + 2 * p.engines
        done = completions[read, tick & ring]
        if done > 0:
            completions[read, tick & ring] = 0
            there = _cross(p, crossings, engine * p.dies // p.engines, tick, done)
            completions[engine, there & ring] += done
        done = completions[written, tick & ring]
        if done > 0:
            completions[written, tick & ring] = 0
            completions[engine, (tick + p.crossing_latency) & ring] += done


@inlined
def _next_request(p: Record, address: int, left: int, kind: int) -> tuple[int, int]:
    """(bytes, kind) of the request at an address of an extent with so many bytes left, up to the
    end of a block or of a request's place; bursts that a write does not fill go alone."""
    piece = min(left, p.request - address % p.request, p.interleave - address % p.interleave)
    if kind == WRITE:
        before = address % p.burst
        if before > 0:
            piece = min(piece, p.burst - before)
        elif piece > p.burst:
            piece -= piece % p.burst
        if before > 0 or piece < p.burst:
            kind = PARTIAL_WRITE
    return piece, kind


@called
def _run_engine(
    c: Record, p: Record, states: Any, e: Record, engine: int, until: int,
    start: Int, size: Int, write: Int, wait: Int, completions: Int, crossings: Int,
) -> None:  # fmt: skip
    """Let one engine issue until tick `until` (exclusive)."""
    ring = completions.shape[1] - 1
    while e.cursor < e.end:
        if e.started == 0:
            e.started = 1
            e.ready += wait[e.cursor]
        tick = max(p.now, (e.ready + FRACTION - 1) // FRACTION)
        if tick >= until:
            break
        while e.collected <= tick:
            e.in_flight -= completions[engine, e.collected & ring]
            completions[engine, e.collected & ring] = 0
            e.collected += 1
        address = start[e.cursor] + e.offset
        piece, kind = _next_request(p, address, size[e.cursor] - e.offset, write[e.cursor])
        bursts = (address + piece - 1) // p.burst - address // p.burst + 1
        moved = bursts * p.burst
        if e.in_flight > 0 and e.in_flight + moved > p.window:
            while e.collected < until and completions[engine, e.collected & ring] == 0:
                e.collected += 1
            if e.collected >= until:
                break
            e.ready = e.collected * FRACTION
            continue
        channel, row = channel_of(address // p.interleave, p.channels, p.hash)
        s = states[channel]
        if not _has_room(c, p, s, tick):
            e.ready = (tick + 1) * FRACTION
            continue
        first = (row * p.interleave + address % p.interleave) // p.burst
        there, row_of_engine = tick, engine  # of `completions`
        die = channel * p.dies // p.channels
        if die != engine * p.dies // p.engines:
            if kind == READ:
                row_of_engine += p.engines
                there += p.crossing_latency
            else:
                row_of_engine += 2 * p.engines
                there = _cross(p, crossings, die, tick, piece)
        there += p.request_latency
        if p.request_interval > 0:
            begin = max(s.endpoint_free, there * FRACTION)
            s.endpoint_free = begin + p.request_interval
            there = (begin + FRACTION - 1) // FRACTION
        if c.protects > 0:
            p.issued += bursts
            nobody = completions.shape[0] - 1
            _put_checks(c, s, there, first, first + bursts - 1, kind, nobody)
        put_in_order(s, there, first, bursts, kind, row_of_engine)
        e.in_flight += moved
        e.offset += piece
        e.ready = max(e.ready, tick * FRACTION) + piece * p.byte_time
        if e.offset == size[e.cursor]:
            e.offset = 0
            e.cursor += 1
            e.started = 0
    while e.collected < until:
        e.in_flight -= completions[engine, e.collected & ring]
        completions[engine, e.collected & ring] = 0
        e.collected += 1


@called
def _moved(p: Record, states: Any) -> int:
    """Bytes that engines have read and written: on DQ for them, or answered from a write queue."""
    total = 0
    for channel in range(p.channels):
        s = states[channel]
        total += s.bytes + (s.forwarded - s.rmw_reads) * p.burst
    return total


@simulation
def run_system(
    constants: Any, system: Any, engines: Any, states: Any,
    start: Int, size: Int, write: Int, wait: Int, completions: Int, crossings: Int, log: Int,
) -> bool:  # fmt: skip
    """Run rounds until tick `stop` or until all is done; True if all was done.

    `system` (1,) _SYSTEM, `engines` (E,) _ENGINE and `states` (channels,) CHANNEL records,
    modified in place; `start`, `size`, `write` (n,) extents; `wait` (n,) 1/FRACTION ticks before
    the first request of each; `completions` (E, ring) zeros, with dies (3 E, ring), of data and of
    acknowledgements from other dies behind each engine's own, and with checks a last row that
    nothing waits for; `crossings` (dies,) zeros, when each
    die can take more data, 1/FRACTION ticks; `log` of shape (0, 5).
    Bytes are noted at the first round past tick `warm`.
    """
    c, p = constants[0], system[0]
    while p.now < p.stop:
        until = p.now + p.round
        busy = False
        if p.dies > 1 or p.inbox > 0 or p.request_interval > 0:
            for tick in range(p.now, until):
                if p.dies > 1:
                    _bring_back(p, tick, crossings, completions)
                for engine in range(p.engines):
                    _run_engine(
                        c, p, states, engines[engine], engine, tick + 1,
                        start, size, write, wait, completions, crossings,
                    )  # fmt: skip
        for engine in range(p.engines):
            e = engines[engine]
            _run_engine(
                c, p, states, e, engine, until, start, size, write, wait, completions, crossings
            )
            busy = busy or e.cursor < e.end or e.in_flight > 0
        for channel in range(p.channels):
            s = states[channel]
            if advance(c, s, until + p.request_latency, log, completions) != DRAINED:
                busy = True
        p.now = until
        if p.warm_bytes < 0 and p.now >= p.warm:
            p.warm = p.now
            p.warm_bytes = _moved(p, states)
        if not busy:
            break
    p.bytes = _moved(p, states)
    for channel in range(p.channels):
        if states[channel].head != states[channel].tail:
            return False
    for engine in range(engines.shape[0]):
        if engines[engine].cursor < engines[engine].end or engines[engine].in_flight > 0:
            return False
    return True


def _check(device: Device, d: Descriptors) -> None:
    assert device.accelerator is not None, "a system needs an accelerator"
    if len(d.start) and (d.start.min() < 0 or (d.start + d.size).max() > device.capacity_bytes):
        raise ValueError("a descriptor lies outside the device's memory")
    if len(d.size) and d.size.min() < 1:
        raise ValueError("a descriptor is empty")
    if len(d.engine) and not 0 <= d.engine.min() <= d.engine.max() < device.accelerator.dma.engines:
        raise ValueError("a descriptor names an engine that the device does not have")


def _stream(device: Device, d: Descriptors, frames: Frames | None) -> Stream:
    """What the engines move at physical addresses, each engine's order kept."""
    a = device.accelerator
    assert a is not None
    tick_ns = device.memory.tick_clock.ns_of_ticks(1)
    order = np.argsort(d.engine, kind="stable")
    engine, start, size, write = (
        np.ascontiguousarray(column[order], np.int64) for column in (d.engine, *d[1:])
    )
    stream = Stream(engine, start, size, write, np.ones(len(start), np.int64))
    if frames is not None:
        stream = as_mapped(stream, frames, a.dma.window if a.dma.strided else 0)
    elif a.dma.strided:
        ends = np.cumsum(np.bincount(engine, minlength=a.dma.engines))
        stream = stream._replace(wait=descriptor_starts(ends, start, size, write, a.dma.window))
    cost = round(a.dma.descriptor_cost / tick_ns * FRACTION)
    wait = stream.wait * cost
    if a.dma.gather is not None:
        element = round(a.dma.gather.element_cost / tick_ns * FRACTION)
        wait = gather_costs(a.dma.gather.elements, element, cost, stream)
    stream = stream._replace(wait=wait)
    if a.translation is None:
        return stream
    read = round(idle_read_ns(device) / tick_ns * FRACTION)
    return translated(
        a.translation, a.capacity, a.dma.engines, stream, frames, read, FRACTION / float(tick_ns)
    )


def idle_read_ns(device: Device) -> float:
    """From the request of a read of one burst, of a closed row of an idle memory, to its data."""
    assert device.accelerator is not None
    memory, dma = device.memory, device.accelerator.dma
    ticks = row_delay(memory, "ACT", "RD", ("bank",)) + int(lower(memory)[0]["data_end"][READ])
    in_dram = ticks * float(memory.tick_clock.ns_of_ticks(1))
    return dma.request_latency + in_dram + dma.response_latency


def _widened(
    access: int, engines: NDArray[np.void], start: Int, size: Int, write: Int, wait: Int
) -> tuple[Int, Int, Int, Int]:
    """Extents grown to whole accesses of `access` bytes; before a write come reads of those that it
    does not fill. `engines` is changed in place to where each engine's extents are then."""
    low, high = start // access * access, -(-(start + size) // access) * access
    head = (write == WRITE) & (low < start)
    tail = (write == WRITE) & (start + size < high) & ~(head & (high - low == access))
    one = np.full_like(start, access)
    kept = np.stack((head, tail, np.ones_like(head)), axis=1)
    places = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
    for name in ("cursor", "end"):
        engines[name] = places[engines[name]]
    begins = np.zeros(places[-1], np.int64)
    begins[places[:-1]] = wait
    grown = (
        np.stack(columns, axis=1)[kept]
        for columns in (
            (low, high - access, low),
            (one, one, high - low),
            (0 * write, 0 * write, write),
        )
    )
    return (*grown, begins)


def _system(device: Device, warm: int, stop: int) -> NDArray[np.void]:
    a, clock = device.accelerator, device.memory.tick_clock
    assert a is not None
    tick_ns = clock.ns_of_ticks(1)
    system = np.zeros(1, _SYSTEM)
    request = max(1, math.ceil(a.dma.request_latency / tick_ns - 1e-9))
    values = {
        "channels": a.channels, "interleave": a.interleave, "hash": CHANNEL_HASHES[a.channel_hash],
        "request": a.dma.request, "window": a.dma.window,
        "byte_time": max(1, round(1e9 / a.dma.port_bandwidth / tick_ns * FRACTION)),
        "request_latency": request, "burst": device.memory.organisation.burst_bytes,
        "stop": stop, "warm": warm, "warm_bytes": -1 if warm else 0,
        "round": request + response_ticks(device),
        "engines": a.dma.engines, "dies": 1, "inbox": a.inbox or 0,
        "request_interval": round(a.request_interval / tick_ns * FRACTION),
    }  # fmt: skip
    if a.dies is not None:
        values["dies"] = a.dies.count
        values["crossing_latency"] = math.ceil(a.dies.crossing_latency / tick_ns - 1e-9)
        values["crossing_byte_time"] = round(1e9 / a.dies.crossing_bandwidth / tick_ns * FRACTION)
    for name, value in values.items():
        system[name] = value
    return system


def response_ticks(device: Device) -> int:
    """The response latency in ticks, at least one."""
    assert device.accelerator is not None
    tick_ns = device.memory.tick_clock.ns_of_ticks(1)
    return max(1, math.ceil(device.accelerator.dma.response_latency / tick_ns - 1e-9))


def simulate_system(
    device: Device,
    descriptors: Descriptors,
    *,
    warmup_ns: float = 0.0,
    measure_ns: float = math.inf,
    frames: Frames | None = None,
) -> SystemResult:
    """Simulate `descriptors` on all channels; bandwidth over a window after a discarded warm-up.

    The window is `measure_ns` of device time from `warmup_ns` on, or ends with the last data beat.
    Both are rounded up to whole rounds. frames: where an allocator maps frames itself. Raises
    ValueError for extents outside the memory or unknown engines.
    """
    tick_ns = device.memory.tick_clock.ns_of_ticks(1)
    last = FOREVER if math.isinf(measure_ns) else math.ceil((warmup_ns + measure_ns) / tick_ns)
    run = prepare(device, descriptors, math.ceil(warmup_ns / tick_ns), last, frames)
    finished = _run(run)
    return _result(device.memory, int(descriptors.size.sum()), run, finished, tick_ns)


class Prepared(NamedTuple):
    """The arguments of `run_system`, nothing simulated yet."""

    constants: NDArray[np.void]
    system: NDArray[np.void]
    engines: NDArray[np.void]
    states: NDArray[np.void]
    start: Int
    size: Int
    write: Int
    wait: Int
    completions: Int
    crossings: Int
    log: Int


def prepare(
    device: Device, descriptors: Descriptors, warm: int, stop: int, frames: Frames | None = None
) -> Prepared:
    """Idle channels and engines that have `descriptors` to move until tick `stop`; bytes are noted
    from tick `warm` on. Raises ValueError as `simulate_system` does."""
    _check(device, descriptors)
    a = device.accelerator
    assert a is not None
    constants = lowered(device.memory)
    states = idle_channels(device.memory, constants, a.channels, response_ticks(device))
    states["stream_closed"] = 1
    engine, start, size, write, wait = _stream(device, descriptors, frames)
    engines = np.zeros(a.dma.engines, _ENGINE)
    engines["end"] = np.cumsum(np.bincount(engine, minlength=a.dma.engines))
    engines["cursor"][1:] = engines["end"][:-1]
    access = a.dma.minimum_access
    if access is not None and access > device.memory.organisation.burst_bytes:
        start, size, write, wait = _widened(access, engines, start, size, write, wait)
    system = _system(device, warm, stop)
    p = system[0]
    longest = 2 * (p["round"] + p["request_latency"]) + int(constants["data_end"].max())
    if a.dies is not None:  # all that engines may have under way may wait at one crossing
        waiting = a.dma.engines * (a.dma.window + a.dma.request)
        longest += 2 * p["crossing_latency"] + int(waiting * p["crossing_byte_time"]) // FRACTION
    ring = 1 << int(longest + response_ticks(device)).bit_length()
    rows = a.dma.engines * (1 if a.dies is None else 3) + (device.memory.controller.inline_ecc > 0)
    completions = np.zeros((rows, ring), np.int64)
    crossings = np.zeros(p["dies"], np.int64)
    return Prepared(
        constants, system, engines, states, start, size, write, wait, completions, crossings, NO_LOG
    )


def _run(run: Prepared) -> bool:
    """Run to the end, back in Python every SLICE ticks of a channel; True if all was done."""
    p = run.system[0]
    stop, ticks = int(p["stop"]), max(int(p["round"]), SLICE // int(p["channels"]))
    finished = False
    while not finished and p["now"] < stop:
        p["stop"] = min(stop, int(p["now"]) + ticks)
        finished = bool(run_system(*run))
    return finished


def _result(
    memory: MemorySpec, total: int, run: Prepared, finished: bool, tick_ns: float
) -> SystemResult:
    states, p = run.states, run.system[0]
    end = int(states["end"].max()) if finished else int(p["now"])
    warm = int(p["warm"]) if p["warm_bytes"] >= 0 else 0
    moved = int(p["bytes"]) - max(0, int(p["warm_bytes"]))
    if moved <= 0 or end <= warm:  # all was over before the warm-up was
        warm, moved = 0, int(p["bytes"])
    # extents that do not fill their first or last burst move more than they asked for
    covered = (run.start + run.size - 1) // p["burst"] - run.start // p["burst"] + 1
    useful = total / max(1, int(covered.sum()) * int(p["burst"]))
    checks = int(states["checks"].sum())
    useful *= int(p["issued"] or 1) / (int(p["issued"]) + checks or 1)
    elapsed = (end - warm) * tick_ns
    last = end if finished else end + int(p["request_latency"])  # channels run ahead of engines
    since = states["active_since"]
    active = states["active_ticks"] + np.where(since >= 0, last - since, 0)
    return SystemResult(
        gbps=moved * useful / elapsed if elapsed > 0 else 0.0,
        elapsed_ns=elapsed,
        bytes_measured=round(moved * useful),
        total_bytes=total,
        bursts=int(states["requests"].sum()),
        finished=finished,
        row_hits=int(states["hits"].sum()),
        row_misses=int(states["misses"].sum()),
        row_conflicts=int(states["conflicts"].sum()),
        commands=named_counts(states["commands"].sum(axis=0)),
        simulated_ns=last * tick_ns,
        active_ns=int(active.sum()) * tick_ns,
        asleep=asleep_ns(states, tick_ns),
    )
