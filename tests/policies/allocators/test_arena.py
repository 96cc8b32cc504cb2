"""Does the arena split and join, and choose the hole its rule says? Do it, buddies and slabs refuse
what they did not hand out?"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.allocators.arena import Arena
from policies.allocators.buddy import Buddy
from policies.allocators.slabs import Slabs
from tests.rotation import LONG

NOWHERE = {
    Arena: [(5, 10), (0, 21), (-1, 2), (19, 2), (0, 0)],
    Buddy: [(0, 2), (0, 8), (4, 4), (99, 4)],
    Slabs: [(0, 8), (4, 4), (2, 2)],
}


@pytest.mark.parametrize(
    ("kind", "start", "size"), [(kind, *each) for kind, runs in NOWHERE.items() for each in runs]
)
def test_what_is_not_held_cannot_be_given_back(kind: Any, start: int, size: int) -> None:
    if kind is Buddy:
        space = Buddy(16)
        assert space.take(4) == 0
    else:
        space = kind(0, 20)
        assert space.place(5 if kind is Arena else 4)
    with pytest.raises(ValueError, match=r"not allocated|no block"):
        space.give_back(start, size)


def chosen(runs: list[int], owner: list[int], fit: str, last: int) -> int:
    """Which of the places where so many slots are free a rule takes. last: the end of what it took
    before."""
    if fit == "next":
        return min((at for at in runs if at >= last), default=runs[0])
    begins = [at for at in runs if at == 0 or owner[at - 1] != -1]
    free = {at: next((i for i in range(at, 64) if owner[i] != -1), 64) - at for at in begins}
    return runs[0] if fit == "first" else min(begins, key=lambda at: (free[at], at))


@settings(max_examples=100 if LONG else 40)
@given(st.data(), st.sampled_from(["first", "best", "next"]))
def test_equals_a_map_of_slots(data: st.DataObject, fit: str) -> None:
    arena, owner, last = Arena(0, 64, fit), [-1] * 64, 0  # type: ignore[arg-type]
    held: dict[int, tuple[int, int]] = {}
    for turn in range(30):
        if held and data.draw(st.booleans()):
            start, size = held.pop(data.draw(st.sampled_from(sorted(held))))
            arena.give_back(start, size)
            owner[start : start + size] = [-1] * size
        else:
            size = data.draw(st.integers(1, 20))
            runs = [i for i in range(65 - size) if set(owner[i : i + size]) == {-1}]
            start_or_none = arena.take(size)
            assert (start_or_none is None) == (not runs)
            if start_or_none is not None:
                assert start_or_none == chosen(runs, owner, fit, last)
                last = start_or_none + size
                held[turn] = (start_or_none, size)
                owner[start_or_none : start_or_none + size] = [turn] * size
        assert arena.free == owner.count(-1) == sum(size for _, size in arena.holes)
