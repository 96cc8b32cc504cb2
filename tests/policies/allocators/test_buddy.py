"""Does the buddy system halve, join and align as Knuth has it?"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.allocators.buddy import Buddy
from tests.rotation import LONG


@pytest.mark.parametrize("size", [0, 3, 12, -4])
def test_only_powers_of_two_are_taken(size: int) -> None:
    with pytest.raises(ValueError, match="power of two"):
        Buddy(16).take(size)


@pytest.mark.parametrize(("start", "size"), [(0, 2), (0, 8), (4, 4), (99, 4)])
def test_what_is_not_held_cannot_be_given_back(start: int, size: int) -> None:
    buddy = Buddy(16)
    assert buddy.take(4) == 0
    with pytest.raises(ValueError, match="no block that is held"):
        buddy.give_back(start, size)


@settings(max_examples=100 if LONG else 25)
@given(st.data(), st.integers(1, 100))
def test_equals_a_map_of_slots(data: st.DataObject, slots: int) -> None:
    buddy, owner = Buddy(slots), [-1] * slots
    empty = buddy.largest_hole
    held: dict[int, tuple[int, int]] = {}
    for turn in range(30):
        if held and data.draw(st.booleans()):
            start, size = held.pop(data.draw(st.sampled_from(sorted(held))))
            buddy.give_back(start, size)
            owner[start : start + size] = [-1] * size
        else:
            size = 1 << data.draw(st.integers(0, 6))
            largest = buddy.largest_hole
            taken = buddy.take(size)
            assert (taken is None) == (largest < size)
            if taken is not None:
                assert taken % size == 0 and set(owner[taken : taken + size]) == {-1}
                held[turn] = (taken, size)
                owner[taken : taken + size] = [turn] * size
        assert buddy.free == owner.count(-1)
        # a free block that is aligned, whole and free is one block: joining is never forgotten
        whole = [
            size
            for size in (1 << bit for bit in range(7))
            for start in range(0, slots - size + 1, size)
            if set(owner[start : start + size]) == {-1}
        ]
        assert buddy.largest_hole == max(whole, default=0)
    for start, size in held.values():
        buddy.give_back(start, size)
    assert buddy.largest_hole == empty and buddy.free == slots
