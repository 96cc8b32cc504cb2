"""A device's memory system: DMA engines with finite windows in front of all its channels.

An engine walks its extents in order. It pays `descriptor_cost` before each, or before each run of
three or more of one size a constant stride apart, up to a window of bytes, where descriptors may
have two dimensions (`dma.strided`). Where they may be lists (`dma.gather`), it pays it before each
list, and `element_cost` before each of what would be a descriptor. How it cuts them into requests,
and when those reach their channels, is said in `hwmodel.kernel.sources.engines`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hwmodel.kernel.address import CHANNEL_HASHES
from hwmodel.kernel.channel import SLICE, runner
from hwmodel.kernel.channel_state import idle_channels
from hwmodel.kernel.extents import EngineStream, Frames, as_mapped, descriptor_starts, gather_costs
from hwmodel.kernel.host import address_of
from hwmodel.kernel.kernel_names import READ, WRITE
from hwmodel.kernel.limits import FOREVER, REFRESH_NONE, Int
from hwmodel.kernel.power import asleep_ns
from hwmodel.kernel.shapes import lowered
from hwmodel.kernel.sources.engines import ENGINE, FRACTION, SYSTEM, run_engines
from hwmodel.kernel.timing import lower, named_counts
from hwmodel.kernel.translation import translated
from hwmodel.kernel.unmet import unmet
from hwmodel.specs.device import Device
from hwmodel.specs.memory_spec import MemorySpec, row_delay


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
    owed: list[list[int]] = field(default_factory=list)
    """Refreshes that fell due and were not issued, of each channel and rank, as it ended; empty
    where none may be postponed."""
    unmet: str = ""
    """What would come at this rate, and did not come in so short a time; empty: nothing."""

    @property
    def row_hit_rate(self) -> float:
        return self.row_hits / max(1, self.row_hits + self.row_misses + self.row_conflicts)


def _check(device: Device, d: Descriptors) -> None:
    assert device.accelerator is not None, "a system needs an accelerator"
    if len(d.start) and (d.start.min() < 0 or (d.start + d.size).max() > device.capacity_bytes):
        raise ValueError("a descriptor lies outside the device's memory")
    if len(d.size) and d.size.min() < 1:
        raise ValueError("a descriptor is empty")
    if len(d.engine) and not 0 <= d.engine.min() <= d.engine.max() < device.accelerator.dma.engines:
        raise ValueError("a descriptor names an engine that the device does not have")


def _stream(device: Device, d: Descriptors, frames: Frames | None) -> EngineStream:
    """What the engines move at physical addresses, each engine's order kept."""
    a = device.accelerator
    assert a is not None
    stream = _issued(device, d, frames)
    if a.translation is None:
        return stream
    tick_ns = device.memory.tick_clock.ns_of_ticks(1)
    read = round(idle_read_ns(device) / tick_ns * FRACTION)
    return translated(
        a.translation, a.capacity, a.dma.engines, stream, frames, read, FRACTION / float(tick_ns)
    )


def _issued(device: Device, d: Descriptors, frames: Frames | None) -> EngineStream:
    """As `_stream`, without what translation of addresses adds."""
    a = device.accelerator
    assert a is not None
    tick_ns = device.memory.tick_clock.ns_of_ticks(1)
    order = np.argsort(d.engine, kind="stable")
    engine, start, size, write = (
        np.ascontiguousarray(column[order], np.int64) for column in (d.engine, *d[1:])
    )
    stream = EngineStream(engine, start, size, write, np.ones(len(start), np.int64))
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
    return stream._replace(wait=wait)


def issue_ns(device: Device, descriptors: Descriptors) -> float:
    """Time in which the busiest engine can issue all that it moves, as if the memory were always
    ready: descriptors, and bytes at the port. Frames of an allocator join or cut extents; that is
    left out."""
    a = device.accelerator
    assert a is not None
    stream, tick_ns = _issued(device, descriptors, None), device.memory.tick_clock.ns_of_ticks(1)
    each_ns = stream.wait * float(tick_ns) / FRACTION + stream.size * (1e9 / a.dma.port_bandwidth)
    return float(np.bincount(stream.engine, each_ns, a.dma.engines).max())


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


def _host(device: Device, warm: int) -> NDArray[np.void]:
    """The SYSTEM of a device, without its arrays."""
    a, clock = device.accelerator, device.memory.tick_clock
    assert a is not None
    tick_ns = clock.ns_of_ticks(1)
    request = max(1, math.ceil(a.dma.request_latency / tick_ns - 1e-9))
    values = {
        "channels": a.channels, "interleave": a.interleave, "hash": CHANNEL_HASHES[a.channel_hash],
        "request": a.dma.request, "window": a.dma.window,
        "byte_time": max(1, round(1e9 / a.dma.port_bandwidth / tick_ns * FRACTION)),
        "lead": request, "burst": device.memory.organisation.burst_bytes, "busy": 1,
        "warm": warm, "warm_bytes": -1 if warm else 0, "round": request + response_ticks(device),
        "engines": a.dma.engines, "dies": 1, "inbox": a.inbox or 0,
        "request_interval": round(a.request_interval / tick_ns * FRACTION),
    }  # fmt: skip
    if a.dies is not None:
        values["dies"] = a.dies.count
        values["crossing_latency"] = math.ceil(a.dies.crossing_latency / tick_ns - 1e-9)
        values["crossing_byte_time"] = round(1e9 / a.dies.crossing_bandwidth / tick_ns * FRACTION)
    host = np.zeros(1, SYSTEM)
    for name, value in values.items():
        host[name] = value
    return host


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
    passed_ns: float = 0.0,
    owed: ArrayLike | None = None,
) -> SystemResult:
    """Simulate `descriptors` on all channels; bandwidth over a window after a discarded warm-up.

    The window is `measure_ns` of device time from `warmup_ns` on, or ends with the last data beat.
    Both are rounded up to whole rounds. frames: where an allocator maps frames itself. passed_ns:
    for how long what comes at intervals has come already, and owed: refreshes that each rank owes
    then (`idle_channels`). Raises ValueError for extents outside the memory or unknown engines.
    """
    tick_ns = device.memory.tick_clock.ns_of_ticks(1)
    last = FOREVER if math.isinf(measure_ns) else math.ceil((warmup_ns + measure_ns) / tick_ns)
    passed = round(passed_ns / tick_ns)
    run = prepare(device, descriptors, math.ceil(warmup_ns / tick_ns), frames, passed, owed)
    _run(run, last)
    return _result(device.memory, int(descriptors.size.sum()), run, tick_ns)


class PreparedDevice(NamedTuple):
    """A device with something to move."""

    host: NDArray[np.void]
    """(1,) of SYSTEM, which knows where the other arrays lie; `now` is the tick up to which engines
    have run."""
    constants: NDArray[np.void]
    engines: NDArray[np.void]
    """(E,) of ENGINE."""
    states: NDArray[np.void]
    """(channels,) of CHANNEL."""
    start: Int
    """(n,) extents, as the next three."""
    size: Int
    write: Int
    wait: Int
    completions: Int
    crossings: Int

    def advance(self, to: int) -> None:
        """Simulate rounds up to tick `to`, or until all is done."""
        run_engines().ctypes(address_of(self.host), to)

    @property
    def finished(self) -> bool:
        """Whether every extent was moved; posted writes may still wait in their queues."""
        issued = (self.engines["cursor"] == self.engines["end"]) & (self.engines["in_flight"] <= 0)
        return bool(issued.all() and (self.states["head"] == self.states["tail"]).all())

    @property
    def moved(self) -> int:
        """Bytes that engines have read and written so far."""
        s = self.states
        answered = int(s["forwarded"].sum()) - int(s["rmw_reads"].sum())
        return int(s["bytes"].sum()) + answered * int(self.host["burst"][0])


def prepare(
    device: Device, descriptors: Descriptors, warm: int, frames: Frames | None = None,
    passed: int = 0, owed: ArrayLike | None = None,
) -> PreparedDevice:  # fmt: skip
    """Idle channels and engines that have `descriptors` to move; bytes are noted from tick `warm`
    on; passed: ticks, and owed, as in `idle_channels`. Raises ValueError as `simulate_system`
    does."""
    _check(device, descriptors)
    a = device.accelerator
    assert a is not None
    constants = lowered(device.memory)
    states = idle_channels(
        device.memory, constants, a.channels, response_ticks(device), passed, owed
    )
    states["stream_closed"] = 1
    engine, start, size, write, wait = _stream(device, descriptors, frames)
    engines = np.zeros(a.dma.engines, ENGINE)
    engines["end"] = np.cumsum(np.bincount(engine, minlength=a.dma.engines))
    engines["cursor"][1:] = engines["end"][:-1]
    access = a.dma.minimum_access
    if access is not None and access > device.memory.organisation.burst_bytes:
        start, size, write, wait = _widened(access, engines, start, size, write, wait)
    host = _host(device, warm)
    p = host[0]
    longest = 2 * (p["round"] + p["lead"]) + int(constants["data_end"].max())
    if a.dies is not None:  # all that engines may have under way may wait at one crossing
        waiting = a.dma.engines * (a.dma.window + a.dma.request)
        longest += 2 * p["crossing_latency"] + int(waiting * p["crossing_byte_time"]) // FRACTION
    ticks = 1 << int(longest + response_ticks(device)).bit_length()
    rows = a.dma.engines * (1 if a.dies is None else 3) + (device.memory.controller.inline_ecc > 0)
    completions = np.zeros((rows, ticks), np.int64)
    host["completion_rows"], host["completion_ticks"] = completions.shape
    host["extents"] = len(start)
    start, size, write, wait = map(np.ascontiguousarray, (start, size, write, wait))
    crossings = np.zeros(p["dies"], np.int64)
    run = PreparedDevice(
        host, constants, engines, states, start, size, write, wait, completions, crossings
    )
    host["advance"] = runner(constants.dtype).address
    for name in ("constants", "states", "completions", "start", "size", "write", "wait"):
        host[name] = address_of(getattr(run, name))
    host["engine"], host["crossings"] = address_of(engines), address_of(crossings)
    return run


def _run(run: PreparedDevice, stop: int) -> None:
    """Run to tick `stop` or to the end, back in Python every SLICE ticks of a channel."""
    p = run.host[0]
    ticks = max(int(p["round"]), SLICE // int(p["channels"]))
    while p["now"] < stop and p["busy"]:
        run.advance(min(stop, int(p["now"]) + ticks))


def _result(memory: MemorySpec, total: int, run: PreparedDevice, tick_ns: float) -> SystemResult:
    states, p, finished, bytes_moved = run.states, run.host[0], run.finished, run.moved
    end = int(states["end"].max()) if finished else int(p["now"])
    warm = int(p["warm"]) if p["warm_bytes"] >= 0 else 0
    moved = bytes_moved - max(0, int(p["warm_bytes"]))
    if moved <= 0 or end <= warm:  # all was over before the warm-up was
        warm, moved = 0, bytes_moved
    # extents that do not fill their first or last burst move more than they asked for
    covered = (run.start + run.size - 1) // p["burst"] - run.start // p["burst"] + 1
    useful = total / max(1, int(covered.sum()) * int(p["burst"]))
    checks = int(states["checks"].sum())
    useful *= int(p["issued"] or 1) / (int(p["issued"]) + checks or 1)
    elapsed = (end - warm) * tick_ns
    last = end if finished else end + int(p["lead"])  # channels run ahead of engines
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
        owed=_owed(memory, run, last, finished),
        unmet=unmet(memory, run.constants, states, last),
    )


def _owed(memory: MemorySpec, run: PreparedDevice, last: int, finished: bool) -> list[list[int]]:
    """`SystemResult.owed` at tick `last`. A channel that is finished sooner than the others
    refreshes until then, one after the other."""
    c, states = run.constants[0], run.states
    if not memory.controller.refresh_postpone or c["refresh"] == REFRESH_NONE:
        return []
    interval, sets, ranks = (int(c[n]) for n in ("refresh_interval", "refresh_sets", "ranks"))
    due = ((last - states["phase"] + 1) * sets - 1) // interval
    owed = due[:, None] - states["refresh_issued"][:, :ranks]
    if finished:
        owed -= ((last - states["end"]) // apart_ticks(memory))[:, None]
    return np.maximum(owed, 0).tolist()


def apart_ticks(memory: MemorySpec) -> int:
    """Ticks from one refresh of a rank to the next of those that are issued one after the other."""
    kind = "REFPB" if memory.controller.refresh == "per_bank" else "REFAB"
    return max(row_delay(memory, kind, kind, ("rank", "pseudochannel", "channel")), 1)
