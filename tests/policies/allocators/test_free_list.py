"""Is every order of reuse kept, also when blocks are taken from the middle?"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.allocators.free_lists.buddies import Buddies
from policies.allocators.free_lists.free_list_registry import FREE_LISTS
from policies.allocators.free_lists.runs import Runs
from policies.allocators.free_lists.spread import Spread
from policies.allocators.free_lists.staged import Staged
from tests.rotation import LONG


def from_runs(order: list[int], wanted: int) -> int:
    """The next block of `runs`: of the shortest run of free blocks that has all that are wanted,
    else of the longest; the lowest of equals."""
    runs: list[list[int]] = []
    for block in sorted(order):
        if runs and runs[-1][-1] == block - 1:
            runs[-1].append(block)
        else:
            runs.append([block])
    enough = [run for run in runs if len(run) >= wanted]
    return min(enough, key=len)[0] if enough else max(runs, key=len)[0]


NEXT: dict[str, Callable[[list[int]], int]] = {
    "fifo": lambda order: order[0],
    "lifo": lambda order: order[-1],
    "split": lambda order: order[0],
    "sorted": min,
}


@pytest.mark.parametrize("name", NEXT)
@settings(max_examples=1000 if LONG else 20)
@given(data=st.data(), blocks=st.sampled_from([1, 3, 9, 40, 600]))
def test_equals_a_plain_list(name: str, data: st.DataObject, blocks: int) -> None:
    free = FREE_LISTS[name](blocks)
    order = list(range(blocks)) if name != "lifo" else list(range(blocks))[::-1]
    held: list[int] = []
    for _ in range(data.draw(st.integers(1, 40))):
        action = data.draw(st.sampled_from(["pop", "push", "take"]))
        if action == "push":
            some = data.draw(st.lists(st.sampled_from(held), unique=True)) if held else []
            unhashed = data.draw(st.integers(0, len(some)))
            free.push(np.array(some, np.int64), unhashed)
            first = some[:unhashed] if name == "split" else []
            order = first + order + some[len(first) :]
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
        assert np.flatnonzero(free.is_free(np.arange(blocks))).tolist() == sorted(order)


def from_spread(line: list[int], ends: set[int], last: int, window: int) -> int:
    """The next block of `spread`."""
    free = sorted(line[:window])
    if last + 1 in free and last >= 0:
        return last + 1
    runs: list[list[int]] = []
    for block in free:
        if runs and runs[-1][-1] == block - 1:
            runs[-1].append(block)
        else:
            runs.append([block])
    parts = [run[len(run) // 2 :] if run[0] - 1 in ends else run for run in runs]
    return max(parts, key=len)[0]


@settings(max_examples=1000 if LONG else 20)
@given(
    data=st.data(), blocks=st.sampled_from([1, 3, 9, 40]), window=st.sampled_from([0.1, 0.4, 1.0])
)
def test_spread_equals_a_plain_one(data: st.DataObject, blocks: int, window: float) -> None:
    free, line, ends = Spread(blocks, window), list(range(blocks)), set[int]()
    held: dict[int, list[int]] = {asker: [] for asker in range(4)}
    for _ in range(data.draw(st.integers(1, 20))):
        if data.draw(st.booleans()):
            back = held[data.draw(st.integers(0, 3))]
            free.push(np.array(back, np.int64))
            line += back
            ends -= set(back)
            back.clear()
            continue
        asks = data.draw(st.lists(st.integers(0, 3), max_size=len(line)))
        last = np.array([held[asker][-1] if held[asker] else -1 for asker in range(4)])
        expected = []
        for asker in asks:
            end = held[asker][-1] if held[asker] else -1
            block = from_spread(line, ends, end, max(math.ceil(window * blocks), 1))
            line.remove(block)
            ends = ends - {end} | {block}
            held[asker].append(block)
            expected.append(block)
        assert free.pop_behind(np.array(asks, np.int64), last).tolist() == expected
        assert free.free == len(line)


def from_buddies(order: list[int], wanted: int) -> range:
    """The next blocks of `buddy`, from all aligned powers of two that are free and in no other."""
    free, sizes = set(order), [1 << bit for bit in reversed(range(10))]
    found: list[range] = []
    for size in sizes:
        for start in range(0, max(free) + 1, size):
            whole = free.issuperset(range(start, start + size))
            if whole and not any(start in other for other in found):
                found.append(range(start, start + size))
    power = next(size for size in sizes if size <= wanted)
    enough = [each for each in found if len(each) >= power]
    if enough:
        return min(enough, key=lambda each: (len(each), each.start))[:power]
    return max(found, key=lambda each: (len(each), -each.start))


@settings(max_examples=1000 if LONG else 20)
@given(
    data=st.data(), blocks=st.sampled_from([1, 3, 9, 40, 600]),
    kind=st.sampled_from([Runs, Buddies]),
)  # fmt: skip
def test_runs_and_buddies_are_the_shortest_that_are_long_enough(
    data: st.DataObject, blocks: int, kind: type[Runs]
) -> None:
    free, order = kind(blocks), list(range(blocks))
    for _ in range(data.draw(st.integers(1, 20))):
        count = data.draw(st.integers(0, len(order)))
        expected: list[int] = []
        while len(expected) < count:
            wanted = count - len(expected)
            if kind is Buddies:
                some = list(from_buddies(order, wanted))
            else:
                first = from_runs(order, wanted)
                held = [at for at in range(first, first + wanted) if at not in order]
                some = list(range(first, min([*held, first + wanted])))
            expected += some
            order = [block for block in order if block not in some]
        assert free.pop(count).tolist() == expected
        held = [block for block in range(blocks) if block not in order]
        back = data.draw(st.lists(st.sampled_from(held), unique=True)) if held else []
        free.push(np.array(back, np.int64))
        order += back
        assert free.free == len(order)


@settings(max_examples=100 if LONG else 40)
@given(data=st.data(), blocks=st.sampled_from([1, 5, 40]))
def test_all_free_pages_are_sorted_when_those_at_hand_are_too_few(
    data: st.DataObject, blocks: int
) -> None:
    free = Staged(blocks)
    ready, staged, held = list(range(blocks)), list[int](), list[int]()
    for _ in range(data.draw(st.integers(1, 30))):
        action = data.draw(st.sampled_from(["pop", "push", "take"]))
        if action == "push" and held:
            some = data.draw(st.lists(st.sampled_from(held), unique=True))
            free.push(np.array(some, np.int64))
            staged, held = staged + some, [b for b in held if b not in some]
        elif action == "take" and ready + staged:
            some = data.draw(st.lists(st.sampled_from(ready + staged), unique=True))
            free.take(np.array(some, np.int64))
            ready, staged = ([b for b in part if b not in some] for part in (ready, staged))
            held += some
        elif action == "pop":
            count = data.draw(st.integers(0, len(ready + staged)))
            if count > len(ready):
                ready, staged = sorted(ready + staged), []
            assert free.pop(count).tolist() == ready[:count]
            held, ready = held + ready[:count], ready[count:]
        assert free.free == len(ready + staged)
