"""Address patterns of published measurements, and what a channel or a device reaches on them.

A device's engines take consecutive extents in turn, each as the requester of the measurement would;
a channel takes them in order, as fast as its queues allow.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator

from hwmodel.description.description import Strict, checked
from hwmodel.description.units import PositiveBytes
from hwmodel.description.written import text
from hwmodel.kernel.memory import Descriptors, simulate_system
from hwmodel.measure.bandwidth import channel_figures, system_figures
from hwmodel.measure.open_loop import OpenLoop
from hwmodel.measure.stream import bursts, local_address
from hwmodel.specs.device import Device

SEED = 20261122
CHANNEL_BYTES = 8 << 20
"""Simulated on one channel: some hundred refresh intervals."""
WARMUP_NS, DEVICE_NS = 20_000.0, 20_000.0
"""Discarded, and measured, on a device: engines that read and write drift apart for 20 us."""
IDLE_READS = 2000
IDLE_NS = 1000
"""Isolated reads of a channel, and the time between two of them."""
PAGE = 2 << 20
"""Arrays of a mix lie in pages of this size that are anywhere in memory (GPUs' large pages)."""
Row = Literal["hit", "closed", "miss"]


def _mix(value: object) -> object:
    match = re.fullmatch(r"(\d)R:(\d)W", str(value))
    if match is None or match.groups() == ("0", "0"):
        raise ValueError(f"expected reads and writes, such as 2R:1W; got {value!r}")
    return int(match[1]), int(match[2])


Mix = Annotated[tuple[int, int], BeforeValidator(_mix), text(r"^[0-9]R:[0-9]W$", "2R:1W")]


class Pattern(Strict):
    """Extents of `size` bytes: `stride` apart in a `window` that is walked again and again, or
    anywhere in it. A mix reads and writes arrays of their own, an extent of each in turn."""

    size: PositiveBytes
    stride: PositiveBytes | None = None
    """From one extent to the next; their size where it is not given."""
    window: PositiveBytes | None = None
    """The whole memory where it is not given."""
    random: bool = False
    mix: Mix = (1, 0)

    @checked
    def _sensible(self) -> None:
        if self.random and self.stride is not None:
            raise ValueError("stride: random extents have none")
        if self.window is not None and self.window < (self.stride or self.size):
            raise ValueError("window: holds no extent")
        if sum(self.mix) > 1 and PAGE % (self.stride or self.size):
            raise ValueError(f"size: several arrays need extents that divide {PAGE} B")

    def extents(self, total: int, capacity: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """(start addresses, written), shape (n,), of extents of `total` bytes or a little more."""
        rng = np.random.Generator(np.random.PCG64([SEED, self.size]))
        arrays, stride = sum(self.mix), self.stride or self.size
        count = -(-total // (self.size * arrays))
        written = np.tile(np.arange(arrays) >= self.mix[0], count)
        window = min(self.window or capacity, capacity)
        if self.random:
            return rng.integers(0, window // self.size, count * arrays) * self.size, written
        walked = np.arange(count, dtype=np.int64) % (window // stride) * stride
        if arrays == 1:
            return walked, written
        page, offset = np.divmod(walked % (window // arrays // PAGE * PAGE), PAGE)
        pages = int(page.max()) + 1
        place = rng.permutation(capacity // PAGE)[: pages * arrays].reshape(pages, arrays)
        return (place[page] * PAGE + offset[:, None]).ravel(), written


def bandwidth(device: Device, pattern: Pattern) -> dict[str, Any]:
    """The figures of a pattern by the names of the CLI contract."""
    burst = device.memory.organisation.burst_bytes
    if device.accelerator is None:
        start, written = pattern.extents(CHANNEL_BYTES, device.capacity_bytes)
        size = max(pattern.size, burst)
        kind = np.repeat(written, size // burst).astype(np.int64)
        return channel_figures(device, "measured", bursts(start, size, burst), kind, None)
    start, written = pattern.extents(
        int(device.peak_gbps * (DEVICE_NS + WARMUP_NS) * 1.2), device.capacity_bytes
    )
    engine = np.arange(len(start)) // sum(pattern.mix) % device.accelerator.dma.engines
    size_of = np.full(len(start), pattern.size, np.int64)
    return system_figures(
        device, "measured", Descriptors(engine, start, size_of, written), None, WARMUP_NS, DEVICE_NS
    )


def channel_latency(device: Device, row: Row) -> float:
    """Median time of an isolated read from its entry into a channel's queue to the end of its data,
    ns: of a row that is open, of a closed bank, or of a bank with another row open."""
    memory = device.memory
    policy = {"page_policy": "closed" if row == "closed" else "open"}
    controller = memory.controller.model_copy(update=policy)
    run = OpenLoop(memory.model_copy(update={"controller": controller}))
    other = memory.organisation.rows // 2 * (row == "miss")
    place = {name: np.zeros(IDLE_READS, np.int64) for name in memory.field_bits()}
    place["row"] = np.arange(IDLE_READS) % 2 * other
    apart = round(IDLE_NS / memory.tick_clock.ns_of_ticks(1))
    reads = np.zeros(IDLE_READS, np.int64)
    run.feed(0, local_address(memory, place), reads, np.arange(IDLE_READS) * apart)
    run.finish()
    latencies = run.latency_ns()
    assert latencies is not None
    return latencies["p50"]


def device_latency(device: Device, window: int) -> float:
    """Mean time of a read, ns, of a chain of reads of one burst anywhere in `window` bytes, each
    issued when the one before has returned to its engine."""
    assert device.accelerator is not None
    burst = device.memory.organisation.burst_bytes
    dma = device.accelerator.dma.model_copy(update={"window": burst})
    alone = replace(device, accelerator=device.accelerator.model_copy(update={"dma": dma}))
    pattern = Pattern.model_construct(size=burst, window=window, random=True)
    start, written = pattern.extents(IDLE_READS * burst, device.capacity_bytes)
    engine, size = np.zeros(len(start), np.int64), np.full(len(start), burst, np.int64)
    result = simulate_system(alone, Descriptors(engine, start, size, written))
    return (result.elapsed_ns + dma.response_latency) / IDLE_READS
