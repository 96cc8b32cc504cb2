"""Is a block found under its key as long as it was not handed out again, and no longer?"""

from __future__ import annotations

import numpy as np

from policies.allocators.prefix_cache import BlockCache
from policies.requests.requests import IntArray


def blocks(*ids: int) -> IntArray:
    return np.array(ids, np.int64)


def found(cache: BlockCache, key: int = 0) -> list[int | None]:
    kept, alive = cache.find(key)
    return [int(block) if here else None for block, here in zip(kept, alive, strict=True)]


def test_a_block_handed_out_again_is_lost() -> None:
    uses = np.zeros(9, np.int64)
    cache = BlockCache(uses)
    cache.keep(0, blocks(3, 4, 5))
    uses[4] += 1
    assert found(cache) == [3, None, 5]
    assert found(cache, 1) == []
    cache.drop(0)
    assert found(cache) == []


def test_the_oldest_copy_that_is_left_is_found() -> None:
    uses = np.zeros(12, np.int64)
    cache = BlockCache(uses)
    cache.keep(0, blocks(1, 2, 3))
    cache.keep(0, blocks(6, 7), start=1)
    assert found(cache) == [1, 2, 3]
    uses[2] += 1
    assert found(cache) == [1, 6, 3]
    cache.keep(0, blocks(8), start=1)  # behind 6, though the place of 2 is empty
    assert found(cache) == [1, 6, 3]
    uses[6] += 1
    assert found(cache) == [1, 8, 3]


def test_blocks_that_follow_leave_a_gap() -> None:
    uses = np.zeros(9, np.int64)
    cache = BlockCache(uses)
    cache.keep(0, blocks(5), start=2)
    assert found(cache) == [None, None, 5]
    cache.keep(0, blocks(), start=9)
    assert found(cache) == [None, None, 5]
