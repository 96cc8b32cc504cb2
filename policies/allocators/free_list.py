"""Free lists of blocks: the order in which freed blocks are handed out again.

A block can also be taken from the middle, when its content is found again. An operation looks at no
more than a fixed multiple of the blocks it moves, on average.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hwmodel.kernel.jit import kernel
from policies.requests.requests import IntArray


class FreeList(ABC):
    """Blocks 0 to n - 1, all free at first and handed out in ascending order."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.free = blocks

    @abstractmethod
    def pop(self, count: int) -> IntArray:
        """Take the next `count` blocks (needs count <= free), in the order of handing out."""

    def pop_apart(self, count: int) -> IntArray:
        """Take `count` blocks, each asked for on its own."""
        return self.pop(count)

    @abstractmethod
    def push(self, blocks: IntArray, unhashed: int = 0) -> None:
        """Free `blocks`, in this order; the first `unhashed` of them can never be found again."""

    @abstractmethod
    def take(self, blocks: IntArray) -> None:
        """Take these free `blocks`, wherever they are in the order."""

    @abstractmethod
    def is_free(self, blocks: IntArray) -> NDArray[np.bool_]:
        """Which of `blocks` are free."""


class Line(FreeList):
    """Free blocks in a line.

    `_log[_head:_tail]` holds the line, and entries of blocks that were taken from the middle. An
    entry is alive while `_place` of its block (-1: not free) names it.
    """

    def __init__(self, blocks: int) -> None:
        super().__init__(blocks)
        self._log = np.zeros(3 * blocks, np.int64)  # the line fits on either side of itself
        self._place = np.zeros(blocks, np.int64)
        self._lay(self._first_line())

    def _first_line(self) -> IntArray:
        return np.arange(self.blocks)

    def push(self, blocks: IntArray, unhashed: int = 0) -> None:
        self._append(blocks)

    def take(self, blocks: IntArray) -> None:
        self._place[blocks] = -1
        self.free -= len(blocks)

    def is_free(self, blocks: IntArray) -> NDArray[np.bool_]:
        return self._place[blocks] >= 0

    def _append(self, blocks: IntArray) -> None:
        if self._tail + len(blocks) > len(self._log):
            self._compact()
        self._enter(self._tail, blocks)
        self._tail += len(blocks)

    def _prepend(self, blocks: IntArray) -> None:
        if self._head < len(blocks):
            self._compact()
        self._head -= len(blocks)
        self._enter(self._head, blocks)

    def _enter(self, place: int, blocks: IntArray) -> None:
        end = place + len(blocks)
        self._log[place:end] = blocks
        self._place[blocks] = np.arange(place, end)
        self.free += len(blocks)

    def _compact(self) -> None:
        entries = self._log[self._head : self._tail]
        self._lay(entries[self._place[entries] == np.arange(self._head, self._tail)])

    def _lay(self, line: IntArray) -> None:
        """These blocks, and no others, are the line."""
        self.free = 0
        self._head, self._tail = self.blocks, self.blocks + len(line)
        self._enter(self._head, line)


class Queue(Line):
    """First freed, first reused: vLLM v1's FreeKVCacheBlockQueue."""

    def pop(self, count: int) -> IntArray:
        taken, self._head = _pop_front(self._log, self._place, self._head, count)
        self.free -= count
        return taken


class SplitQueue(Queue):
    """As `Queue`, but blocks whose content cannot be found again go to its front: later
    versions of vLLM v1 (`BlockPool.free_blocks` prepends blocks without a hash). vLLM v0 with
    prefix caching also uses up the blocks without a hash before it evicts others."""

    def push(self, blocks: IntArray, unhashed: int = 0) -> None:
        self._prepend(blocks[:unhashed])
        self._append(blocks[unhashed:])


class Stack(Line):
    """Last freed, first reused (vLLM v0's free blocks without prefix caching)."""

    def _first_line(self) -> IntArray:
        return np.arange(self.blocks)[::-1]

    def pop(self, count: int) -> IntArray:
        taken, self._tail = _pop_back(self._log, self._place, self._tail, count)
        self.free -= count
        return taken


class Sorted(FreeList):
    """Lowest address first. `_in_row` counts the free blocks of each row of `_is_free`."""

    WIDTH = 256

    def __init__(self, blocks: int) -> None:
        super().__init__(blocks)
        rows = -(-blocks // self.WIDTH)
        self._is_free = np.zeros((rows, self.WIDTH), np.bool_)
        self._is_free.reshape(-1)[:blocks] = True
        self._in_row = self._is_free.sum(axis=1)

    def pop(self, count: int) -> IntArray:
        taken: IntArray = _pop_lowest(self._is_free, self._in_row, count)
        self.free -= count
        return taken

    def push(self, blocks: IntArray, unhashed: int = 0) -> None:
        _mark(self._is_free, self._in_row, blocks, True)
        self.free += len(blocks)

    def take(self, blocks: IntArray) -> None:
        _mark(self._is_free, self._in_row, blocks, False)
        self.free -= len(blocks)

    def is_free(self, blocks: IntArray) -> NDArray[np.bool_]:
        return self._is_free.reshape(-1)[blocks]


class Staged(Queue):
    """Freed blocks wait until those at hand are too few for what is asked; then all that are free
    are sorted (SGLang with `need_sort`, `merge_and_sort_free`)."""

    def __init__(self, blocks: int) -> None:
        self._ready = blocks
        super().__init__(blocks)

    def have_ready(self, count: int) -> None:
        """Sort all free blocks if fewer than `count` are at hand."""
        if count > self._ready < self.free:
            self._compact()
            self._ready = self.free
            self._lay(np.sort(self._log[self._head : self._tail]))

    def pop(self, count: int) -> IntArray:
        self.have_ready(count)
        self._ready -= count
        return super().pop(count)

    def pop_apart(self, count: int) -> IntArray:
        if count <= self._ready:
            return self.pop(count)
        at_hand = self.pop(self._ready)
        return np.concatenate((at_hand, self.pop(count - len(at_hand))))

    def take(self, blocks: IntArray) -> None:
        self._ready -= int((self._place[blocks] < self._edge).sum())
        super().take(blocks)

    def _lay(self, line: IntArray) -> None:
        super()._lay(line)
        self._edge = self._head + self._ready


class Runs(Sorted):
    """From the shortest run of free blocks that is long enough, else from the longest ones: blocks
    that lie together are preferred to those freed first (proposed in vLLM PR 55841)."""

    def pop(self, count: int) -> IntArray:
        taken: IntArray = _pop_runs(self._is_free, self._in_row, self.blocks, count)
        self.free -= count
        return taken

    def pop_apart(self, count: int) -> IntArray:
        return np.concatenate([np.zeros(0, np.int64), *(self.pop(1) for _ in range(count))])


class Buddies(Runs):
    """From the smallest free buddy that is large enough for the largest power of two of what is
    wanted, else from the largest there is, the lowest of equals; then again. A buddy has a power of
    two of blocks and begins at a multiple of that (`policies.allocators.buddy`); those that are
    free join at once, so that the free blocks alone say which there are."""

    def pop(self, count: int) -> IntArray:
        taken: IntArray = _pop_buddies(self._is_free, self._in_row, self.blocks, count)
        self.free -= count
        return taken


class OldestRuns(Queue):
    """The block freed first with the free blocks beside it, those below first, in ascending order;
    then again: runs, of which each has the oldest block that is left."""

    def pop(self, count: int) -> IntArray:
        taken, self._head = _pop_beside(self._log, self._place, self._head, count)
        self.free -= count
        return taken

    def pop_apart(self, count: int) -> IntArray:
        return super().pop(count)


FreeListName = Literal["fifo", "lifo", "split", "sorted", "staged", "runs", "oldest_runs", "buddy"]
FREE_LISTS: dict[str, type[FreeList]] = {
    "fifo": Queue,
    "lifo": Stack,
    "split": SplitQueue,
    "sorted": Sorted,
    "staged": Staged,
    "runs": Runs,
    "oldest_runs": OldestRuns,
    "buddy": Buddies,
}


@kernel
def _pop_front(log: IntArray, place: IntArray, head: int, count: int) -> tuple[IntArray, int]:
    """The first `count` living entries of a line, and where it begins then. Modifies `place`."""
    taken = np.empty(count, np.int64)
    popped = 0
    while popped < count:
        block = log[head]
        if place[block] == head:
            taken[popped] = block
            place[block] = -1
            popped += 1
        head += 1
    return taken, head


@kernel
def _pop_beside(log: IntArray, place: IntArray, head: int, count: int) -> tuple[IntArray, int]:
    """`count` blocks: each time the first living entry of a line with the living blocks beside it,
    and where the line begins then. Modifies `place`."""
    taken = np.empty(count, np.int64)
    popped = 0
    while popped < count:
        block = log[head]
        if place[block] != head:
            head += 1
            continue
        low, high, wanted = block, block + 1, count - popped
        while high - low < wanted and low > 0 and place[low - 1] >= 0:
            low -= 1
        while high - low < wanted and high < len(place) and place[high] >= 0:
            high += 1
        for taking in range(low, high):
            place[taking] = -1
            taken[popped] = taking
            popped += 1
    return taken, head


@kernel
def _pop_back(log: IntArray, place: IntArray, tail: int, count: int) -> tuple[IntArray, int]:
    """The last `count` living entries of a line, last first, and where it ends then. Modifies
    `place`."""
    taken = np.empty(count, np.int64)
    popped = 0
    while popped < count:
        tail -= 1
        block = log[tail]
        if place[block] == tail:
            taken[popped] = block
            place[block] = -1
            popped += 1
    return taken, tail


@kernel
def _pop_lowest(is_free: NDArray[np.bool_], in_row: IntArray, count: int) -> IntArray:
    """The `count` lowest free blocks. Modifies both arrays."""
    taken = np.empty(count, np.int64)
    popped = row = 0
    while popped < count:
        column = 0
        while in_row[row] > 0 and popped < count:
            if is_free[row, column]:
                is_free[row, column] = False
                in_row[row] -= 1
                taken[popped] = row * is_free.shape[1] + column
                popped += 1
            column += 1
        row += 1
    return taken


@kernel
def _pop_runs(is_free: NDArray[np.bool_], in_row: IntArray, blocks: int, count: int) -> IntArray:
    """`count` blocks from the shortest run that has them, else from the longest runs in turn, the
    lowest of equals. Modifies both arrays."""
    width = is_free.shape[1]
    taken = np.empty(count, np.int64)
    popped = 0
    while popped < count:
        wanted, best, first = count - popped, 0, -1
        start = block = 0
        while block <= blocks:
            row = block // width
            if block < blocks and block % width == 0 and in_row[row] == 0:
                length, after = block - start, block + width  # a row without any
            elif block < blocks and is_free[row, block % width]:
                block += 1
                continue
            else:
                length, after = block - start, block + 1
            fits = length >= wanted
            if length and (
                (fits and (best < wanted or length < best)) or (best < wanted and length > best)
            ):
                best, first = length, start
            start = block = after
        for taking in range(first, first + min(best, wanted)):
            row = taking // width
            is_free[row, taking % width] = False
            in_row[row] -= 1
            taken[popped] = taking
            popped += 1
    return taken


@kernel
def _pop_buddies(
    is_free: NDArray[np.bool_], in_row: IntArray, blocks: int, count: int
) -> IntArray:  # fmt: skip
    """`count` blocks, as `Buddies` takes them. Modifies both arrays."""
    width, flat = is_free.shape[1], is_free.reshape(-1)
    taken = np.empty(count, np.int64)
    popped = 0
    while popped < count:
        wanted = 1
        while 2 * wanted <= count - popped:
            wanted *= 2
        best, first, block = 0, -1, 0
        while block < blocks:
            if not flat[block]:
                empty = block % width == 0 and in_row[block // width] == 0
                block += width if empty else 1
                continue
            size = 1  # what lies before this block ended there, so its buddy begins here
            while block % (2 * size) == 0 and block + 2 * size <= blocks:
                if not flat[block + size : block + 2 * size].all():
                    break
                size *= 2
            fits = size >= wanted
            if (fits and (best < wanted or size < best)) or (best < wanted and size > best):
                best, first = size, block
            block += size
        for taking in range(first, first + min(best, wanted)):
            flat[taking] = False
            in_row[taking // width] -= 1
            taken[popped] = taking
            popped += 1
    return taken


@kernel
def _mark(is_free: NDArray[np.bool_], in_row: IntArray, blocks: IntArray, free: bool) -> None:
    """These blocks are free from now on, or are not. Modifies both arrays."""
    for block in blocks:
        row = block // is_free.shape[1]
        is_free[row, block % is_free.shape[1]] = free
        in_row[row] += 1 if free else -1
