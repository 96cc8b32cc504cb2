"""Is every order of reuse kept, also when blocks are taken from the middle?"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.free_list import FREE_LISTS


def test_each_order_by_hand() -> None:
    found = {}
    for name, kind in FREE_LISTS.items():
        free = kind(4)
        first = free.pop(3)
        assert first.tolist() == [0, 1, 2]
        free.push(np.array([2, 0]))
        found[name] = free.pop(3).tolist()
    assert found == {"fifo": [3, 2, 0], "lifo": [0, 2, 3], "sorted": [0, 2, 3]}


def test_what_was_taken_from_the_middle_is_not_handed_out() -> None:
    found = {}
    for name, kind in FREE_LISTS.items():
        free = kind(5)
        free.take(np.array([1, 3]))
        assert free.free == 3
        found[name] = free.pop(2).tolist()
        free.push(np.array([3]))
        assert free.pop(2).tolist() == ([4, 3] if name == "fifo" else [3, 4])
    assert found == {"fifo": [0, 2], "lifo": [0, 2], "sorted": [0, 2]}


NEXT: dict[str, Callable[[list[int]], int]] = {
    "fifo": lambda order: order[0], "lifo": lambda order: order[-1], "sorted": min
}  # fmt: skip


@pytest.mark.parametrize("name", FREE_LISTS)
@given(data=st.data(), blocks=st.sampled_from([1, 3, 9, 40, 600]))
def test_equals_a_plain_list(name: str, data: st.DataObject, blocks: int) -> None:
    free = FREE_LISTS[name](blocks)
    order = list(range(blocks)) if name != "lifo" else list(range(blocks))[::-1]
    held: list[int] = []
    for _ in range(data.draw(st.integers(1, 40))):
        action = data.draw(st.sampled_from(["pop", "push", "take"]))
        if action == "push":
            some = data.draw(st.lists(st.sampled_from(held), unique=True)) if held else []
            free.push(np.array(some, np.int64))
            order += some
            held = [block for block in held if block not in some]
        elif action == "take":
            some = data.draw(st.lists(st.sampled_from(order), unique=True)) if order else []
            free.take(np.array(some, np.int64))
            order = [block for block in order if block not in some]
            held += some
        else:
            expected = []
            for _ in range(data.draw(st.integers(0, len(order)))):
                expected.append(NEXT[name](order))
                order.remove(expected[-1])
            assert free.pop(len(expected)).tolist() == expected
            held += expected
        assert free.free == len(order)
