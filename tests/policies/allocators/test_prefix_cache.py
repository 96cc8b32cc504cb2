"""Is a block found under its key as long as it was not handed out again, and no longer?"""

from __future__ import annotations

import numpy as np

from policies.allocators.prefix_cache import BlockCache, either
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


def test_who_computes_a_prompt_later_fills_its_gaps_alone() -> None:
    uses = np.zeros(9, np.int64)
    cache = BlockCache(uses)
    cache.complete(0, blocks(1, 2, 3))
    uses[[1, 3]] += 1
    cache.complete(0, blocks(5, 6))
    assert found(cache) == [5, 2, None]
    cache.complete(0, blocks(5, 6, 7, 8))
    assert found(cache) == [5, 2, 7, 8]


def test_either_of_two_is_enough() -> None:
    uses = np.zeros(9, np.int64)
    cache = BlockCache(uses)
    cache.keep(0, blocks(1, 2, 3, 4))
    cache.keep(1, blocks(5, 6))
    uses[[2, 3, 5]] += 1
    kept, alive = either(cache.find(0), cache.find(1))
    assert (kept[alive].tolist(), alive.tolist()) == ([1, 6, 4], [True, True, False, True])
    kept, alive = either(cache.find(1), cache.find(0))
    assert (kept[alive].tolist(), alive.tolist()) == ([1, 6, 4], [True, True, False, True])
