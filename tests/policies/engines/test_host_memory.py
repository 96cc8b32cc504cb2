"""Do copies of several cards share what their host's memory gives?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodel.specs.device import load_device
from policies.engines.host_memory import HostMemory
from policies.transfers.kv_link import Transfer
from policies.transfers.shared_memory import SharedMemory


def test_a_memory_gives_the_peak_of_its_channels() -> None:
    each = load_device("lpddr5-6400-x16").peak_gbps * 1e9
    assert HostMemory(memory="lpddr5-6400-x16", channels=3).bandwidth == 3 * each


def copy(size: float, rate: float) -> Transfer:
    return Transfer(bytes=round(size), alone_s=size / rate)


def test_who_comes_first_has_its_rate_and_others_have_what_is_left() -> None:
    host = SharedMemory(10.0)
    assert host.seconds(copy(40.0, 8.0), 0.0, 40.0) == 5.0
    # 2 B/s until 5 s, then 8 B/s
    assert host.seconds(copy(40.0, 8.0), 1.0, 40.0) == pytest.approx(4.0 + 32 / 8)
    # nothing until 5 s, then 2 B/s until 9 s, then all
    assert host.seconds(copy(12.0, 12.0), 2.0, 12.0) == pytest.approx(7.0 + 4 / 10)
    assert host.seconds(copy(8.0, 8.0), 100.0, 8.0) == 1.0


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
