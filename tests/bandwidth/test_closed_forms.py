"""Streams whose banks and groups rotate reach the closed-form limit; no run beats its own bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hwmodel.bandwidth import PATTERNS, measure
from hwmodel.bounds import bounds, least_cycles, read_bound
from hwmodel.device import device_names, load_device
from hwmodel.memory_spec import MemorySpec
from hwmodel.open_loop import OpenLoop
from hwmodel.replay import figures

CHANNELS = [name for name in device_names() if load_device(name).accelerator is None]
NO_REFRESH = "controller.refresh=none"


def rotating(memory: MemorySpec, rows: int, bursts: int) -> np.ndarray:
    """Addresses of `bursts` bursts of a fresh row in every bank group, bank and pseudo-channel
    in turn."""
    bits = dict.fromkeys(
        ("column", "bank", "bankgroup", "stack", "rank", "pseudochannel", "row"), 0
    )
    place: list[tuple[str, int, int]] = []
    shift = memory.organisation.burst_bytes.bit_length() - 1
    for name, width in memory.resolved_address_map():
        place += [(name, bits[name] + i, shift + i) for i in range(width)]
        bits[name] += width
        shift += width
    count = {name: 1 << width for name, width in bits.items()}
    found = []
    for row in range(rows):
        for bank in range(count["bank"]):
            for group in range(count["bankgroup"]):
                for column in range(bursts):
                    for pc in range(count["pseudochannel"]):
                        value = {"row": row, "bank": bank, "bankgroup": group,
                                 "pseudochannel": pc, "column": column}  # fmt: skip
                        found.append(sum(((value.get(n, 0) >> i) & 1) << at for n, i, at in place))
    return np.array(found, np.int64)


def run(name: str, address: np.ndarray, settings: list[str]) -> dict[str, Any]:
    device = load_device(name, settings)
    loop = OpenLoop(device.memory)
    loop.feed(0, address, np.zeros(len(address), np.int64))
    loop.finish()
    return figures(device, loop, 1, "rotating")


@pytest.mark.parametrize("name", CHANNELS)
def test_sequential_reads_reach_99_percent_of_peak_without_refresh(name: str) -> None:
    memory = load_device(name).memory
    address = np.arange(400_000, dtype=np.int64) * memory.organisation.burst_bytes
    assert run(name, address, [NO_REFRESH])["utilization"] > 0.99


# two bursts on LPDDR5 load four resources to 100 % at once: no greedy scheduler reaches that
# (0.80 of it)
@pytest.mark.parametrize(("name", "bursts"), [*((n, 1) for n in CHANNELS), ("hbm2e-3.2", 2)])
def test_rotating_single_row_accesses_reach_the_closed_form(name: str, bursts: int) -> None:
    settings = [NO_REFRESH, "controller.page_policy=closed", "bank_hash=[]"]
    if load_device(name).memory.activate.steps == 2:
        settings += ["activate.second=eager", "activate.reference=ACT1"]
    memory = load_device(name, settings).memory
    found = run(name, rotating(memory, 600, bursts), settings)
    limit = read_bound(memory, f"random_{bursts}_burst{'s' if bursts > 1 else ''}")
    assert found["bandwidth_gbps"] <= limit.gbps * 1.0001
    assert found["bandwidth_gbps"] == pytest.approx(limit.gbps, rel=0.01), limit


def test_the_stated_limits_of_lpddr5_and_all_bank_refresh() -> None:
    memory = load_device("ramulator-lpddr5-6400-x16", [NO_REFRESH]).memory
    assert read_bound(memory, "random_1_burst").fraction == pytest.approx(0.5)
    assert set(read_bound(memory, "random_1_burst").binding) == {"tRRD", "tFAW"}
    refreshed = load_device("ramulator-lpddr5-6400-x16").memory
    assert read_bound(refreshed, "sequential").fraction == pytest.approx(0.916, abs=5e-4)


def test_all_bank_refresh_costs_a_sequential_stream_what_the_closed_form_says() -> None:
    name = "ramulator-lpddr5-6400-x16"
    memory = load_device(name).memory
    address = np.arange(400_000, dtype=np.int64) * 32
    limit = read_bound(memory, "sequential").gbps
    assert run(name, address, [])["bandwidth_gbps"] == pytest.approx(limit, rel=0.01)


@pytest.mark.parametrize("name", CHANNELS)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_no_run_is_faster_than_its_own_command_counts_allow(name: str, pattern: str) -> None:
    found = measure(load_device(name), pattern)
    assert found["cycles"] >= found["least_cycles"] > 0
    if found["bound_gbps"] is not None:
        assert found["bandwidth_gbps"] <= found["bound_gbps"] * 1.0001


@pytest.mark.parametrize("name", ["mlu370-x4", "a100-80gb"])
def test_a_device_reads_faster_in_order_than_at_random_and_never_above_peak(name: str) -> None:
    device = load_device(name)
    found = {
        p: measure(device, p)["utilization"] for p in ("sequential", "random_4KiB", "random_64B")
    }
    assert 1 > found["sequential"] > found["random_4KiB"] > found["random_64B"] > 0


def test_every_shipped_memory_has_bounds_that_name_what_binds() -> None:
    for name in CHANNELS:
        for bound in bounds(load_device(name).memory).values():
            assert 0 < bound.fraction <= 1 and bound.binding


def test_least_cycles_counts_the_data_bus_by_hand() -> None:
    memory = load_device("lpddr5-6400-x16").memory
    assert least_cycles(memory, {"RD": 1000}) == (2000, "data bus")
