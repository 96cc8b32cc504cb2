"""Free lists of blocks: the order in which freed blocks are handed out again.

A block can also be taken from the middle, by the request that used it last. No operation looks at
more than a fixed multiple of the blocks it moves, on average.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from policies.requests import IntArray


class FreeList(ABC):
    """Blocks 0 to n - 1, all free at first and handed out in ascending order."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.free = blocks

    @abstractmethod
    def pop(self, count: int) -> IntArray:
        """Take the next `count` blocks (needs count <= free), in the order of handing out."""

    @abstractmethod
    def push(self, blocks: IntArray) -> None:
        """Free `blocks`, in this order."""

    @abstractmethod
    def take(self, blocks: IntArray) -> None:
        """Take these free `blocks`, wherever they are in the order."""


class Queue(FreeList):
    """First freed, first reused: vLLM v1's FreeKVCacheBlockQueue.

    `_log[_head:_tail]` holds the blocks in order of freeing, and entries of blocks that were taken
    from the middle. An entry is alive while `_place` of its block names it.
    """

    def __init__(self, blocks: int) -> None:
        super().__init__(blocks)
        self._log = np.zeros(2 * max(blocks, 1), np.int64)
        self._log[:blocks] = np.arange(blocks)
        self._place = np.arange(blocks)
        self._head, self._tail = 0, blocks

    @property
    def _whole(self) -> bool:
        """No entry is dead."""
        return self._tail - self._head == self.free

    def pop(self, count: int) -> IntArray:
        if self._whole:
            taken = self._log[self._head : self._head + count].copy()
            self._head += count
        else:
            alive = _first_alive(self._log[self._head : self._tail], self._place, self._head, count)
            taken = self._log[self._head + alive]
            self._head += int(alive[-1]) + 1 if count else 0
        self._place[taken] = -1
        self.free -= count
        return taken

    def push(self, blocks: IntArray) -> None:
        if self._tail + len(blocks) > len(self._log):
            self._compact()
        end = self._tail + len(blocks)
        self._log[self._tail : end] = blocks
        self._place[blocks] = np.arange(self._tail, end)
        self._tail = end
        self.free += len(blocks)

    def take(self, blocks: IntArray) -> None:
        self._place[blocks] = -1
        self.free -= len(blocks)

    def _compact(self) -> None:
        places = np.arange(self._head, self._tail)
        entries = self._log[self._head : self._tail]
        alive = entries[self._place[entries] == places]
        self._log[: len(alive)] = alive
        self._place[alive] = np.arange(len(alive))
        self._head, self._tail = 0, len(alive)


class Stack(Queue):
    """Last freed, first reused (vLLM v0's list of free blocks)."""

    def __init__(self, blocks: int) -> None:
        super().__init__(blocks)
        self._log[:blocks] = np.arange(blocks)[::-1]
        self._place = np.arange(blocks)[::-1].copy()

    def pop(self, count: int) -> IntArray:
        if self._whole:
            end = self._tail - count
            taken = self._log[end : self._tail][::-1].copy()
        else:
            backwards = self._log[self._head : self._tail][::-1]
            alive = _first_alive(backwards, self._place, self._tail - 1, count, -1)
            taken = backwards[alive]
            end = self._tail - (int(alive[-1]) + 1 if count else 0)
        self._tail = end
        self._place[taken] = -1
        self.free -= count
        return taken


class Sorted(FreeList):
    """Lowest address first. `_in_row` counts the free blocks of each row of `_is_free`."""

    WIDTH = 256

    def __init__(self, blocks: int) -> None:
        super().__init__(blocks)
        rows = -(-blocks // self.WIDTH)
        self._is_free = np.zeros(rows * self.WIDTH, np.bool_)
        self._is_free[:blocks] = True
        self._in_row = self._is_free.reshape(rows, self.WIDTH).sum(axis=1)

    def pop(self, count: int) -> IntArray:
        passed = np.cumsum(self._in_row)
        first, last = np.searchsorted(passed, [1, max(count, 1)]) if count else (0, 0)
        begin, end = int(first) * self.WIDTH, (int(last) + 1) * self.WIDTH
        taken: IntArray = begin + np.flatnonzero(self._is_free[begin:end])[:count]
        self.take(taken)
        return taken

    def push(self, blocks: IntArray) -> None:
        self._is_free[blocks] = True
        self._in_row += np.bincount(blocks // self.WIDTH, minlength=len(self._in_row))
        self.free += len(blocks)

    def take(self, blocks: IntArray) -> None:
        self._is_free[blocks] = False
        self._in_row -= np.bincount(blocks // self.WIDTH, minlength=len(self._in_row))
        self.free -= len(blocks)


FREE_LISTS: dict[str, type[FreeList]] = {"fifo": Queue, "lifo": Stack, "sorted": Sorted}


def _first_alive(
    entries: IntArray, place: IntArray, origin: int, count: int, way: int = 1
) -> IntArray:
    """Indices of the first `count` of `entries` that `place` still names; entry i is at
    `origin` + `way` i."""
    looked = 2 * count + 16
    while True:
        part = entries[:looked]
        alive = np.flatnonzero(place[part] == origin + way * np.arange(len(part)))
        if len(alive) >= count:
            return alive[:count]
        looked *= 2
