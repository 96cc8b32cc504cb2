"""Do copies of several cards share what their host's memory gives?"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodel.specs.device import load_device
from policies.engines.host_memory import HostMemory
from policies.serving.serving import serve
from policies.transfers.kv_link import Transfer
from policies.transfers.shared_memory import SharedMemory
from tests.policies.small import MODEL, device, requests, spec

SWAPS = {"name": "v0", "preemption": "swap"}
ALIKE = {"name": "paged", "watermark": 0.0}
ONE = {"memory": "lpddr5-6400-x16", "channels": 1}


def test_a_memory_gives_the_peak_of_its_channels() -> None:
    each = load_device("lpddr5-6400-x16").peak_gbps * 1e9
    assert HostMemory(memory="lpddr5-6400-x16", channels=3).bandwidth == 3 * each


def copy(size: float, rate: float) -> Transfer:
    return Transfer(bytes=round(size), alone_s=size / rate)


def test_a_copy_that_is_lost_leaves_what_it_had_to_those_behind_it() -> None:
    host, lost = SharedMemory(10.0), copy(40.0, 8.0)
    assert host.seconds(lost, 0.0, 40.0) == 5.0
    lost.dropped = True  # as its step was never done
    assert host.seconds(copy(40.0, 8.0), 1.0, 40.0) == 5.0


@given(
    st.lists(st.tuples(st.floats(0, 5), st.floats(0.1, 50), st.floats(0.1, 20)), max_size=12),
    st.floats(0.5, 30),
)
def test_a_memory_never_gives_more_than_it_has_and_moves_every_byte(
    copies: list[tuple[float, float, float]], most: float
) -> None:
    host, at_s, moved = SharedMemory(most), 0.0, []
    for after, size, rate in copies:
        at_s += after
        seconds = host.seconds(copy(size, rate), at_s, size)
        assert seconds >= size / min(rate, most) * (1 - 1e-9)
        own = [each for each in host._taken if not any(each is old for old in moved)]
        assert sum((b - a) * r for _, a, b, r in own) == pytest.approx(size)
        moved += own
    for instant in [(a + b) / 2 for _, a, b, _ in moved]:
        assert sum(r for _, a, b, r in moved if a <= instant < b) <= most * (1 + 1e-9)


def ran(cards: int, link: str = "1GB/s", **engine: Any) -> dict[str, Any]:
    """Two requests a card, of which one is swapped out and comes back."""
    given = spec(engine={**SWAPS, **engine}, policy=ALIKE, cluster={"cards": cards})
    stream = requests([0.0] * 2 * cards, 31, 20)
    return serve(device(64, f"host.bandwidth={link}"), MODEL, given, stream, seed=1).metrics


def test_two_cards_that_swap_at_once_wait_for_the_hosts_memory() -> None:
    ample, scarce = ran(2), ran(2, swap_dram={**ONE, "channels": 8})
    assert ample == scarce and ample["swapped_tokens"] == 128
    # 12.8 GB/s for two links of 100 GB/s: all of it, both ways, goes at the memory's rate
    fast, shared = ran(2, "100GB/s"), ran(2, "100GB/s", swap_dram=ONE)
    size = 32 * MODEL.kv_token_bytes
    alone_s = ran(1, "100GB/s", swap_dram=ONE)["makespan_s"] - ran(1, "100GB/s")["makespan_s"]
    assert alone_s == pytest.approx(2 * (size / 12.8e9 - size / 100e9))
    waits_s = shared["makespan_s"] - fast["makespan_s"]
    assert alone_s < waits_s <= 2 * 2 * size / 12.8e9 + 1e-12
    assert shared["swapped_tokens"] == fast["swapped_tokens"]
