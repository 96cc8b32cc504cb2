"""What a device reaches on named access patterns.

One channel of a memory: an open-loop stream over the whole channel, as fast as its queues take it.
An accelerator: extents dealt over its DMA engines, through interleave and hash, with finite
windows.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwmodel.description.description import DescriptionError, nearest
from hwmodel.kernel.memory import Descriptors, simulate_system
from hwmodel.measure.bounds import read_bound
from hwmodel.measure.energy import energy_figures, energy_parts
from hwmodel.measure.open_loop import Int, OpenLoop, called, stated
from hwmodel.measure.replay import figures
from hwmodel.measure.stream import bursts
from hwmodel.measure.through import Through, silent
from hwmodel.specs.device import Device

SEED = 20240607
CHANNEL_BYTES = 32 << 20
"""Simulated on one channel."""
DEVICE_NS = 40_000.0
"""Window simulated on an accelerator, after WARMUP_NS."""
WARMUP_NS = 10_000.0


@dataclass(frozen=True)
class Pattern:
    """Extents of `extent` bytes in ascending or random order; a share of them written."""

    summary: str
    extent: int | None
    """None: the pattern is one sequential run."""
    writes: float = 0.0
    bound: str | None = None


_SIZES = (
    ("32B", 32), ("64B", 64), ("512B", 512), ("4KiB", 4096), ("16KiB", 16384), ("128KiB", 131072),
)  # fmt: skip
PATTERNS: dict[str, Pattern] = {
    "sequential": Pattern("reads in address order", None, 0.0, "sequential"),
    "sequential_w25": Pattern("address order, every fourth KiB written", None, 0.25),
    **{
        f"random_{name}": Pattern(f"reads of {name} extents at random", size)
        for name, size in _SIZES
    },
    "random_64B_w50": Pattern("64 B extents at random, half of them written", 64, 0.5),
}
_TILE = 4096
"""Bytes an engine takes at once of a sequential run."""


def extent_pattern(extent: int, write_share: float) -> tuple[str, Pattern]:
    """(name, pattern) of extents of `extent` bytes at random, a share of them written; the name is
    that of the shipped pattern where one is the same."""
    size = f"{extent >> 10}KiB" if extent % 1024 == 0 else f"{extent}B"
    written = f"_w{100 * write_share:g}" if write_share else ""
    summary = f"{size} extents at random, {write_share:.0%} of them written"
    return f"random_{size}{written}", Pattern(summary, extent, write_share)


def measure_patterns(
    device: Device, patterns: Iterable[str] = (), extents: Iterable[int] = (),
    write_share: float = 0.0, through: Through = silent,
) -> list[dict[str, Any]]:  # fmt: skip
    """Measure these patterns, all where none is named; then extents of so many bytes, multiples of
    a burst, at random, a share of them written; they go `through`. Raises DescriptionError for an
    unknown one."""
    asked = list(patterns)
    for name in asked:
        if name not in PATTERNS:
            raise DescriptionError(f"no pattern {name!r}; {nearest(name, list(PATTERNS))}")
    specs = dict(PATTERNS)
    names = asked or list(PATTERNS)
    for extent in extents:
        own, spec = extent_pattern(extent, write_share)
        specs[own] = spec
        names += [own] if own not in names else []
    return [_measure(device, name, specs[name]) for name in through(names, len(names))]


def measure(device: Device, pattern: str) -> dict[str, Any]:
    """The figures of one pattern by the names of the CLI contract. Raises KeyError for an
    unknown one."""
    return _measure(device, pattern, PATTERNS[pattern])


def _measure(device: Device, pattern: str, spec: Pattern) -> dict[str, Any]:
    if device.accelerator is None:
        return _on_channel(device, pattern, spec)
    return _on_system(device, pattern, spec)


def _bound(device: Device, spec: Pattern) -> float | None:
    """The closed form where one applies: sequential, or bursts of one activation each."""
    burst = device.memory.organisation.burst_bytes
    name = spec.bound
    if spec.extent is not None and not spec.writes and spec.extent in (burst, 2 * burst, 4 * burst):
        name = {1: "random_1_burst", 2: "random_2_bursts", 4: "random_4_bursts"}[
            spec.extent // burst
        ]
    return None if name is None else read_bound(device.memory, name).gbps * device.channels


def _extents(spec: Pattern, extent: int, total: int, capacity: int) -> tuple[Any, Any]:
    """(start addresses, written) of `total` bytes of extents."""
    rng = np.random.Generator(np.random.PCG64([SEED, extent]))
    count = total // extent
    if spec.extent is None:
        start = np.arange(count, dtype=np.int64) * extent
        every = round(1 / spec.writes) if spec.writes else 0
        written = (start // 1024 % every == every - 1) if every else np.zeros(count, bool)
        return start, written
    start = rng.integers(0, capacity // extent, count, dtype=np.int64) * extent
    return start, rng.random(count) < spec.writes


def _on_channel(device: Device, pattern: str, spec: Pattern) -> dict[str, Any]:
    o = device.memory.organisation
    extent = max(spec.extent or 1024, o.burst_bytes)
    start, written = _extents(spec, extent, CHANNEL_BYTES, device.memory.data_bytes)
    kind = np.repeat(written, extent // o.burst_bytes).astype(np.int64)
    address = bursts(start, extent, o.burst_bytes)
    return channel_figures(device, pattern, address, kind, _bound(device, spec))


def channel_figures(
    device: Device, pattern: str, address: Int, kind: Int, bound_gbps: float | None
) -> dict[str, Any]:
    """The figures of one channel on local addresses and kinds, shape (n,), in that order."""
    run = OpenLoop(device.memory)
    run.feed(0, address, kind)
    run.finish()
    return figures(device, run, 1, pattern, bound_gbps)


def _on_system(device: Device, pattern: str, spec: Pattern) -> dict[str, Any]:
    assert device.accelerator is not None
    engines = device.dma.engines
    extent = spec.extent or (1024 if spec.writes else _TILE)
    # enough for the window at full speed; every engine has work to its end
    needed = int(device.peak_gbps * (DEVICE_NS + WARMUP_NS) * 1.2)
    total = -(-needed // (extent * engines)) * extent * engines
    start, written = _extents(
        spec, extent, min(total, device.capacity_bytes), device.capacity_bytes
    )
    tile = max(1, _TILE // extent) if spec.extent is None else 1
    engine = np.arange(len(start), dtype=np.int64) // tile % engines
    size = np.full(len(start), extent, np.int64)
    descriptors = Descriptors(engine, start, size, written)
    return system_figures(device, pattern, descriptors, _bound(device, spec))


def system_figures(
    device: Device, pattern: str, descriptors: Descriptors, bound_gbps: float | None,
    warmup_ns: float = WARMUP_NS, measure_ns: float = DEVICE_NS,
) -> dict[str, Any]:  # fmt: skip
    """The figures of an accelerator's engines and channels over a window."""
    begun = time.perf_counter()
    result = simulate_system(device, descriptors, warmup_ns=warmup_ns, measure_ns=measure_ns)
    wall = time.perf_counter() - begun
    memory = device.memory
    commands = stated(memory, result.commands)
    parts = energy_parts(
        memory, commands, result.simulated_ns, result.active_ns, device.channels, result.asleep
    )
    measured = result.elapsed_ns / result.simulated_ns  # of the energy, by its share of the time
    return {
        "device": device.name, "pattern": pattern, "channels": device.channels,
        "requests": result.bursts, "bytes": result.bytes_measured,
        "cycles": round(result.elapsed_ns / float(memory.clock.tCK)),
        "tck_ns": float(memory.clock.tCK), "bandwidth_gbps": result.gbps,
        "delivered_gbps": result.gbps * device.derate, "peak_gbps": device.peak_gbps,
        "utilization": result.gbps / device.peak_gbps, "bound_gbps": bound_gbps,
        "row_hits": result.row_hits, "row_misses": result.row_misses,
        "row_conflicts": result.row_conflicts, "commands": called(memory, commands),
        "latency_ns": None, "threads": 1, "wall_s": wall,
        **energy_figures(device, {name: nj * measured for name, nj in parts.items()}),
    }  # fmt: skip
