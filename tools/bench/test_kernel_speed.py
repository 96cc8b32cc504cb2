"""Bursts per second of one core (`make bench`); never an assertion on seconds.

Ramulator 2.1 on a core like ours: LPDDR5 308 k sequential, 224 k random, 281 k in 1 KiB pages.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hwmodel.measure.open_loop import OpenLoop
from hwmodel.specs.device import load_device

BURSTS = 1 << 20
MEMORIES = [
    "ramulator-lpddr5-6400-x16", "lpddr5-6400-x16", "lpddr5-6400-x16-bl32", "hbm2e-3.2", "hbm3-6.4",
]  # fmt: skip


def stream(pattern: str, burst: int, capacity: int) -> np.ndarray:
    """Burst addresses: a run in order, 64-byte lines at random, or 1 KiB pages in random order."""
    chance = np.random.Generator(np.random.PCG64([20240607, 1]))
    extent = {"sequential": burst, "random_64B": 64, "pages_1KiB": 1024}[pattern]
    count = BURSTS * burst // extent
    start = np.arange(count) if pattern == "sequential" else chance.permutation(capacity // extent)
    offset = np.arange(0, extent, burst)
    return (start[:count, None] * extent + offset).ravel().astype(np.int64)


@pytest.mark.parametrize("pattern", ["sequential", "random_64B", "pages_1KiB"])
@pytest.mark.parametrize("name", MEMORIES)
def test_bursts_per_second(benchmark: Any, name: str, pattern: str) -> None:
    memory = load_device(name).memory
    o = memory.organisation
    address = stream(pattern, o.burst_bytes, min(o.capacity_bytes, 512 << 20))
    write = np.zeros(len(address), np.int64)

    def made() -> tuple[tuple[OpenLoop], dict[str, Any]]:
        loop = OpenLoop(memory)
        loops[:] = [loop]
        return (loop,), {}

    def run(loop: OpenLoop) -> None:
        loop.feed(0, address, write)
        loop.finish()

    loops: list[OpenLoop] = []
    benchmark.pedantic(run, setup=made, rounds=5, warmup_rounds=1)
    loop = loops[-1]
    benchmark.extra_info["bursts"] = len(address)
    benchmark.extra_info["utilization"] = round(
        len(address) * o.burst_bytes
        / memory.tick_clock.ns_of_ticks(loop.end_tick) / memory.peak_gbps, 4
    )  # fmt: skip
