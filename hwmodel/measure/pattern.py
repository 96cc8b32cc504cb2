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
from hwmodel.measure.bandwidth import MeasuredSpan, figures_of
from hwmodel.measure.grid import changed, served
from hwmodel.measure.stream import local_address
from hwmodel.specs.device import Device

SEED = 20261122
SPAN = MeasuredSpan(8 << 20, 20_000.0, 20_000.0)
"""Some hundred refresh intervals of a channel; engines that read and write drift apart for
20 us."""
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
    """Of an access."""
    stride: PositiveBytes | None = None
    """From one extent to the next; their size where it is not given."""
    window: PositiveBytes | None = None
    """The whole memory where it is not given."""
    random: bool = False
    """Whether accesses lie anywhere."""
    mix: Mix = (1, 0)
    """Reads to writes."""

    @checked
    def _sensible(self) -> None:
        if self.random and self.stride is not None:
            raise ValueError("stride: random extents have none")
        if self.window is not None and self.window < (self.stride or self.size):
            raise ValueError("window: holds no extent")
        if sum(self.mix) > 1 and PAGE % (self.stride or self.size):
            raise ValueError(f"size: several arrays need extents that divide {PAGE} B")

    @property
    def together(self) -> int:
        """Extents that an engine takes at once."""
        return sum(self.mix)

    def size_of(self, device: Device) -> int:
        """Bytes of an extent; on a channel at least a burst."""
        least = device.memory.organisation.burst_bytes if device.accelerator is None else 0
        return max(self.size, least)

    def extents(self, total: int, device: Device) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """(start addresses, written), shape (n,), of extents of `total` bytes or a little more."""
        capacity = device.capacity_bytes
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
    return figures_of(device, "measured", pattern, SPAN)


def channel_latency(device: Device, row: Row) -> float:
    """Median time of an isolated read from its entry into a channel's queue to the end of its data,
    ns: of a row that is open, of a closed bank, or of a bank with another row open."""
    policy = "closed" if row == "closed" else "open"
    memory = changed(device.memory, {"page_policy": policy})
    other = memory.organisation.rows // 2 * (row == "miss")
    place = {name: np.zeros(IDLE_READS, np.int64) for name in memory.field_bits()}
    place["row"] = np.arange(IDLE_READS) % 2 * other
    apart = round(IDLE_NS / memory.tick_clock.ns_of_ticks(1))
    arrival = np.arange(IDLE_READS) * apart
    latencies = served(memory, local_address(memory, place), None, arrival).latency_ns()
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
    start, written = pattern.extents(IDLE_READS * burst, device)
    engine, size = np.zeros(len(start), np.int64), np.full(len(start), burst, np.int64)
    result = simulate_system(alone, Descriptors(engine, start, size, written))
    return (result.elapsed_ns + dma.response_latency) / IDLE_READS
