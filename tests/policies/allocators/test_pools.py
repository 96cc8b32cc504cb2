"""Do pools of equal blocks keep their space together, and what is lost when sizes change?"""

from __future__ import annotations

import pytest

from policies.allocators.pools import PartitionedPools, Place, SharedPools, SizedPool


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


def test_an_empty_pool_is_cut_anew_from_its_start() -> None:
    pool = SizedPool(0, 40, 10)
    blocks = [pool.take() for _ in range(4)]
    pool.resize(20, at_once=True)
    for place in (blocks[1], blocks[2], blocks[0], blocks[3]):  # [10, 30) first
        assert place
        pool.give_back(place)
    assert (pool.free, pool.stranded, pool.take()) == (40, 0, Place(0, 20))


def test_a_pool_can_wait_until_it_is_empty() -> None:
    pool = SizedPool(0, 40, 10)
    taken = pool.take()
    assert taken
    pool.resize(20, at_once=False)
    assert pool.block == 10
    pool.give_back(taken)
    assert (pool.block, pool.stranded) == (20, 0)


@pytest.mark.parametrize(("split", "blocks"), [("slots", (30, 10, 6)), ("blocks", (10, 10, 10))])
def test_pools_share_slots_or_blocks_evenly(split: str, blocks: tuple[int, ...]) -> None:
    pools = PartitionedPools(1000, 100, (10, 30, 50), split=split)  # type: ignore[arg-type]
    counts = []
    for size in (10, 30, 50):
        count = 0
        while pools.place(size):
            count += 1
        counts.append(count)
    assert tuple(counts) == blocks
    assert pools.place_large(100) == Place(900, 100)


def test_the_smallest_covering_block_is_taken_or_a_larger_one() -> None:
    pools = PartitionedPools(120, 20, (10, 50))
    assert pools.size(7) == 10 and pools.size(11) == 50 and pools.size(51) == 0
    first = pools.place(7, larger=True)  # the smallest that is ready
    assert first == Place(0, 10)
    pools.give_back(first)
    for _ in range(5):
        assert pools.place(7)
    assert pools.place(7) is None
    assert pools.place(7, larger=True) == Place(50, 50)
    assert pools.place(7, larger=True) is None  # large ones are asked for by name


def test_a_large_one_without_room_takes_a_block_that_covers_it() -> None:
    pools = PartitionedPools(120, 20, (10, 50), overflow=True)
    assert pools.place_large(20) == Place(100, 20)
    for _ in range(5):
        assert pools.place(7)
    assert pools.place_large(7) == Place(50, 50)
    assert pools.place_large(7) is None


def test_what_no_block_covers_is_fragmentation() -> None:
    pools = PartitionedPools(230, 30, (10, 30))
    assert pools.fragmentation == pytest.approx(10 / 230)  # 100 slots hold three blocks of 30
    pools.resize((40, 30))
    assert pools.fragmentation == pytest.approx((20 + 10) / 230)


def test_a_shared_space_has_no_sizes() -> None:
    pools = SharedPools(100, 20, "first")
    assert pools.place(33) == Place(0, 33)
    assert (pools.free, pools.largest_hole, pools.reach) == (87, 67, 20)
    assert pools.place(68) is None and pools.place_large(20) == Place(100, 20)
    pools.give_back(Place(100, 20))
    pools.give_back(Place(0, 33))
    assert pools.largest_hole == 100


def test_which_is_the_largest_hole_of_pools() -> None:
    pools = PartitionedPools(1000, 100, (30, 300))  # 450 slots each: 15 blocks, and one
    assert (pools.reach, pools.free, pools.largest_hole) == (100, 1000, 300)
    assert pools.fragmentation == 0.15  # behind the one block of 300
    block = pools.place(300)
    assert block and pools.largest_hole == 100
    large = pools.place_large(90)
    assert large and pools.largest_hole == 30
    assert (pools.free, pools.fragmentation) == (610, 150 / 610)
    pools.give_back(block)
    pools.give_back(large)
    assert (pools.free, pools.largest_hole) == (1000, 300)
