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
