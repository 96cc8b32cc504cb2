"""Do slabs conserve every slot, serve each size from its list, and go back when they are empty?"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.allocators.places import Place
from policies.allocators.slabs import Slabs
from tests.rotation import LONG


def test_what_is_not_in_use_cannot_be_freed() -> None:
    slabs = Slabs(0, 100)
    assert slabs.place(10)
    for start, size in ((0, 20), (10, 10), (5, 5)):
        with pytest.raises(ValueError, match="no block in use"):
            slabs.give_back(start, size)


@settings(max_examples=100 if LONG else 40)
@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from([3, 5, 8, 13, 40]), st.integers(0, 99))),
    st.sampled_from([1.0, 2.0, 10.0]),
)
def test_every_slot_is_in_a_block_or_free_and_in_one_place(
    steps: list[tuple[bool, int, int]], borrow: float
) -> None:
    slabs = Slabs(7, 120, borrow=borrow)
    used: list[Place] = []
    for takes, size, which in steps:
        if takes:
            before = (slabs.free, slabs.slabs, slabs.holes)
            place = slabs.place(size)
            if place is None:
                assert (slabs.free, slabs.slabs, slabs.holes) == before
                assert size > max(slabs.largest_hole, 0) or borrow < slabs.largest_hole / size
                continue
            assert size <= place.size <= borrow * size
            used.append(place)
        elif used:
            slabs.give_back(*used.pop(which % len(used)))
        owned = [slot for place in used for slot in range(place.start, sum(place))]
        assert len(owned) == len(set(owned)) == 120 - slabs.free
        runs = [(start, size * count) for start, size, count in slabs.slabs] + slabs.holes
        every = [slot for start, length in runs for slot in range(start, start + length)]
        assert sorted(every) == list(range(7, 127)) and set(owned) <= set(every)
    for place in used:
        slabs.give_back(*place)
    assert (slabs.free, slabs.holes) == (120, [(7, 120)])
