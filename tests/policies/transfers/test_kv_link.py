"""Does every transfer over a link arrive once, when it should?"""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.transfers.kv_link import IN, OUT, KvLink, Transfer

MS = 1e-3


def job(direction: int = IN, ms: float = 1.0, priority: int = 0, slower: float = 1.0) -> Transfer:
    alone_s, both_s = (each * MS for each in (ms, ms * slower))
    return Transfer(
        ends=(direction,), bytes=1000, descriptors=1, alone_s=alone_s, both_s=both_s,
        priority=priority,
    )  # fmt: skip


def moved_bytes(jobs: Iterable[Transfer]) -> float:
    """Of transfers, those that were dropped under way as well."""
    return sum((1 - each.left) * each.bytes for each in jobs)


def arrivals(queue: KvLink, end_s: float = math.inf) -> list[tuple[float, Transfer]]:
    found = []
    while queue.due_s <= end_s and queue.due_s < math.inf:
        found += [(queue.now_s, each) for each in queue.until(queue.due_s)]
    return found


def test_both_directions_at_once_go_at_the_rate_of_both() -> None:
    queue = KvLink()
    jobs = job(IN, 1.0, slower=2.0), job(OUT, 3.0, slower=2.0)
    for each in jobs:
        queue.put(each)
    # together for 2 ms, in which the second moves a third; the rest alone takes 2 ms
    assert [at for at, _ in arrivals(queue)] == pytest.approx([2e-3, 4e-3])
    assert queue.busy_s == pytest.approx({IN: 2e-3, OUT: 4e-3}) and moved_bytes(jobs) == 2000


def test_the_memory_behind_the_link_limits_both_directions_alike() -> None:
    queue = KvLink(far_bandwidth=1e6)  # each wants 1000 B in 1 ms
    queue.put(job(IN))
    queue.put(job(OUT))
    assert queue.rate() == pytest.approx(1e6)
    assert [at for at, _ in arrivals(queue)] == pytest.approx([2e-3, 2e-3])


@given(
    st.lists(
        st.tuples(
            st.sampled_from((IN, OUT)), st.floats(0.01, 5), st.integers(0, 2), st.floats(1, 3),
            st.floats(0, 4), st.integers(-1, 30),
        ),
        max_size=30,
    ),
    st.sampled_from((math.inf, 0.7e6)),
)  # fmt: skip
def test_whatever_is_put_arrives_once_or_is_dropped(
    plan: list[tuple[int, float, int, float, float, int]], far: float
) -> None:
    queue, put, came, moved = KvLink(far), [], [], 0.0
    for direction, ms, priority, slower, pause_ms, dropped in plan:
        put.append(job(direction, ms, priority, slower))
        queue.put(put[-1])
        came += arrivals(queue, queue.now_s + pause_ms / 1e3)
        if 0 <= dropped < len(put) and put[dropped] not in [each for _, each in came]:
            moved += (1 - queue.left(put[dropped])) * 1000 * (not put[dropped].dropped)
            queue.drop(put[dropped])
    came += arrivals(queue)
    arrived = [each for _, each in came]
    assert len(set(map(id, arrived))) == len(arrived)
    assert {id(each) for each in put} == {id(e) for e in arrived} | {
        id(each) for each in put if each.dropped
    }
    assert not any(each.dropped for each in arrived)
    times = [at for at, _ in came]
    assert times == sorted(times)
    assert moved_bytes(put) == pytest.approx(1000 * len(arrived) + moved)
    assert queue.due_s == math.inf
