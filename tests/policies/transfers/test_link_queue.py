"""Does every transfer over a link arrive once, when it should?"""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodel.specs.link import Cost
from policies.transfers.link_queue import IN, OUT, Job, LinkQueue

MS = 1e6


def job(direction: int = IN, ms: float = 1.0, priority: int = 0, slower: float = 1.0) -> Job:
    alone, both = (Cost(0.0, 0.0, 0.0, each * MS) for each in (ms, ms * slower))
    return Job(direction, priority, 1000, 1, alone, both)


def arrivals(queue: LinkQueue, end_s: float = math.inf) -> list[tuple[float, Job]]:
    found = []
    while queue.due_s <= end_s and queue.due_s < math.inf:
        found += [(queue.now_s, each) for each in queue.until(queue.due_s)]
    return found


def test_a_direction_carries_one_transfer_at_a_time_in_order_of_priority() -> None:
    queue = LinkQueue()
    jobs = [job(priority=1), job(priority=1), job(priority=0)]
    for each in jobs:
        queue.put(each)
    found = arrivals(queue)
    # the first had begun; the third goes before the second
    assert [jobs.index(each) for _, each in found] == [0, 2, 1]
    assert [at for at, _ in found] == pytest.approx([1e-3, 2e-3, 3e-3])


def test_both_directions_at_once_go_at_the_rate_of_both() -> None:
    queue = LinkQueue()
    queue.put(job(IN, 1.0, slower=2.0))
    queue.put(job(OUT, 3.0, slower=2.0))
    # together for 2 ms, in which the second moves a third; the rest alone takes 2 ms
    assert [at for at, _ in arrivals(queue)] == pytest.approx([2e-3, 4e-3])
    assert (queue.busy_s, queue.moved_bytes) == pytest.approx((4e-3, 2000))


def test_the_memory_behind_the_link_limits_both_directions_alike() -> None:
    queue = LinkQueue(far_bandwidth=1e6)  # each wants 1000 B in 1 ms
    queue.put(job(IN))
    queue.put(job(OUT))
    assert queue.rate() == pytest.approx(1e6)
    assert [at for at, _ in arrivals(queue)] == pytest.approx([2e-3, 2e-3])


def test_what_was_dropped_makes_way_at_once() -> None:
    queue = LinkQueue()
    first, second = job(ms=4.0), job()
    queue.put(first)
    queue.put(second)
    queue.until(1e-3)
    queue.drop(first)
    assert arrivals(queue) == [(pytest.approx(2e-3), second)]
    assert queue.moved_bytes == pytest.approx(1250)


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
    queue, put, came, moved = LinkQueue(far), [], [], 0.0
    for direction, ms, priority, slower, pause_ms, dropped in plan:
        put.append(job(direction, ms, priority, slower))
        queue.put(put[-1])
        came += arrivals(queue, queue.now_s + pause_ms / 1e3)
        if 0 <= dropped < len(put) and put[dropped] not in [each for _, each in came]:
            moved += (1 - put[dropped].left) * 1000 * (not put[dropped].dropped)
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
    assert queue.moved_bytes == pytest.approx(1000 * len(arrived) + moved)
    assert queue.due_s == math.inf
