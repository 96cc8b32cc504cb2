"""Do pools of equal blocks keep their space together, and what is lost when sizes change?"""

from __future__ import annotations

from policies.allocators.pools import Place, SizedPool


def test_a_pool_hands_out_blocks_by_address_and_takes_them_back() -> None:
    pool = SizedPool(100, 35, 10)
    taken = [pool.take(), pool.take(), pool.take()]
    assert taken == [Place(100, 10), Place(110, 10), Place(120, 10)]
    assert pool.take() is None
    assert (pool.free, pool.stranded) == (5, 5)
    pool.give_back(Place(110, 10))
    assert pool.take() == Place(110, 10)


def test_free_blocks_change_their_size_at_once_and_taken_ones_when_they_come_back() -> None:
    pool = SizedPool(0, 40, 10)
    first, second = pool.take(), pool.take()
    assert first and second
    pool.resize(16, at_once=True)
    # [20, 40) has one block of 16; the rest waits for its neighbours
    assert (pool.free, pool.stranded) == (20, 4)
    assert pool.take() == Place(20, 16)
    pool.give_back(second)  # [10, 20) is too short
    assert (pool.free, pool.stranded, pool.has_block) == (14, 14, False)
    pool.give_back(first)  # [0, 20) is not
    assert pool.take() == Place(0, 16)
