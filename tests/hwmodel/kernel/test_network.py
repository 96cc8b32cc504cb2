"""Dies, finite inboxes and spaced requests: what crosses is later and shares a link, a full channel
stalls engines, an endpoint takes requests one by one, and limits that never bind change nothing."""

from __future__ import annotations

import numpy as np
import pytest

from hwmodel.kernel.memory import Descriptors, SystemResult, simulate_system
from hwmodel.specs.device import load_device
from tests.hwmodel.kernel.test_memory_system import extents

PLAIN = ["channel_hash=none", "controller.refresh=none", "dma.descriptor_cost=0ns"]
PIECE = 512
"""Bytes of a request and of an interleave block."""


def dies(latency: str, bandwidth: str) -> list[str]:
    return [
        "dies.count=2",
        f"dies.crossing_latency={latency}",
        f"dies.crossing_bandwidth={bandwidth}",
    ]


def blocks(
    engines: list[int], channels: list[int], rounds: int, write: bool = False
) -> Descriptors:
    """Each engine moves a block of each of these of the 24 channels in turn, `rounds` times."""
    start = (np.arange(rounds)[:, None] * 24 + np.array(channels)).ravel() * PIECE
    count = len(start)
    engine = np.repeat(engines, count)
    start = (np.arange(len(engines))[:, None] * rounds * 24 * PIECE + start).ravel()
    size = np.full(len(start), PIECE, np.int64)
    return Descriptors(engine.astype(np.int64), start, size, np.full(len(start), write))


def both(*parts: Descriptors) -> Descriptors:
    return Descriptors(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def run(settings: list[str], descriptors: Descriptors) -> SystemResult:
    return simulate_system(load_device("mlu370-x4", [*PLAIN, *settings]), descriptors)


@pytest.mark.parametrize(
    "settings", [["inbox=1024"], ["request_interval=0.0001ns"], dies("0ns", "100000GB/s")]
)
def test_limits_that_never_bind_change_nothing(settings: list[str]) -> None:
    stream = extents(load_device("mlu370-x4"), 16 * 1024, 400, write=0.3)
    assert run(settings, stream) == run([], stream)


@pytest.mark.parametrize(("channel", "crossings"), [(0, 0), (23, 3)])
def test_a_crossing_is_paid_each_way(channel: int, crossings: int) -> None:
    """The second of two requests waits for the first; the result ends with its data in DRAM."""
    two = blocks([0], [channel], 2)
    window = f"dma.window={PIECE}B"
    near, far = (run([window, *dies(latency, "100000GB/s")], two) for latency in ("0ns", "100ns"))
    assert far.elapsed_ns - near.elapsed_ns == pytest.approx(crossings * 100)


FIRST, SECOND = list(range(16)), list(range(16, 32))
NEAR, FAR = list(range(12)), list(range(12, 24))


@pytest.mark.parametrize("write", [False, True])
def test_data_into_a_die_share_its_crossing(write: bool) -> None:
    """Reads end with their last data in DRAM, when a window of each engine has still to cross."""
    one_way = blocks(FIRST, FAR, 100, write)
    assert run(dies("50ns", "20GB/s"), one_way).gbps == pytest.approx(20, rel=0.05)
    ways = both(one_way, blocks(SECOND, NEAR, 100, write))
    assert run(dies("50ns", "20GB/s"), ways).gbps == pytest.approx(40, rel=0.05)
    within = both(blocks(FIRST, NEAR, 20, write), blocks(SECOND, FAR, 20, write))
    assert run(dies("50ns", "20GB/s"), within).gbps > 120


def test_reads_and_writes_into_one_die_share_its_crossing() -> None:
    into_first = both(blocks(FIRST, FAR, 20), blocks(SECOND, NEAR, 20, write=True))
    assert run(dies("50ns", "20GB/s"), into_first).gbps == pytest.approx(20, rel=0.05)


@pytest.mark.parametrize(("inbox", "gbps"), [(1, 2.56), (2, 5.12)])
def test_an_inbox_passes_so_many_requests_a_round_trip(inbox: int, gbps: float) -> None:
    """Engines learn 100 ns later that a request, 100 ns on its way, was taken."""
    one_channel = blocks([0, 1, 2, 3], [5], 30)
    assert run([f"inbox={inbox}"], one_channel).gbps == pytest.approx(gbps, rel=0.03)


def test_a_full_channel_stalls_the_engines_that_come_to_it() -> None:
    """Engines that alternate between a busy channel and idle ones are as slow as that channel;
    those that do not come to it are not slowed."""
    alternating = blocks([0, 1, 2, 3], [5, 9], 30)
    elsewhere = blocks([4], [14], 30)
    limited = run(["inbox=1"], alternating)
    assert limited.gbps == pytest.approx(2 * 2.56, rel=0.05)
    assert run(["inbox=1"], both(alternating, elsewhere)).elapsed_ns == limited.elapsed_ns


@pytest.mark.parametrize(("piece", "gbps"), [(512, 512 / 100), (128, 128 / 100)])
def test_an_endpoint_takes_one_request_an_interval_whatever_its_size(
    piece: int, gbps: float
) -> None:
    one_channel = blocks([0, 1, 2, 3], [5], 30)
    settings = ["request_interval=100ns", f"dma.request={piece}B"]
    assert run(settings, one_channel).gbps == pytest.approx(gbps, rel=0.03)


def test_endpoints_do_not_wait_for_one_another() -> None:
    spaced = ["request_interval=100ns"]
    four = run(spaced, blocks([0, 1, 2, 3], [5, 9, 14, 20], 30))
    assert four.gbps == pytest.approx(4 * run(spaced, blocks([0], [5], 120)).gbps, rel=0.05)
