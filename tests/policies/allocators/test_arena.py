"""Does the arena split and join, and choose the hole its rule says?"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.allocators.arena import Arena
from tests.rotation import LONG


@pytest.mark.parametrize(("start", "size"), [(5, 10), (0, 21), (-1, 2), (19, 2), (0, 0)])
def test_what_is_free_or_outside_cannot_be_given_back(start: int, size: int) -> None:
    arena = Arena(0, 20)
    assert arena.take(5) == 0
    with pytest.raises(ValueError, match="not allocated"):
        arena.give_back(start, size)


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
