"""Does a preempted request find its own blocks again, where it left them, until they are reused?"""

from __future__ import annotations

import numpy as np
import pytest

from policies.allocator import Demand, Limits
from policies.kv_layout import KvLayout
from policies.paged import PagedAllocator, PagedOptions
from policies.predictor import Prediction

SOME = Demand(60, 0, Prediction(20.0))


def paged(blocks: int = 8, **options: object) -> PagedAllocator:
    layout = KvLayout(0, blocks * 16, 1, 1, 16)
    spec = PagedOptions.model_validate(options)
    return PagedAllocator(layout, 9, Limits(64, 128), spec)


def places(allocator: PagedAllocator, request: int) -> list[int]:
    return (allocator.units(request).start // 16).tolist()


def test_the_last_blocks_are_lost_first() -> None:
    allocator = paged()
    assert allocator.reserve(0, SOME, 70)  # blocks 0 to 4, the last one not full
    allocator.release(0)
    found = [allocator.cached(0, 69)]
    for request in range(1, 6):  # 5, 6, 7 were never used, 4 was freed first, 3 comes after it
        assert allocator.reserve(request, SOME, 10)
        found.append(allocator.cached(0, 69))
    assert found == [64, 64, 64, 64, 64, 48]
    assert allocator.reserve(0, SOME, 48)
    assert places(allocator, 0) == [0, 1, 2]


def test_what_is_found_keeps_its_place_and_the_rest_is_new() -> None:
    allocator = paged(16)
    assert allocator.reserve(0, SOME, 64)
    assert places(allocator, 0) == [0, 1, 2, 3]
    allocator.release(0)
    assert allocator.cached(0, 63) == 48  # the last token is computed, so its block is, too
    assert allocator.reserve(0, SOME, 80)
    assert places(allocator, 0) == [0, 1, 2, 3, 4]
    assert allocator.extent_count(np.array([0])) == 1


@pytest.mark.parametrize("order", ["lifo", "sorted"])
def test_other_orders_lose_the_first_block_at_once(order: str) -> None:
    allocator = paged(free_list=order)
    assert allocator.reserve(0, SOME, 64)
    allocator.release(0)
    assert allocator.cached(0, 64) == 64
    assert allocator.reserve(1, SOME, 10)
    assert (places(allocator, 1), allocator.cached(0, 64)) == ([0], 0)


def test_blocks_found_again_are_among_the_free_ones() -> None:
    allocator = paged(4)
    assert allocator.reserve(0, SOME, 48) and allocator.reserve(1, SOME, 16)
    allocator.release(0)
    assert (allocator.cached(0, 64), allocator.free_slots) == (48, 48)
    assert not allocator.reserve(0, SOME, 49)
    assert allocator.reserve(0, SOME, 48)
    assert allocator.free_slots == 0


def test_who_has_ended_or_is_not_to_remember_finds_nothing() -> None:
    allocator, forgetful = paged(), paged(cached_recompute=False)
    for one in (allocator, forgetful):
        assert one.reserve(0, SOME, 48)
        one.release(0)
    assert (allocator.cached(0, 99), forgetful.cached(0, 99)) == (48, 0)
    allocator.finished(0, 40, 9)
    assert allocator.cached(0, 99) == 0
