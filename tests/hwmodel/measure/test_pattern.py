"""Do the patterns of measurements touch the addresses that they say?"""

from __future__ import annotations

import numpy as np
import pytest

from hwmodel.measure.pattern import PAGE, Pattern, bandwidth, channel_latency, device_latency
from hwmodel.specs.device import load_device

GIB = 1 << 30
CHANNEL = load_device("lpddr5-6400-x16")
"""Of 1 GiB."""


def pattern(**given: object) -> Pattern:
    return Pattern.model_validate(given)


def test_a_stride_walks_its_window_again_and_again() -> None:
    start, written = pattern(size="32B", stride="4KiB", window="8KiB").extents(5 * 32, CHANNEL)
    assert start.tolist() == [0, 4096, 0, 4096, 0] and not written.any()


def test_random_extents_are_aligned_and_inside() -> None:
    start, _ = pattern(size="256B", window="1MiB", random=True).extents(1 << 20, CHANNEL)
    assert len(np.unique(start)) > 2000 and not (start % 256).any() and start.max() < 1 << 20


def test_a_mix_reads_and_writes_arrays_of_their_own() -> None:
    start, written = pattern(size="4KiB", mix="2R:1W").extents(3 << 23, CHANNEL)
    assert written.reshape(-1, 3).tolist() == [[False, False, True]] * (len(start) // 3)
    arrays = start.reshape(-1, 3).T
    pages = [set((array // PAGE).tolist()) for array in arrays]
    assert not pages[0] & pages[1] | pages[0] & pages[2] | pages[1] & pages[2]
    inside = arrays[0][: PAGE // 4096] % PAGE
    assert inside.tolist() == list(range(0, PAGE, 4096))


def test_idle_latencies_are_the_sums_of_their_timings() -> None:
    device = load_device("hbm2-2.0")
    nck = {"hit": 18 + 2, "closed": 12 + 18 + 2, "miss": 14 + 12 + 18 + 2}
    assert {row: channel_latency(device, row) for row in ("hit", "closed", "miss")} == {  # type: ignore[arg-type]
        row: pytest.approx(float(clocks)) for row, clocks in nck.items()
    }


def test_a_dependent_read_of_a_device_pays_both_ways() -> None:
    device = load_device("mlu370-x4")
    assert device.accelerator is not None
    dma = device.accelerator.dma
    ways = dma.request_latency + dma.response_latency  # the next descriptor is made meanwhile
    dram = device_latency(device, GIB) - ways
    memory = load_device("lpddr5-6400-x16")
    assert channel_latency(memory, "hit") < dram < 1.3 * channel_latency(memory, "miss")


def test_derate_is_what_reaches_the_engines_and_changes_no_simulation() -> None:
    pattern = Pattern.model_validate({"size": "4KiB"})
    whole, part = (
        bandwidth(load_device("jetson-agx-orin", [f"derate={share}"]), pattern)
        for share in (1.0, 0.8)
    )
    assert whole["bandwidth_gbps"] == part["bandwidth_gbps"] == whole["delivered_gbps"]
    assert part["delivered_gbps"] == pytest.approx(0.8 * whole["bandwidth_gbps"])


def test_writes_of_a_channel_are_written() -> None:
    found = bandwidth(load_device("hbm2-2.0"), pattern(size="1KiB", mix="0R:1W"))
    assert found["commands"].get("RD", 0) == 0 and found["utilization"] > 0.4
