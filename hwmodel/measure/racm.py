"""The random-access cost model (RACM): what a memory loses when its extents lie anywhere.

    alpha(s) = B(random extents of s bytes) / B(sequential)

(the ODMA paper's alpha), both simulated under the same conditions. One channel: one in-order
stream of extents, as fast as its queues take it; each tile of an extent is read or written by
itself, as it is where many streams share a channel. A device: each DMA engine walks extents of its
own, through window, interleave and channel hash; an extent is read or written whole. B(sequential)
is that of consecutive tiles, each read or written, which the engines take in turn: many engines
that each walk a long extent of their own therefore stay below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal, NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.kernel.limits import Int
from hwmodel.kernel.memory import Descriptors, SystemResult, simulate_system
from hwmodel.measure.grid import measured, served
from hwmodel.measure.recurring import window_ns
from hwmodel.measure.stream import (
    ENGINE_TILE,
    TILE,
    bursts,
    kinds,
    random_starts,
    sequential_starts,
)
from hwmodel.measure.through import Through, silent
from hwmodel.specs.controller import MAX_QUEUE
from hwmodel.specs.device import Device, load_device
from hwmodel.specs.memory_spec import MemorySpec

Level = Literal["channel", "device"]

LARGEST_EXTENT = 1 << 20
READ_SHARES = (1.0, 0.75, 0.5)
QUEUE_FACTORS = (0.5, 2)
WINDOW_FACTORS = (0.5, 2, 4)
"""Conditions beside the described ones, one changed at a time."""
REPLICATIONS = 4
CHANNEL_BYTES = 2 << 20
"""Simulated on one channel."""
DEVICE_BYTES, LEAST_NS, WARMUP_NS = 5_000_000, 8_000.0, 4_000.0
"""Window simulated on a device: what its peak moves so many bytes in, but at least so long; and
what is discarded before it."""
SEQUENTIAL_TIMES = 4
"""B(sequential), by which every point is divided, is measured over a window that much longer."""
SEED = 20250611
"""Replication r draws from (SEED, r), the same places under every condition."""


@dataclass(frozen=True)
class Condition:
    """What a curve holds under."""

    level: Level
    read_share: float
    read_queue: int
    write_queue: int
    window_bytes: int | None
    """Bytes that an engine may have outstanding; None for a channel."""

    @property
    def settings(self) -> tuple[str, ...]:
        """The overrides that make a device so."""
        queues = (
            f"controller.read_queue={self.read_queue}",
            f"controller.write_queue={self.write_queue}",
        )
        return (
            queues if self.window_bytes is None else (*queues, f"dma.window={self.window_bytes}B")
        )


class SizePoint(NamedTuple):
    """Extents of one size; a figure a replication."""

    extent_bytes: int
    gbps: tuple[float, ...]
    alpha: tuple[float, ...]
    row_hit_rate: float
    """Mean of the replications."""


@dataclass(frozen=True)
class Curve:
    """alpha over extent sizes under one condition."""

    condition: Condition
    sequential_gbps: tuple[float, ...]
    """B(sequential) of each replication."""
    points: tuple[SizePoint, ...]

    def at(self, extent: int) -> SizePoint:
        """The point of extents of `extent` bytes. Raises KeyError where it was not simulated."""
        for point in self.points:
            if point.extent_bytes == extent:
                return point
        raise KeyError(extent)


class _Cell(NamedTuple):
    """One simulation; `extent` None: sequential."""

    condition: Condition
    extent: int | None
    replication: int


def conditions(device: Device) -> list[Condition]:
    """The described condition of each level (a channel; a device where there is an accelerator),
    each followed by those that differ from it in one thing."""
    c = device.memory.controller
    channel = Condition("channel", READ_SHARES[0], c.read_queue, c.write_queue, None)
    if device.accelerator is None:
        return _around(channel, 0)
    dma = device.accelerator.dma
    whole = replace(channel, level="device", window_bytes=dma.window)
    return [*_around(whole, dma.request), *_around(channel, 0)]


def _around(described: Condition, request: int) -> list[Condition]:
    conditions = [described]
    conditions += [replace(described, read_share=share) for share in READ_SHARES[1:]]
    for factor in QUEUE_FACTORS:
        read, write = int(described.read_queue * factor), int(described.write_queue * factor)
        if min(read, write) >= 1 and max(read, write) <= MAX_QUEUE:
            conditions.append(replace(described, read_queue=read, write_queue=write))
    for factor in WINDOW_FACTORS if described.window_bytes is not None else ():
        window = int((described.window_bytes or 0) * factor)
        if window >= request:
            conditions.append(replace(described, window_bytes=window))
    return conditions


def extent_sizes(memory: MemorySpec, also: int | None = None) -> list[int]:
    """Powers of two from a burst to `LARGEST_EXTENT`, and the size asked for, ascending."""
    burst = memory.organisation.burst_bytes
    powers = {burst << i for i in range((LARGEST_EXTENT // burst).bit_length())}
    return sorted(powers | ({also} if also else set()))


def curves(
    name: str, overrides: Sequence[str] = (), *, extents: Sequence[int] | None = None,
    only: Iterable[Condition] | None = None, replications: int = REPLICATIONS,
    through: Through = silent,
) -> list[Curve]:  # fmt: skip
    """Simulate alpha over `extents` (default: `extent_sizes`) under each of `conditions`, or `only`
    under those given.

    `name` and `overrides` as for `load_device`. Simulations go `through`. Replications share their
    random places over all conditions. Raises DescriptionError for a device that cannot be read,
    ValueError for an extent that is no multiple of a burst or does not fit.
    """
    described = load_device(name, overrides)
    asked = list(conditions(described) if only is None else only)
    sizes = list(extent_sizes(described.memory) if extents is None else extents)
    devices = {c.settings: load_device(name, [*overrides, *c.settings]) for c in asked}
    return _curves({c: devices[c.settings] for c in asked}, sizes, replications, through)


def described_curves(
    device: Device, extents: Sequence[int], *, replications: int = REPLICATIONS
) -> list[Curve]:
    """alpha over `extents` under the described condition of each level. Raises ValueError as
    `curves` does."""
    first = {condition.level: condition for condition in reversed(conditions(device))}
    return _curves(dict.fromkeys(first.values(), device), list(extents), replications)


def _curves(
    devices: dict[Condition, Device], sizes: list[int], replications: int, through: Through = silent
) -> list[Curve]:
    for device in devices.values():
        for size in sizes:
            check_extent(device.memory, size)
    cells = [
        _Cell(condition, size, replication)
        for condition in devices
        for size in (None, *sizes)
        for replication in range(replications)
    ]
    found = measured(lambda cell: _measure(devices[cell.condition], cell), cells, through)

    def replicated(condition: Condition, size: int | None) -> list[tuple[float, float]]:
        return [found[_Cell(condition, size, r)] for r in range(replications)]

    curves = []
    for condition in devices:
        sequential = tuple(gbps for gbps, _ in replicated(condition, None))
        points = []
        for size in sizes:
            gbps, hits = zip(*replicated(condition, size), strict=True)
            alpha = tuple(ours / base for ours, base in zip(gbps, sequential, strict=True))
            points.append(SizePoint(size, gbps, alpha, sum(hits) / replications))
        curves.append(Curve(condition, sequential, tuple(points)))
    return curves


def check_extent(memory: MemorySpec, extent: int | Fraction, largest: int | None = None) -> None:
    """Raise ValueError where extents of so many bytes cannot be simulated; `largest`, in bytes:
    `LARGEST_EXTENT` where it is not given."""
    burst, most = memory.organisation.burst_bytes, largest or LARGEST_EXTENT
    if extent < burst or extent % burst or extent > most:
        raise ValueError(
            f"expected a multiple of a burst, {burst} B, up to {most >> 10} KiB; "
            f"got {float(extent):,.10g} B"
        )


def descriptor_gbps(device: Device, extent: int) -> float:
    """What the DMA engines can ask for at most in extents of `extent` bytes, GB/s: each pays the
    descriptor cost and the time on its port one after the other."""
    assert device.accelerator is not None
    dma = device.accelerator.dma
    return dma.engines * extent / (dma.extent_cost + extent / (dma.port_bandwidth / 1e9))


def _measure(device: Device, cell: _Cell) -> tuple[float, float]:
    """(GB/s, row hit rate) of one simulation."""
    rng = np.random.Generator(np.random.PCG64([SEED, cell.replication, cell.extent or 0]))
    share = cell.condition.read_share
    if cell.condition.level == "channel":
        return _on_channel(device.memory, cell.extent, rng, share)
    measured_ns = max(LEAST_NS, DEVICE_BYTES / device.peak_gbps)
    if cell.extent is None:
        measured_ns *= SEQUENTIAL_TIMES
    result = read_extents(device, cell.extent, rng, measured_ns, share)
    return result.gbps, result.row_hit_rate


def _starts(
    rng: np.random.Generator, count: int, extent: int | None, capacity: int, tile: int = TILE
) -> Int:
    """Where `count` extents begin; None: consecutive tiles."""
    if extent is None:
        return sequential_starts(rng, count, capacity, tile)
    return random_starts(rng, count, extent, capacity)


def _on_channel(
    memory: MemorySpec, extent: int | None, rng: np.random.Generator, read_share: float
) -> tuple[float, float]:
    burst, each = memory.organisation.burst_bytes, extent or TILE
    count = -(-CHANNEL_BYTES // each)
    start = _starts(rng, count, extent, memory.organisation.capacity_bytes)
    tiles = -(-each // TILE)
    written = kinds(rng, count * tiles, read_share).reshape(count, tiles)
    of_burst = np.arange(0, each, burst) // TILE
    loop = served(memory, bursts(start, each, burst), written[:, of_burst].ravel().astype(np.int64))
    elapsed_ns = memory.tick_clock.ns_of_ticks(loop.end_tick)
    return loop.requested_bytes / elapsed_ns, loop.row_hit_rate


def read_extents(
    device: Device,
    extent: int | None,
    rng: np.random.Generator,
    measured_ns: float,
    read_share: float = 1.0,
) -> SystemResult:
    """Simulate a device's engines over `measured_ns` after `WARMUP_NS`: each walks extents of its
    own of `extent` bytes, anywhere in slots of that size; None: consecutive tiles, which they take
    in turn."""
    engines, each = device.dma.engines, extent or ENGINE_TILE
    time_ns = WARMUP_NS + window_ns(device.memory, measured_ns)
    count = _extents_each(device, each, time_ns) * engines
    start = _starts(rng, count, extent, device.capacity_bytes, ENGINE_TILE)
    size = np.full(count, each, np.int64)
    if extent is not None:  # an engine is found anywhere in its first extent
        burst = device.memory.organisation.burst_bytes
        done = rng.integers(0, each // burst, engines, dtype=np.int64) * burst
        start[:engines] += done
        size[:engines] -= done
    engine = np.arange(count, dtype=np.int64) % engines
    written = kinds(rng, count, read_share)
    result = simulate_system(
        device,
        Descriptors(engine, start, size, written),
        warmup_ns=WARMUP_NS,
        measure_ns=window_ns(device.memory, measured_ns),
    )
    if result.unmet:
        raise DescriptionError(f"{device.name}: {result.unmet}; a measurement is not so long")
    return result


def _extents_each(device: Device, extent: int, time_ns: float) -> int:
    """Extents for each engine: more than it can issue in that time, by its own rate or by half as
    much again as its share of the peak."""
    assert device.accelerator is not None
    engines = device.accelerator.dma.engines
    most_gbps = min(descriptor_gbps(device, extent), 1.5 * device.peak_gbps) / engines
    return int(time_ns * most_gbps / extent) + 3
