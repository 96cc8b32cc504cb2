"""What a device reaches on named access patterns.

One channel of a memory: an open-loop stream over the whole channel, as fast as its queues take it.
An accelerator: extents dealt over its DMA engines, through interleave and hash, with finite
windows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hwmodel.description.description import DescriptionError, nearest
from hwmodel.kernel.memory import Descriptors, simulate_system
from hwmodel.measure.bounds import BURSTS_PER_ROW, read_bound
from hwmodel.measure.energy import energy_figures, energy_parts
from hwmodel.measure.grid import measured, served
from hwmodel.measure.open_loop import Int, called, stated
from hwmodel.measure.recurring import passes, window_ns
from hwmodel.measure.replay import figures
from hwmodel.measure.stream import ENGINE_TILE, bursts, random_starts, slot_bytes
from hwmodel.measure.through import Through, silent
from hwmodel.specs.device import Device

SEED = 20240607
CHANNEL_BYTES = 32 << 20
"""Simulated on one channel."""
DEVICE_NS = 40_000.0
"""Window simulated on an accelerator, after WARMUP_NS."""
WARMUP_NS = 10_000.0


class MeasuredSpan(NamedTuple):
    """How much is simulated: bytes of a channel; ns of a device, after a warm-up."""

    channel_bytes: int
    warmup_ns: float
    device_ns: float


class ExtentStream(Protocol):
    """Extents of one size."""

    @property
    def together(self) -> int:
        """Extents that an engine takes at once."""

    def size_of(self, device: Device) -> int:
        """Bytes of an extent."""

    def extents(self, total: int, device: Device) -> tuple[Int, NDArray[np.bool_]]:
        """(start addresses, written), shape (n,), of about `total` bytes."""


@dataclass(frozen=True)
class ExtentPattern:
    """Extents of `extent` bytes in ascending or random order; a share of them written."""

    summary: str
    extent: int | None
    """None: the pattern is one sequential run."""
    writes: float = 0.0
    bound: str | None = None
    align: int = 1
    """Random extents begin at multiples of it."""

    @property
    def together(self) -> int:
        if self.extent is None:
            return ENGINE_TILE // self._tile
        return 1

    @property
    def _tile(self) -> int:
        """Of a sequential run, what is read or written at once."""
        return 1024 if self.writes else ENGINE_TILE

    def size_of(self, device: Device) -> int:
        if device.accelerator is None:
            return max(self.extent or 1024, device.memory.organisation.burst_bytes)
        return self.extent or self._tile

    def extents(self, total: int, device: Device) -> tuple[Int, NDArray[np.bool_]]:
        size, capacity = self.size_of(device), device.capacity_bytes
        if device.accelerator is not None:  # every engine has work to its end
            turn = size * device.dma.engines
            total = min(-(-total // turn) * turn, capacity)
        rng, count = np.random.Generator(np.random.PCG64([SEED, size])), total // size
        if self.extent is not None:
            start = random_starts(rng, count, slot_bytes(size, self.align), capacity)
            return start, rng.random(count) < self.writes
        start = np.arange(count, dtype=np.int64) * size
        every = round(1 / self.writes) if self.writes else 0
        written = start // 1024 % every == every - 1 if every else np.zeros(count, np.bool_)
        return start, written


_SIZES = (
    ("32B", 32), ("64B", 64), ("512B", 512), ("4KiB", 4096), ("16KiB", 16384), ("128KiB", 131072),
)  # fmt: skip
PATTERNS: dict[str, ExtentPattern] = {
    "sequential": ExtentPattern("reads in address order", None, 0.0, "sequential"),
    "sequential_w25": ExtentPattern("address order, every fourth KiB written", None, 0.25),
    **{
        f"random_{name}": ExtentPattern(f"reads of {name} extents at random", size)
        for name, size in _SIZES
    },
    "random_64B_w50": ExtentPattern("64 B extents at random, half of them written", 64, 0.5),
}


def extent_pattern(extent: int, write_share: float, align: int = 1) -> tuple[str, ExtentPattern]:
    """(name, pattern) of extents of `extent` bytes at random multiples of `align`, a share of them
    written; the name is that of the shipped pattern where one is the same."""
    size = f"{extent >> 10}KiB" if extent % 1024 == 0 else f"{extent}B"
    name = f"random_{size}" + (f"_w{100 * write_share:g}" if write_share else "")
    name += f"_at_{align}B" if extent % align else ""
    summary = f"{size} extents at random, {write_share:.0%} of them written"
    return name, ExtentPattern(summary, extent, write_share, align=align)


def measure_patterns(
    device: Device, patterns: Iterable[str] = (), extents: Iterable[int] = (),
    write_share: float = 0.0, through: Through = silent, align: int = 1,
) -> list[dict[str, Any]]:  # fmt: skip
    """Measure these patterns, all where none is named; then extents of so many bytes, multiples of
    a burst, at random multiples of `align` bytes, a share of them written; they go `through`.
    Raises DescriptionError for an unknown one."""
    asked = list(patterns)
    for name in asked:
        if name not in PATTERNS:
            raise DescriptionError(f"no pattern {name!r}; {nearest(name, list(PATTERNS))}")
    specs = {name: PATTERNS[name] for name in asked or PATTERNS}
    specs |= dict(extent_pattern(extent, write_share, align) for extent in extents)
    found = measured(lambda name: _measure(device, name, specs[name]), list(specs), through)
    return list(found.values())


def measure(device: Device, pattern: str) -> dict[str, Any]:
    """The figures of one pattern by the names of the CLI contract. Raises KeyError for an
    unknown one."""
    return _measure(device, pattern, PATTERNS[pattern])


def _measure(device: Device, name: str, pattern: ExtentPattern) -> dict[str, Any]:
    span = MeasuredSpan(CHANNEL_BYTES, WARMUP_NS, DEVICE_NS)
    limits = _limits(device, pattern)
    least = min(limits.values(), default=None)
    found = figures_of(device, name, pattern, span, least)
    return found | {"bound_by": [each for each, gbps in limits.items() if gbps == least]}


def _limits(device: Device, pattern: ExtentPattern) -> dict[str, float]:
    """What allows how many GB/s at most, where a closed form says so: of the channels for
    sequential reads, or bursts of one activation each; of the engines where extents take them
    longer than the channels' peak."""
    name, limits = pattern.bound, {}
    if pattern.extent is not None and not pattern.writes:
        bursts_each = pattern.extent / device.memory.organisation.burst_bytes
        name = next((form for form, n in BURSTS_PER_ROW.items() if n == bursts_each), None)
    if name is not None:
        bound = read_bound(device.memory, name)
        limits = dict.fromkeys(bound.binding, bound.gbps * device.channels)
    if device.accelerator is not None:
        engines = _engines_gbps(device, pattern.size_of(device))
        if engines < device.peak_gbps:
            limits["engines"] = engines
    return limits


def _engines_gbps(device: Device, extent: int) -> float:
    """What all engines send at most: each spends its cost on an extent, then issues it."""
    dma = device.dma
    return dma.engines * extent / (dma.extent_cost + 1e9 * extent / dma.port_bandwidth)


def figures_of(
    device: Device,
    name: str,
    stream: ExtentStream,
    span: MeasuredSpan,
    bound_gbps: float | None = None,
) -> dict[str, Any]:
    """What a channel, as fast as its queues allow, or a device's engines, which take extents in
    turn, reach on a stream: by the names of the CLI contract."""
    size, burst = stream.size_of(device), device.memory.organisation.burst_bytes
    if device.accelerator is None:
        start, written = stream.extents(span.channel_bytes, device)
        kind = np.repeat(written, size // burst).astype(np.int64)
        run = served(device.memory, bursts(start, size, burst), kind)
        return figures(device, run, 1, name, bound_gbps)
    lasts_ns = window_ns(device.memory, span.device_ns) + span.warmup_ns
    enough = int(device.peak_gbps * lasts_ns * 1.2)  # at full speed
    start, written = stream.extents(enough, device)
    engine = np.arange(len(start), dtype=np.int64) // stream.together % device.dma.engines
    extents = Descriptors(engine, start, np.full(len(start), size, np.int64), written)
    return _system_figures(device, name, extents, span, bound_gbps)


def _system_figures(
    device: Device,
    pattern: str,
    descriptors: Descriptors,
    span: MeasuredSpan,
    bound_gbps: float | None,
) -> dict[str, Any]:
    """The figures of an accelerator's engines and channels over a window."""
    begun = time.perf_counter()
    measure_ns = window_ns(device.memory, span.device_ns)
    passed_ns = passes(device.memory, math.inf)[0]  # what may be postponed is owed already
    result = simulate_system(
        device, descriptors, warmup_ns=span.warmup_ns, measure_ns=measure_ns, passed_ns=passed_ns
    )
    wall = time.perf_counter() - begun
    if result.unmet:
        raise DescriptionError(f"{device.name}: {result.unmet}; a pattern is not measured so long")
    memory = device.memory
    commands = stated(memory, result.commands)
    parts = energy_parts(
        memory, commands, result.simulated_ns, result.active_ns, device.channels, result.asleep
    )
    measured = result.elapsed_ns / result.simulated_ns  # of the energy, by its share of the time
    return {
        "device": device.name, "pattern": pattern, "channels": device.channels,
        "requests": result.bursts, "bytes": result.bytes_measured,
        "requested_bytes": result.bytes_measured,
        "cycles": round(result.elapsed_ns / float(memory.clock.tCK)),
        "tck_ns": float(memory.clock.tCK), "bandwidth_gbps": result.gbps,
        "delivered_gbps": result.gbps * device.derate, "peak_gbps": device.peak_gbps,
        "utilization": result.gbps / device.peak_gbps, "bound_gbps": bound_gbps,
        "row_hits": result.row_hits, "row_misses": result.row_misses,
        "row_conflicts": result.row_conflicts, "commands": called(memory, commands),
        "latency_ns": None, "threads": 1, "wall_s": wall,
        **energy_figures(device, {name: nj * measured for name, nj in parts.items()}),
    }  # fmt: skip
