"""DMA engines, windows, interleave: each setting moves a figure, and bytes are conserved."""

from __future__ import annotations

import numpy as np
import pytest

from hwmodel.kernel.extents import EngineStream, descriptor_starts, gather_costs
from hwmodel.kernel.memory import Descriptors, SystemResult, simulate_system
from hwmodel.specs.commands import COLUMN_COMMANDS
from hwmodel.specs.device import Device, load_device

KIB = 1024


def extents(
    device: Device, size: int, count: int, seed: int = 1, write: float = 0.0
) -> Descriptors:
    assert device.accelerator is not None
    rng = np.random.default_rng(seed)
    start = rng.permutation(device.capacity_bytes // size - 1)[:count].astype(np.int64) * size
    engine = np.arange(count, dtype=np.int64) % device.accelerator.dma.engines
    return Descriptors(engine, start, np.full(count, size, np.int64), rng.random(count) < write)


def run(
    settings: list[str], size: int = 16 * KIB, count: int = 600, write: float = 0.0
) -> SystemResult:
    device = load_device("mlu370-x4", settings)
    return simulate_system(device, extents(device, size, count, write=write))


def test_every_byte_asked_for_is_moved_once() -> None:
    found = run([], write=0.3)
    assert found.finished
    assert found.total_bytes == 600 * 16 * KIB == found.bursts * 32
    assert sum(found.commands[n] for n in COLUMN_COMMANDS) == found.bursts
    assert found.row_hits + found.row_misses + found.row_conflicts == found.bursts


def test_a_ragged_extent_moves_the_bursts_that_cover_it() -> None:
    device = load_device("mlu370-x4")
    one = Descriptors(
        np.zeros(1, np.int64),
        np.array([500], np.int64),
        np.array([100], np.int64),
        np.zeros(1, bool),
    )
    found = simulate_system(device, one)
    assert found.bursts == 2 * (599 // 64 - 500 // 64 + 1) and found.total_bytes == 100


def test_the_latency_of_a_lone_burst_is_the_sum_of_its_parts() -> None:
    settings = ["controller.refresh=none", "dma.descriptor_cost=0ns", "dma.minimum_access=32B"]
    device = load_device("mlu370-x4", settings)
    one = Descriptors(
        np.zeros(1, np.int64), np.zeros(1, np.int64), np.array([32], np.int64), np.zeros(1, bool)
    )
    found = simulate_system(device, one)
    # request 80 CK, ACT1, ACT2 at 81, CAS meanwhile, RD at 81 + 15, RL 17, two CK of data
    assert found.elapsed_ns == pytest.approx((80 + 1 + 15 + 17 + 2) * 1.25)


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ("dma.window=16KiB", "dma.window=1KiB"),
        ("dma.descriptor_cost=0ns", "dma.descriptor_cost=3us"),
        ("dma.port_bandwidth=32GB/s", "dma.port_bandwidth=4GB/s"),
        ("dma.request_latency=50ns", "dma.request_latency=2us"),
        ("dma.response_latency=50ns", "dma.response_latency=2us"),
        ("controller.read_queue=64", "controller.read_queue=4"),
        ("controller.refresh=none", "controller.refresh=all_bank"),
        ("dma.engines=32", "dma.engines=4"),
        ("channels=24", "channels=12"),
    ],
)
def test_a_tighter_resource_costs_bandwidth(better: str, worse: str) -> None:
    settings = ["capacity=8GiB"]
    assert run([*settings, better]).gbps > 1.02 * run([*settings, worse]).gbps


@pytest.mark.parametrize(
    ("start", "size", "first"),
    [
        ([0, 100, 200, 300], [50] * 4, [1, 0, 0, 0]),
        ([0, 100, 200, 350], [50] * 4, [1, 0, 0, 1]),
        ([0, 100, 250, 400], [50] * 4, [1, 1, 0, 0]),
        ([0, 100, 350], [50] * 3, [1, 1, 1]),  # two are no run
        ([0, 100, 200, 300], [50, 50, 50, 40], [1, 0, 0, 1]),
        ([300, 200, 100], [50] * 3, [1, 0, 0]),
        ([0, 500, 1000, 1500, 2000], [400] * 5, [1, 1, 1, 1, 1]),  # 1000 bytes hold two
        ([0, 300, 600, 900, 1200, 1500, 1800], [250] * 7, [1, 0, 0, 0, 1, 0, 0]),
    ],
)
def test_descriptors_of_two_dimensions(start: list[int], size: list[int], first: list[int]) -> None:
    count = len(start)
    ends = np.array([count, 2 * count])  # two engines with the same
    found = descriptor_starts(
        ends, np.array(start * 2), np.array(size * 2), np.zeros(2 * count, np.int64), 1000
    )
    assert found.tolist() == first * 2


def test_a_strided_run_pays_once() -> None:
    # 64 pieces of 256 B, 1 KiB apart: heads of one token each, 8 windows of 2 KiB
    settings = ["dma.descriptor_cost=1us", "dma.window=2KiB"]
    pieces = Descriptors(
        np.zeros(64, np.int64), np.arange(64) * KIB, np.full(64, 256), np.zeros(64, bool)
    )
    each, runs = (
        simulate_system(load_device("mlu370-x4", [*settings, f"dma.strided={kind}"]), pieces)
        for kind in ("false", "true")
    )
    assert each.elapsed_ns > 64_000
    assert 8_000 < runs.elapsed_ns < 12_000
    assert runs.bytes_measured == each.bytes_measured == 64 * 256


def test_a_list_of_addresses_is_one_descriptor() -> None:
    # 2 engines, 100 tokens of 256 B each, lists of 32: the window never fills, nor do the channels
    settings = ["dma.descriptor_cost=1us", "dma.strided=false"]
    rng = np.random.default_rng(3)
    tokens = Descriptors(
        np.repeat([0, 1], 100), rng.permutation(4096)[:200] * 8 * KIB, np.full(200, 256),
        np.zeros(200, bool),
    )  # fmt: skip

    def elapsed_ns(*more: str) -> float:
        return simulate_system(load_device("mlu370-x4", [*settings, *more]), tokens).elapsed_ns

    port_ns, last_ns = 100 * 256 / 32, 400  # the last token's way there and back
    each, lists = elapsed_ns(), elapsed_ns("dma.gather={elements: 32, element_cost: 50ns}")
    assert 0 < each - (100 * 1000 + port_ns) < last_ns
    assert 0 < lists - (4 * 1000 + 100 * 50 + port_ns) < last_ns
    assert elapsed_ns("dma.gather={elements: 1, element_cost: 0ns}") == each


def test_a_list_is_of_one_engine_and_one_direction() -> None:
    write, first = np.array([0, 0, 0, 1, 1, 0, 0, 0]), np.array([1, 1, 1, 1, 1, 1, 0, 1])
    engine = np.array([0, 0, 1, 1, 1, 1, 1, 1])
    found = gather_costs(2, 5, 100, EngineStream(engine, write, write, write, first))
    assert found.tolist() == [105, 5, 105, 105, 5, 105, 0, 5]


@pytest.mark.parametrize("setting", ["interleave=4KiB", "channel_hash=none", "dma.request=64B"])
def test_layout_of_channels_and_requests_moves_the_result(setting: str) -> None:
    assert run([setting]).gbps != pytest.approx(run([]).gbps, rel=1e-4)


def test_the_same_descriptors_give_the_same_figures_bit_for_bit() -> None:
    assert run([], write=0.2) == run([], write=0.2)


def test_a_measured_window_agrees_with_the_whole_run_of_a_uniform_stream() -> None:
    device = load_device("mlu370-x4")
    d = extents(device, 4 * KIB, 24000)
    whole = simulate_system(device, d)
    window = simulate_system(device, d, warmup_ns=10_000, measure_ns=60_000)
    assert not window.finished
    assert window.gbps == pytest.approx(whole.gbps, rel=0.03)


def test_bad_descriptors_are_refused() -> None:
    device = load_device("mlu370-x4")
    bad = extents(device, KIB, 10)
    with pytest.raises(ValueError, match="outside"):
        simulate_system(device, bad._replace(start=bad.start + device.capacity_bytes))
    with pytest.raises(ValueError, match="empty"):
        simulate_system(device, bad._replace(size=bad.size * 0))
    with pytest.raises(ValueError, match="engine"):
        simulate_system(device, bad._replace(engine=bad.engine + 100))


def ragged_writes(device: Device) -> Descriptors:
    """50 writes of 100 B that start in the middle of a burst: two partial bursts, two whole."""
    count = 50
    start = np.arange(count, dtype=np.int64) * 4096 + 16
    return Descriptors(
        np.arange(count, dtype=np.int64), start, np.full(count, 100), np.ones(count, bool)
    )


def test_bursts_that_a_write_does_not_fill_are_read_first() -> None:
    settings = ["dma.engines=64", "dma.minimum_access=32B", "controller.partial_write="]
    masked = load_device("mlu370-x4", [*settings[:2], settings[2] + "masked"])
    whole = simulate_system(masked, ragged_writes(masked))
    assert whole.finished and whole.total_bytes == 5000
    assert whole.commands["RD"] == 0 and whole.commands["WR"] == whole.commands["MWR"] == 100
    modify = load_device("mlu370-x4", [*settings[:2], settings[2] + "read_modify_write"])
    found = simulate_system(modify, ragged_writes(modify))
    assert found.finished and found.bytes_measured == whole.bytes_measured
    assert found.commands["RD"] == 100 and found.commands["WR"] == 200
    assert found.commands["MWR"] == 0


def test_accesses_below_the_least_are_widened_and_writes_read_first() -> None:
    device = load_device("mlu370-x4", ["dma.engines=64"])
    ragged = simulate_system(device, ragged_writes(device))  # two blocks of 64 B each, both partial
    assert ragged.finished and ragged.total_bytes == ragged.bytes_measured == 5000
    assert (ragged.commands["RD"], ragged.commands["WR"]) == (200, 200)
    start = np.arange(100, dtype=np.int64) * 4096
    extents = Descriptors(start // 4096 % 64, start + 32, np.full(100, 32), start < 0)
    half = simulate_system(device, extents)
    assert half.finished and half.commands["RD"] == 200 and half.bytes_measured == 3200
    whole = simulate_system(
        device, extents._replace(start=start, size=extents.size * 2, write=start >= 0)
    )
    assert (whole.commands["RD"], whole.commands["WR"]) == (0, 200)


def test_a_read_behind_a_write_to_the_same_burst_is_answered_from_it() -> None:
    device = load_device("mlu370-x4", ["controller.write_drain_high=1", "dma.minimum_access=32B"])
    one = np.zeros(64, np.int64)
    reads_and_writes = Descriptors(
        one, np.repeat(np.arange(32) * 32, 2), one + 32, np.arange(64) % 2 == 0
    )
    found = simulate_system(device, reads_and_writes)
    assert found.finished
    assert found.commands["WR"] == 32 and found.commands["RD"] < 32
    assert found.bytes_measured == 64 * 32
