"""Does flash take whole pages, as a count of them by hand says?"""

from __future__ import annotations

import numpy as np
import pytest

from hwmodel.specs.device import Device, load_device
from policies.memory.flash_memory import FlashMemory
from policies.memory.step_times import Efficiency
from policies.memory.traffic import Extents
from tests.policies.memory.test_placed_memory import SHAPE

FLASH = (
    "memory: given, capacity: {capacity}, given: {{bandwidth: 100GB/s, efficiency: 1.0, flash: {{"
    "page: {page}, planes: {planes}, read_latency: 10us, write_bandwidth: {write}, endurance: 1000"
    "}}}}"
)


def device(
    page: str = "4KiB", planes: int = 1024, capacity: str = "1GiB", write: str = "10GB/s"
) -> Device:
    far = FLASH.format(page=page, planes=planes, capacity=capacity, write=write)
    return load_device(
        "rtx-pro-6000",
        ["given={bandwidth: 100GB/s, efficiency: 1.0}", "capacity=1GiB",
         f"memories.far={{{far}}}"],
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_pages_are_read_whole_and_once_and_bytes_are_written(seed: int) -> None:
    """Where KV begins is where a page does; two phases have counts of their own."""
    rng = np.random.default_rng(seed)
    planes, even, base = int(rng.integers(20, 400)), rng.uniform(0.5, 1), int(rng.integers(9999))
    rate, writes = (("10GB/s", 0.1), ("200GB/s", 1.0))[seed % 2]
    card = device(planes=planes, write=rate)
    memory = FlashMemory(card.memories["far"], SHAPE, even, base)
    reads = even * min(planes * 4096 / 10e-6 / 100e9, 1.0)
    assert memory.efficiency == Efficiency(reads, reads, reads, 2 / (1 / reads + 1 / writes))
    uses = {}
    for phase in ("attention", "prefill"):
        wanted = touched = 0
        for _ in range(2):
            many = int(rng.integers(1, 12))
            start, end = rng.integers(0, 16, many), rng.integers(16, 32, many)
            start, end = (1024 * at + rng.integers(-1, 2, many) for at in (start + 1, end + 1))
            size, write = end - start, rng.random(many) < 0.3
            pages = {
                page
                for first, last in zip(start[~write], end[~write], strict=True)
                for page in range(first // 4096, (last - 1) // 4096 + 1)
            }
            at_peak = len(pages) * 4096 / reads + size[write].sum() / writes
            extents = Extents(start + base, size, write, np.zeros(many, np.int64))
            assert memory._share(phase, extents) == pytest.approx(size.sum() / at_peak)
            wanted, touched = wanted + size[~write].sum(), touched + 4096 * len(pages)
        uses[phase] = wanted / touched
    assert memory.report(0)["page_use"] == pytest.approx(uses)
    memory.mark()
    assert memory.report(0)["page_use"] == {}
    memory._share("prefill", Extents(*(np.array([n]) for n in (base, 1024, False, 0))))  # type: ignore[arg-type]
    assert memory.report(0)["page_use"] == {"prefill": 0.25}
