"""Are blocks found again, shared and copied as vLLM does it, and never while others write them?"""

from __future__ import annotations

import numpy as np
import pytest

from policies.allocators.allocator import Demand, Limits
from policies.allocators.kv_layout import KvLayout
from policies.allocators.paged import PagedAllocator, PagedOptions
from policies.predictors.predictor import Prediction

SOME = Demand(60, 0, Prediction(20.0))


def paged(blocks: int = 8, **options: object) -> PagedAllocator:
    layout = KvLayout(0, blocks * 16, 1, 1, 16)
    spec = PagedOptions.model_validate(options)
    return PagedAllocator(layout, 9, Limits(64, 128), spec)


def shared_slots(allocator: PagedAllocator) -> int:
    """Slots that `reserved` counts more than once, since several requests hold them."""
    return int(allocator.reserved.sum()) - allocator.reserved_total


def places(allocator: PagedAllocator, request: int) -> list[int]:
    return (allocator.units(request).start // 16).tolist()


def test_the_last_blocks_are_lost_first() -> None:
    allocator = paged()
    assert allocator.reserve(0, SOME, 70)  # blocks 0 to 4, the last one not full
    allocator.release(0)
    found = [allocator.caching.cached(0, 69)]
    for request in range(1, 6):  # 5, 6, 7 were never used, 4 was freed first, 3 comes after it
        assert allocator.reserve(request, SOME, 10)
        found.append(allocator.caching.cached(0, 69))
    assert found == [64, 64, 64, 64, 64, 48]
    assert allocator.reserve(0, SOME, 48)
    assert places(allocator, 0) == [0, 1, 2]


@pytest.mark.parametrize("block_by_block", [False, True])
def test_requests_that_grow_together_keep_their_blocks_together(block_by_block: bool) -> None:
    allocator = paged(32, free_list="spread")
    requests = np.array([0, 1, 2])
    for request in requests.tolist():
        assert allocator.reserve(request, SOME, 32)
    for rounds in [1] * 64 if block_by_block else [64]:
        allocator.advance(requests, rounds)
    assert allocator.extent_count(requests) == 3  # of 18 blocks; a queue deals them in turn
    assert [places(allocator, each)[0] for each in requests.tolist()] == [0, 17, 9]
    allocator.release(1)
    assert allocator.reserve(3, SOME, 32)
    allocator.advance(np.array([0, 2, 3]), 16)
    assert allocator.extent_count(np.array([0, 2, 3])) == 3


def test_spread_may_have_a_window() -> None:
    assert paged(free_list="spread", free_list_window=0.5).pool.order.free == 8


def test_what_is_found_keeps_its_place_and_the_rest_is_new() -> None:
    allocator = paged(16)
    assert allocator.reserve(0, SOME, 64)
    assert places(allocator, 0) == [0, 1, 2, 3]
    allocator.release(0)
    assert allocator.caching.cached(0, 63) == 48  # the last token is computed, so its block is, too
    assert allocator.reserve(0, SOME, 80)
    assert places(allocator, 0) == [0, 1, 2, 3, 4]
    assert allocator.extent_count(np.array([0])) == 1


@pytest.mark.parametrize("order", ["lifo", "sorted"])
def test_other_orders_lose_the_first_block_at_once(order: str) -> None:
    allocator = paged(free_list=order)
    assert allocator.reserve(0, SOME, 64)
    allocator.release(0)
    assert allocator.caching.cached(0, 64) == 64
    assert allocator.reserve(1, SOME, 10)
    assert (places(allocator, 1), allocator.caching.cached(0, 64)) == ([0], 0)


def test_blocks_found_again_are_among_the_free_ones() -> None:
    allocator = paged(4)
    assert allocator.reserve(0, SOME, 48) and allocator.reserve(1, SOME, 16)
    allocator.release(0)
    assert (allocator.caching.cached(0, 64), allocator.free_slots) == (48, 48)
    assert not allocator.reserve(0, SOME, 49)
    assert allocator.reserve(0, SOME, 48)
    assert allocator.free_slots == 0


def test_who_has_ended_or_is_not_to_remember_finds_nothing() -> None:
    allocator, forgetful = paged(), paged(cached_recompute=False)
    for one in (allocator, forgetful):
        assert one.reserve(0, SOME, 48)
        one.release(0)
    assert (allocator.caching.cached(0, 99), forgetful.caching.cached(0, 99)) == (48, 0)
    allocator.caching.finished(0, 40, 9)
    assert allocator.caching.cached(0, 99) == 0


def test_the_watermark_binds_admission_alone() -> None:
    allocator = paged(100, watermark=0.05)
    assert allocator.reach == allocator.largest_hole == 95 * 16
    assert allocator.fits(95 * 16) and not allocator.fits(95 * 16 + 1)
    assert not allocator.reserve(0, SOME, 96 * 16)
    # without a prefix in common that is seen at once
    assert allocator.refuses(0, SOME, 95 * 16 + 1) and not allocator.refuses(0, SOME, 95 * 16)
    assert allocator.reserve(0, SOME, 95 * 16)
    assert not allocator.reserve(1, SOME, 1)
    assert allocator.grow(0, 5 * 16) and not allocator.grow(0, 1)


@pytest.mark.parametrize("block", [1, 2, 8, 16, 32, 64, 128, 256])
def test_a_block_is_reserved_whole(block: int) -> None:
    layout = KvLayout(0, 1024, 1, 1, 16)
    allocator = PagedAllocator(layout, 2, Limits(64, 128), PagedOptions(block=block))
    assert allocator.reserve(0, SOME, 100)
    assert allocator.reserved[0] == -(-100 // block) * block
    assert allocator.grow(0, int(allocator.reserved[0]) - 100)
    assert allocator.reserved[0] == -(-100 // block) * block


def chat(prompt: int, prefix: int, prefix_id: int = 7) -> Demand:
    return Demand(prompt, 0, Prediction(20.0), prefix_id, prefix)


def test_a_system_prompt_is_held_once() -> None:
    allocator = paged(16)
    assert allocator.caching.cached(0, 59, chat(60, 40)) == 0
    assert allocator.reserve(0, chat(60, 40), 60)
    assert allocator.caching.cached(1, 79, chat(80, 40)) == 32  # two of 40 / 16 blocks are full
    assert allocator.reserve(1, chat(80, 40), 80)
    assert places(allocator, 0) == [0, 1, 2, 3]
    assert places(allocator, 1) == [0, 1, 4, 5, 6]
    assert (allocator.reserved_total, shared_slots(allocator)) == (7 * 16, 2 * 16)
    assert allocator.caching.report()["prefix_hit_tokens"] == 32
    assert allocator.caching.cached(2, 79, chat(80, 40, prefix_id=8)) == 0
    assert allocator.release(0) == 64
    assert allocator.free_slots == 11 * 16  # request 1 keeps the shared ones
    assert allocator.release(1) == 80
    assert (allocator.free_slots, allocator.reserved_total) == (256, 0)


def test_a_system_prompt_outlives_its_requests_until_its_blocks_are_reused() -> None:
    allocator = paged(8)
    assert allocator.reserve(0, chat(50, 48), 50)
    allocator.release(0)
    allocator.caching.finished(0, 50, 1)
    found = [allocator.caching.cached(9, 60, chat(64, 48))]
    for request in range(1, 7):  # the four never used and the tail, then the prefix from its end
        assert allocator.reserve(request, SOME, 16)
        found.append(allocator.caching.cached(9, 60, chat(64, 48)))
    assert found == [48, 48, 48, 48, 48, 48, 32]


def test_the_last_token_of_a_prompt_is_always_computed() -> None:
    allocator = paged()
    assert allocator.reserve(0, chat(32, 32), 32)
    assert allocator.caching.cached(1, 31, chat(32, 32)) == 16


def test_shared_blocks_need_no_room() -> None:
    allocator = paged(5)
    assert allocator.reserve(0, chat(64, 64), 64)
    assert not allocator.fits(80) and allocator.fits(80, 1, chat(80, 64))
    assert not allocator.reserve(1, SOME, 80)
    assert allocator.reserve(1, chat(80, 64), 80)
    assert allocator.free_slots == 0


def test_without_prefix_caching_everybody_has_his_own() -> None:
    allocator = paged(16, prefix_caching=False)
    for request in range(2):
        assert allocator.caching.cached(request, 63, chat(64, 64)) == 0
        assert allocator.reserve(request, chat(64, 64), 64)
    assert (shared_slots(allocator), allocator.reserved_total) == (0, 128)


def test_a_lost_head_is_computed_again_and_the_rest_is_found() -> None:
    allocator = paged(8, free_list="sorted")
    assert allocator.reserve(0, chat(48, 48), 48)
    allocator.release(0)
    assert allocator.reserve(1, SOME, 16)  # takes the lowest block, the prompt's first
    assert allocator.caching.cached(2, 63, chat(64, 48)) == 0
    assert allocator.reserve(2, chat(64, 48), 16)
    assert places(allocator, 2) == [1]  # the first block of the prompt has another's place
    assert allocator.caching.cached(3, 63, chat(64, 48)) == 16


def test_the_last_token_needs_no_room() -> None:
    allocator = paged(16)
    assert allocator.needs(np.array([40]), np.array([10])).tolist() == [64]
    assert allocator.needs(np.array([40]), np.array([9])).tolist() == [48]


def test_a_drafter_has_blocks_of_its_own() -> None:
    """Two groups of 8 tokens a block, beside blocks of 16, as large as any."""
    limits = Limits(64, 128, drafter=(2, 8))
    allocator = PagedAllocator(KvLayout(0, 32 * 16, 1, 1, 16), 9, limits, PagedOptions())
    assert allocator.needs(np.array([40]), np.array([9])).tolist() == [(3 + 2 * 6) * 16]
    assert allocator.reserve(0, SOME, 48) and allocator.free_slots == (32 - 15) * 16
    assert allocator.reserved[0] == 48
    assert allocator.grow(0, 1) and allocator.free_slots == (32 - 15 - 3) * 16
    assert allocator.release(0) and allocator.free_slots == 32 * 16


def test_what_was_swapped_out_comes_back_whole() -> None:
    allocator = paged(8)
    assert allocator.reserve(0, chat(40, 0, -1), 40)
    allocator.advance(np.array([0]), 6)
    assert allocator.swaps.swap_out(0) == 46
    assert allocator.free_slots == 128 and allocator.caching.cached(0, 45) == 0
    assert allocator.reserve(1, SOME, 100)
    assert not allocator.swaps.swap_in(0)
    allocator.release(1)
    assert allocator.swaps.swap_in(0)
    with pytest.raises(KeyError):
        allocator.swaps.swap_in(0)
    assert (allocator.stored[0], allocator.reserved[0]) == (46, 48)
