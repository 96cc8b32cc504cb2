"""Is a block found under its key as long as it was not handed out again, and no longer?"""

from __future__ import annotations

import pickle

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.allocators.prefix_cache import BlockCache
from policies.requests.requests import IntArray
from tests.rotation import LONG


def blocks(*ids: int) -> IntArray:
    return np.array(ids, np.int64)


def found(cache: BlockCache, key: int = 0) -> list[int | None]:
    kept, alive = cache.find(key)
    return [int(block) if here else None for block, here in zip(kept, alive, strict=True)]


def test_what_is_computed_again_after_it_was_lost_takes_its_place() -> None:
    uses = np.zeros(9, np.int64)
    cache, sizes = BlockCache(uses), set()
    for _ in range(20):
        uses[:] += 1
        cache.keep(0, blocks(3, 4), start=1)
        sizes.add(len(pickle.dumps(cache)))
    assert len(sizes) == 1


@settings(max_examples=100 if LONG else 40)
@given(data=st.data())
def test_the_first_that_was_kept_of_those_not_handed_out_since_is_found(
    data: st.DataObject,
) -> None:
    """Beside a list of all that was ever kept at a place."""
    uses = np.zeros(8, np.int64)
    cache, kept = BlockCache(uses), dict[int, list[list[tuple[int, int]]]]()
    for _ in range(data.draw(st.integers(1, 25))):
        key, start = data.draw(st.integers(0, 1)), data.draw(st.integers(0, 3))
        some = data.draw(st.lists(st.integers(0, 7), unique=True, max_size=4))
        match data.draw(st.sampled_from(["keep", "keep", "keep", "use", "drop"])):
            case "keep" if some:
                cache.keep(key, blocks(*some), start)
                places = kept.setdefault(key, [])
                places += [[] for _ in range(start + len(some) - len(places))]
                for place, block in enumerate(some, start):
                    places[place].append((block, int(uses[block])))
            case "use":
                uses[some] += 1
            case "drop":
                cache.drop(key)
                kept.pop(key, None)
        for known in (0, 1):
            left = [
                next((block for block, used in place if uses[block] == used), None)
                for place in kept.get(known, [])
            ]
            assert found(cache, known) == left and cache.has(known) == (known in kept)
